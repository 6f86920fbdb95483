"""Copies the runs of the live reports into the documentation, and draws the pictures of the README.

Two finished runs are needed: the demo's, and one on Clothing Co-Parsing (Apache-2.0), trained as docs/live.md says:

    python docs/make_reports.py runs/demo-0/demo runs/clothing --data data/ccp

The runs go to docs/live/ without their networks, the pictures to docs/images/; ``make docs`` writes the pages. The
screenshot needs ``make test-browser`` once, for Chromium.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image as Pillow

import faircl
from faircl.data.masks import decode_mask
from faircl.fairness.chosen_images import image_scores
from faircl.runs.run import load_run

DOCS = Path(__file__).parent
KEPT = ("config.yaml", "environment.json", "scenario.json", "metrics.jsonl", "steps/*/evaluation.npz", "gallery/*.*")
"""Files of a run that its report reads."""
QUANTILES = (0.9, 0.5)
"""Which test images the README shows: those at these quantiles of the mean IoU of an image after the last step."""
COLOURS = (
    "4363d8 f58231 3cb44b e6194b 911eb4 9a6324 f032e6 808000 42d4f4 469990 ffe119 000075 dcbeff bfef45 800000 fabed4"
)
COLOURS += " ffd8b1 aaffc3 00a2a2 7a4dff d2b200 b3446c 2b7a0b ff6f61 5c3a21 0077b6"
"""Colours of the classes in the order of their ids; none is gray, as the background is."""
SHOWN = 0.7
"""Opacity of the painted classes."""


def main() -> None:
    """Write all pages and pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="the demo's run of FairCL")
    parser.add_argument("clothing", type=Path, help="a run on Clothing Co-Parsing")
    parser.add_argument("--data", type=Path, required=True, help="the folder of Clothing Co-Parsing")
    options = parser.parse_args()
    copy_run(options.demo, DOCS / "live/demo", images=12)
    copy_run(options.clothing, DOCS / "live/clothing", images=6)
    draw_clothing(options.clothing, options.data, DOCS / "images/clothing.png")
    take_screenshot(DOCS / "live/clothing", DOCS / "images/report.png")


def copy_run(run: Path, out: Path, images: int) -> None:
    """Copy what the report of a run needs, the first images of its gallery, and no folder of the machine it ran on."""
    shutil.rmtree(out, ignore_errors=True)
    for pattern in KEPT:
        for file in run.glob(pattern):
            copied = out / file.relative_to(run)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copied)
    config = out / "config.yaml"
    text = re.sub(r"(?m)^(\s*(?:root|weights): )/.*/([^/\n]+)$", r"\1data/\2", config.read_text(encoding="utf-8"))
    config.write_text(text, encoding="utf-8")
    index = out / "gallery/gallery.json"
    chosen = json.loads(index.read_text(encoding="utf-8"))["images"][:images]
    index.write_text(json.dumps({"images": chosen}, indent=1, ensure_ascii=False), encoding="utf-8")
    for file in out.glob("gallery/*.png"):
        if int(file.name.split(".")[0]) >= images:
            file.unlink()


def draw_clothing(run: Path, data: Path, path: Path) -> None:
    """Draw photographs, their truth and the predictions after both steps, with a legend of the classes shown."""
    record = load_run(run).records[1]
    scores = image_scores(record)
    ranked = [int(k) for k in np.argsort(scores) if not np.isnan(scores[k])]
    ids = [record.images[ranked[round(share * (len(ranked) - 1))]] for share in QUANTILES]
    networks = [faircl.load(run, step) for step in (0, 1)]
    rows = []
    for id in ids:
        photo = next((data / "images/test").glob(f"{id}.*"))
        truth = decode_mask(data / f"masks/test/{id}.png")
        rows.append((np.asarray(Pillow.open(photo)), truth, *(network.predict(photo).mask for network in networks)))
    names = dict(enumerate((data / "classes.txt").read_text(encoding="utf-8").split("\n")))
    used = [int(c) for c in np.unique(np.concatenate([mask.ravel() for row in rows for mask in row[1:]]))]
    used = [c for c in used if 0 < c < 255]
    colours = dict(zip(used, (f"#{one}" for one in COLOURS.split()), strict=False))
    learned = {c.id: c.learned_at for c in record.classes}
    figure = Figure(figsize=(11, 3.1), dpi=110, layout="compressed")
    grid = figure.subplots(1, 4 * len(rows), gridspec_kw={"wspace": 0.02})
    titles = ("photograph", "truth", "after step 0", "after step 1")
    for k, row in enumerate(rows):
        for axes, title, mask in zip(grid[4 * k : 4 * k + 4], titles, (None, *row[1:]), strict=True):
            _show(axes, row[0], mask, colours)
            axes.set_title(title, fontsize=8)
    patches = [Patch(facecolor=colours[c], label=names[c] + (" (new)" if learned.get(c) else "")) for c in sorted(used)]
    figure.legend(handles=patches, loc="outside lower center", ncols=8, fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Software": None})
    _shrink(path)
    print(f"{path}: {', '.join(ids)}")


def _show(axes: Axes, photo: NDArray[np.uint8], mask: NDArray[np.uint8] | None, colours: dict[int, str]) -> None:
    shown = photo.astype(np.float64) / 255
    if mask is not None:
        shown = 0.35 * shown.mean(axis=2, keepdims=True) + 0.6 * np.ones(3)  # background: the photograph, pale and gray
        for id, colour in colours.items():
            chosen = mask == id
            shown[chosen] = (1 - SHOWN) * shown[chosen] + SHOWN * np.array(matplotlib.colors.to_rgb(colour))
    axes.imshow(shown.clip(0, 1), interpolation="nearest")
    axes.set_axis_off()


def take_screenshot(run: Path, path: Path) -> None:
    """Take a picture of the top of a run's report, as wide as a README."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = faircl.write_report(run, Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1180, "height": 1180})
        opened.goto(page.as_uri())
        opened.wait_for_timeout(500)
        opened.screenshot(path=path)
        browser.close()
    _shrink(path)
    print(path)


def _shrink(path: Path) -> None:
    """Store a picture with 256 colours, a third of its size."""
    shrunk = Pillow.open(path).convert("RGB").convert("P", palette=Pillow.Palette.ADAPTIVE, colors=256)
    shrunk.save(path, optimize=True)


if __name__ == "__main__":
    main()
