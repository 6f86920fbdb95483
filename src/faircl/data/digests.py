"""Digests of a run's images and masks, by which changed data are noticed.

Masks are read whole when their classes are counted, so their digests cover all of them. Of an image file the length and
three samples of its bytes are taken: beginning, middle and end. A PNG ends with a checksum of all its pixels, and JPEG
files of different pictures differ in length and nearly everywhere; a few pixels of an uncompressed file may change
unnoticed, unless all bytes are taken. Folders and times of files play no part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from faircl.data.file_data import FileData
from faircl.data.label_index import LabelIndex, digest_pixels
from faircl.data.raster_files import file_bytes, file_samples
from faircl.data.sample import SegmentationData
from faircl.parallel import thread_pool
from faircl.progress import Reporter

DigestKind = Literal["sample", "full"]

FORMAT = 1
SAMPLE_BYTES = 4096
SAMPLE_IMAGES = 64
"""Images that are decoded for a digest, of data that are not image files."""
SHOWN = 3
_HEX = 16
_NOT_TAKEN = "-"


@dataclass(frozen=True)
class DataDigests:
    """Digests of the images and masks of every split, by id: hexadecimal, "-" for an image that was not sampled."""

    kind: DigestKind
    splits: Mapping[str, Mapping[str, tuple[str, str]]]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        pairs = {split: {id: " ".join(pair) for id, pair in ids.items()} for split, ids in self.splits.items()}
        return {"format": FORMAT, "kind": self.kind, "splits": pairs}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> DataDigests:
        """Return the digests of `to_json`; ValueError, KeyError or AttributeError if they are damaged."""
        if saved["format"] != FORMAT or saved["kind"] not in ("sample", "full"):
            raise ValueError(f"its format is {saved['format']} ({saved['kind']}), expected {FORMAT}")
        splits: dict[str, dict[str, tuple[str, str]]] = {}
        for split, ids in saved["splits"].items():
            splits[split] = {}
            for id, text in ids.items():
                image, mask = text.split()
                splits[split][id] = image, mask
        return cls(saved["kind"], splits)


def digest_data(
    data: SegmentationData, indices: Iterable[tuple[str, LabelIndex]], kind: DigestKind, reporter: Reporter
) -> DataDigests:
    """Digest the images and masks of indices, which hold the digests of masks; some may be of one split."""
    splits: dict[str, dict[str, tuple[str, str]]] = {}
    for split, index in indices:
        found = splits.setdefault(split, {})
        masks = {id: mask.hex()[:_HEX] for id, mask in zip(index.ids, index.digests, strict=True) if id not in found}
        images = _digest_images(data, split, tuple(masks), kind, reporter) if masks else {}
        found |= {id: (images.get(id, _NOT_TAKEN), mask) for id, mask in masks.items()}
    return DataDigests(kind, splits)


def describe_changes(before: DataDigests, now: DataDigests, data: SegmentationData) -> str:
    """Say which images and masks of the splits of ``now`` are not as before; an empty string if all are.

    An image of which either has no digest is not compared.
    """
    known = {split: before.splits.get(split, {}) for split in now.splits}
    images: list[str] = []
    masks: list[str] = []
    for split, ids in now.splits.items():
        for id, (image, mask) in ids.items():
            old_image, old_mask = known[split].get(id, (_NOT_TAKEN, mask))
            if image != old_image and _NOT_TAKEN not in (image, old_image):
                images.append(_file(data, split, id, "image"))
            if mask != old_mask:
                masks.append(_file(data, split, id, "mask"))
    missing = [f"{split}/{id}" for split, ids in known.items() for id in ids if id not in now.splits[split]]
    added = [
        _file(data, split, id, "image") for split, ids in now.splits.items() for id in ids if id not in known[split]
    ]
    total = sum(map(len, known.values()))
    found = [
        *([_differing(images, total, "images")] if images else []),
        *([_differing(masks, total, "masks")] if masks else []),
        *([f"{_count(missing)} missing{_some(missing)}"] if missing else []),
        *([f"{_count(added)} new{_some(added)}"] if added else []),
    ]
    return ", ".join(found)


def _differing(files: Sequence[str], total: int, kind: str) -> str:
    return f"{len(files)} of {total} {kind} {'differs' if len(files) == 1 else 'differ'}{_some(files)}"


def _count(images: Sequence[str]) -> str:
    return "1 image is" if len(images) == 1 else f"{len(images)} images are"


def _some(files: Sequence[str]) -> str:
    return f" ({', '.join(files[:SHOWN])}{', …' if len(files) > SHOWN else ''})"


def _file(data: SegmentationData, split: str, id: str, kind: str) -> str:
    """Return the name of an image or mask: its path below the root, or split and id if the data are not files."""
    if isinstance(data, FileData):
        files = data.listing(split).files[id]
        return files.mask if kind == "mask" else files.image or f"{split}/{id}"
    return f"{split}/{id}"


def _digest_images(
    data: SegmentationData, split: str, ids: Sequence[str], kind: DigestKind, reporter: Reporter
) -> dict[str, str]:
    """Return the digests of a split's images by id: of files, or else of decoded pixels, which may be a sample."""
    digest: Callable[[str], bytes]
    if isinstance(data, FileData) and type(data).read is FileData.read:
        chosen, digest = ids, partial(_digest_file, data, split, kind)
    else:
        chosen, digest = ids if kind == "full" else _choose(ids), partial(_digest_pixels, data, split)
    with reporter.task(f"digests of images ({split})", len(chosen)) as task, thread_pool() as pool:
        found = {}
        for id, value in zip(chosen, pool.map(digest, chosen), strict=True):
            found[id] = value.hex()
            task.advance()
        return found


def _digest_file(data: FileData, split: str, kind: DigestKind, id: str) -> bytes:
    path = data.image_path(split, id)
    content = file_bytes(path, "image") if kind == "full" else file_samples(path, "image", SAMPLE_BYTES)
    return hashlib.blake2b(content, digest_size=_HEX // 2).digest()


def _digest_pixels(data: SegmentationData, split: str, id: str) -> bytes:
    return digest_pixels(data.read(split, id).image)[: _HEX // 2]


def _choose(ids: Sequence[str]) -> list[str]:
    """Return a sample of ids that hardly changes when some are added or removed."""
    return sorted(ids, key=lambda id: hashlib.blake2b(id.encode(errors="surrogateescape")).digest())[:SAMPLE_IMAGES]
