"""Writing what was found in one image: index mask, overlay, unknown map, probabilities, and its entry of the JSON."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from faircl.data.masks import Colour, Palette, full_palette, paint_over, palette_by_id
from faircl.data.sample import Image
from faircl.deploy.input_files import InputImage
from faircl.deploy.prediction.options import PredictOptions
from faircl.deploy.prediction.png_stripes import PngStripes
from faircl.deploy.prediction.stripes import Stripe
from faircl.errors import UserError

OPACITY = 0.5
"""How much of an overlay is the colour of its class."""


class KnownClasses(NamedTuple):
    """Names and colours by class id of all classes that the network knows, in the order of their ids."""

    names: dict[int, str]
    colours: dict[int, Colour]
    background: int | None
    small: bool
    """Whether masks are uint8; uint16 otherwise, for more than 254 classes."""

    @property
    def palette(self) -> Palette:
        """Colours (N, 3) by class id; ids without one are black."""
        return palette_by_id(self.colours)

    def to_json(self) -> list[dict[str, Any]]:
        """Return id, name and colour of every class."""
        return [
            {"id": id, "name": name, "colour": f"#{bytes(self.colours[id]).hex()}"} for id, name in self.names.items()
        ]


@dataclass(frozen=True)
class ImageOutputs:
    """Writes the files of images below a folder."""

    out: Path
    classes: KnownClasses
    options: PredictOptions
    overlay: bool

    def write(self, item: InputImage, image: Image, stripes: Iterable[Stripe]) -> dict[str, Any]:
        """Write the files of one image and return its entry; files appear only when all of them are complete."""
        height, width = image.shape[:2]
        files = {"mask": f"masks/{item.name}.png"}
        files |= {"overlay": f"overlays/{item.name}.png"} if self.overlay else {}
        files |= {"unknown": f"unknown/{item.name}.png"} if self.options.unknown is not None else {}
        files |= {"probabilities": f"probabilities/{item.name}.npz"} if self.options.probabilities else {}
        counts = np.zeros(max(self.classes.names) + 1, np.int64)
        unknown = 0.0
        with _written([self.out / name for name in files.values()]) as opened, ExitStack() as stack:
            writers = [
                stack.enter_context(self._writer(kind, file, (height, width)))
                for kind, file in zip(files, opened, strict=True)
            ]
            for stripe in stripes:
                for write in writers:
                    write(stripe)
                counts += np.bincount(stripe.maps.mask.reshape(-1), minlength=len(counts))
                if stripe.maps.unknown is not None:
                    unknown += float(stripe.maps.unknown.sum(dtype=np.float64))
        entry: dict[str, Any] = {"image": str(item.path), "name": item.name, "width": width, "height": height} | files
        if self.options.unknown is not None:
            entry["mean_unknown"] = unknown / (height * width)
        ranked = sorted(np.flatnonzero(counts).tolist(), key=lambda id: -int(counts[id]))
        entry["areas"] = [
            {
                "id": id,
                "name": self.classes.names[id],
                "pixels": int(counts[id]),
                "share": int(counts[id]) / (height * width),
            }
            for id in ranked
        ]
        return entry

    @contextmanager
    def _writer(self, kind: str, file: BinaryIO, size: tuple[int, int]) -> Iterator[Callable[[Stripe], None]]:
        """Open the writer of one kind of file; it takes stripes from top to bottom."""
        height, width = size
        if kind == "probabilities":
            with _npz_rows(file, (height, width, len(self.classes.names)), list(self.classes.names)) as write:
                yield write
            return
        palette = full_palette(self.classes.palette, 256) if kind == "mask" and self.classes.small else None
        png = PngStripes(file, width, height, palette)
        if kind == "mask":
            yield lambda stripe: png.write(stripe.maps.mask)
        elif kind == "overlay":
            yield lambda stripe: png.write(self._painted(stripe))
        else:
            yield lambda stripe: png.write(_to_bytes(stripe.maps.unknown))
        png.close()

    def _painted(self, stripe: Stripe) -> Image:
        return paint_over(stripe.image, stripe.maps.mask, self.classes.palette, OPACITY, self.classes.background)


@contextmanager
def _npz_rows(file: BinaryIO, shape: tuple[int, int, int], ids: Sequence[int]) -> Iterator[Callable[[Stripe], None]]:
    """Open an npz file of ``classes`` (C,) and ``probabilities`` (H, W, C) uint8, 255 for 1, written row by row."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("classes.npy", "w") as member:
            np.lib.format.write_array(member, np.array(ids, np.uint16))
        with archive.open("probabilities.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": shape})

            def write(stripe: Stripe) -> None:
                member.write(_to_bytes(stripe.maps.probabilities).data)

            yield write


def _to_bytes(values: Any) -> Image:
    """Return numbers in [0, 1] as 0 … 255."""
    scaled: Image = np.rint(values.astype(np.float32) * 255).astype(np.uint8)
    return scaled


@contextmanager
def _written(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Open files under temporary names and rename them at the end; after an error none of them is left."""
    parts = [path.with_name(f".{path.name}.part") for path in paths]
    try:
        with ExitStack() as stack:
            for path in paths:
                path.parent.mkdir(parents=True, exist_ok=True)
            yield [stack.enter_context(open(part, "wb")) for part in parts]
        for part, path in zip(parts, paths, strict=True):
            os.replace(part, path)
    except OSError as error:
        raise UserError(
            f"Cannot write {error.filename or paths[0]}: {error.strerror or error}; finished images are kept: mend "
            "that and continue with --resume, or choose another folder with --out."
        ) from None
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink()
