"""Draws the pictures of the page "Data".

Run ``python docs/make_pictures.py`` to write them into docs/images, or name another folder. Nothing is downloaded: the
images are built-in scenes. What is painted comes from the scenario's own lists and tables. Equal code draws equal
pictures; only the class distribution depends on fonts, in its layout.
"""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from faircl.data.class_stats import data_stats
from faircl.data.label_index import LabelIndex, index_labels
from faircl.data.masks import IGNORE_COLOUR
from faircl.data.sample import Sample
from faircl.labels import BACKGROUND, IGNORE, Mask, apply_table
from faircl.loading.transforms import CentreCrop
from faircl.readers.scenes import SceneData
from faircl.report.data_plots import write_distribution
from faircl.report.style import INK
from faircl.scenario import CONVENTIONS, FULL, Scenario, build_scenario, split_classes
from faircl.scenario.scenario import Setting

Picture = NDArray[np.uint8]  # (H, W, 3)

WIDE, HIGH = 192, 144
TRAIN_IMAGE, TEST_IMAGE = "train-00080", "test-00044"
ORDER: list[int | str] = [
    *("road", "building", "pavement", "tree", "fence", "van"),
    *("car", "pedestrian"),
    *("kiosk", "cyclist"),
]
SETTINGS: tuple[Setting, ...] = ("overlapped", "disjoint", "sequential")

COLOURS = {
    "road": (120, 180, 230),
    "building": (190, 100, 60),
    "pavement": (210, 160, 70),
    "tree": (60, 160, 90),
    "fence": (130, 80, 160),
    "van": (0, 0, 160),
    "car": (235, 60, 50),
    "pedestrian": (255, 130, 220),
    "kiosk": (0, 110, 110),
    "cyclist": (255, 225, 0),
}
NOTHING, STRIPE = (52, 56, 64), (112, 118, 128)
"""Background, and stripes over it where the annotation has a class."""

THEMES = """\
text { font: 13px system-ui, sans-serif; fill: #1c1e21 }
.small { font-size: 11.5px }
.head { font-weight: 600 }
.card { fill: #ffffff }
.line { fill: none; stroke: #8a8f98 }
.dashed { fill: none; stroke: #8a8f98; stroke-dasharray: 4 3 }
.under { fill: none; stroke: #000000; stroke-width: 2 }
.over { fill: none; stroke: #ffffff; stroke-width: 2; stroke-dasharray: 6 5 }
@media (prefers-color-scheme: dark) { text { fill: #e4e6ea } .card { fill: #1e2129 } }"""
PLOT_THEME = f"""\
@media (prefers-color-scheme: dark) {{
  [style*="fill: #ffffff"] {{ fill: #1e2129 !important }}
  text {{ fill: #e4e6ea !important }}
  [style*="stroke: {INK}"] {{ stroke: #c4c8ce !important }}
}}"""


class Street(SceneData):
    """The built-in scenes, wider than high, with ignored pixels along the borders between classes."""

    def read(self, split: str, id: str) -> Sample:
        """Image and mask of one id."""
        image, mask = super().read(split, id).image, self.read_mask(split, id)
        return Sample(id, _middle(image), mask)

    def read_mask(self, split: str, id: str) -> Mask:
        """Mask of one id."""
        mask: NDArray[np.uint8] = _middle(super().read_mask(split, id))
        differs = np.zeros(mask.shape, bool)
        differs[:, :-1] |= mask[:, :-1] != mask[:, 1:]
        differs[:-1] |= mask[:-1] != mask[1:]
        return np.where(differs, np.uint8(255), mask)


class Sheet:
    """An SVG file in the making."""

    def __init__(self, wide: int, high: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">',
            f"<title>{escape(title)}</title>",
            f"<style>{THEMES}</style>",
            f'<rect class="card" width="{wide}" height="{high}" rx="6"/>',
        ]

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Write a line; (x, y) is the left end of its base line."""
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>')

    def box(self, x: float, y: float, wide: float, high: float, kind: str = "line") -> None:
        """Draw a frame."""
        self.parts.append(f'<rect class="{kind}" x="{x - 0.5}" y="{y - 0.5}" width="{wide + 1}" height="{high + 1}"/>')

    def picture(self, x: float, y: float, picture: Picture) -> None:
        """Show a picture, one unit per pixel, in a frame."""
        file = io.BytesIO()
        _as_picture(picture).save(file, "PNG", optimize=True)
        data = base64.b64encode(file.getvalue()).decode()
        high, wide = picture.shape[:2]
        self.parts.append(
            f'<image x="{x}" y="{y}" width="{wide}" height="{high}" style="image-rendering: pixelated" '
            f'href="data:image/png;base64,{data}"/>'
        )
        self.box(x, y, wide, high)

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_text("\n".join([*self.parts, "</svg>", ""]), encoding="utf-8", newline="\n")


def paint(labels: NDArray[np.uint16], mask: Mask, scenario: Scenario) -> Picture:
    """Paint a step's labels (H, W); background is striped where the annotation `mask` (H, W) says otherwise."""
    painted = np.empty((*labels.shape, 3), np.uint8)
    painted[labels == IGNORE] = IGNORE_COLOUR
    for channel, name in enumerate(scenario.names):
        painted[labels == channel] = NOTHING if channel == BACKGROUND else COLOURS[name]
    rows, columns = np.indices(labels.shape)
    painted[(labels == BACKGROUND) & (mask != BACKGROUND) & ((rows + columns) % 8 < 3)] = STRIPE
    return painted


def draw_training(path: Path) -> None:
    """Draw one training image as every setting labels it at every step."""
    data = Street(size=WIDE)
    _, image, mask = data.read("train", TRAIN_IMAGE)
    groups, train, test = split_classes("6-2", ORDER, data.classes), *_count(data)
    scenarios = [build_scenario(data.classes, groups, train, test, task="6-2", setting=one) for one in SETTINGS]
    sheet = _new_sheet("One training image under three settings", scenarios[0], "step", image, mask)
    for row, scenario in enumerate(scenarios):
        cells = [
            paint(apply_table(scenario.train_table(t), mask), mask, scenario) if TRAIN_IMAGE in step.images else None
            for t, step in enumerate(scenario.steps)
        ]
        _draw_row(sheet, row, scenario.setting, cells, "not an image", "of this step")
    sheet.write(path)


def draw_evaluation(path: Path) -> None:
    """Draw one test image as every convention labels it after every step."""
    data = Street(size=WIDE)
    _, image, mask = data.read("test", TEST_IMAGE)
    groups, train, test = split_classes("2-2-6", ORDER[::-1], data.classes), *_count(data)
    scenarios = {
        one: build_scenario(data.classes, groups, train, test, task="2-2-6", convention=one)
        for one in CONVENTIONS.values()
    }
    sheet = _new_sheet("One test image under three conventions", scenarios[FULL], "after step", image, mask)
    for kind in ("under", "over"):
        sheet.box(_left(0) + (WIDE - HIGH) / 2 + 1, _TOP + 1, HIGH - 2, HIGH - 2, kind)
    crop = CentreCrop(HIGH)  # the short side's own length: nothing is resized, and the crop can be seen in the image
    for row, (convention, scenario) in enumerate(scenarios.items()):
        seen = crop.mask(mask) if convention.crop else mask
        cells = [
            paint(apply_table(scenario.test_table(t, convention), seen), seen, scenario)
            if TEST_IMAGE in step.test_images
            else None
            for t, step in enumerate(scenario.steps)
        ]
        _draw_row(sheet, row, convention.name, cells, "not tested on:", "shows no class so far")
    sheet.write(path)


def draw_distribution(path: Path) -> None:
    """Draw the class distribution of the scenes as ``faircl data stats --data scenes --task 6-4 --plot`` does."""
    data = SceneData()
    stats = data_stats(index_labels(data, "train"), data.classes)
    groups = split_classes("6-4", None, data.classes)
    steps = {BACKGROUND: 0} | {id: step for step, ids in enumerate(groups) for id in ids}
    title = f"scenes, train: {stats.images} images, {len(stats.classes)} classes, entropy {stats.entropy:.3f}"
    write_distribution(path, title, stats, data.classes, steps)
    head, mark, rest = path.read_text(encoding="utf-8").partition("<defs>")
    path.write_text(f"{head}<style>{PLOT_THEME}</style>\n {mark}{rest}", encoding="utf-8", newline="\n")


PICTURES = {
    "training-labels.svg": draw_training,
    "evaluation-labels.svg": draw_evaluation,
    "class-distribution.svg": draw_distribution,
}


def main(folder: Path) -> None:
    """Write all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw(folder / name)
        print(folder / name)


# ---- layout: image, annotation and legend on top; below them a row for each setting or convention

_SIDE, _GAP, _TOP, _GRID = 102, 8, 32, 252
_ROW = HIGH + 14


def _left(column: int) -> int:
    return _SIDE + column * (WIDE + _GAP)


def _new_sheet(title: str, scenario: Scenario, when: str, image: Picture, mask: Mask) -> Sheet:
    """Draw what is above the rows."""
    sheet = Sheet(_left(len(scenario.steps)), _GRID + 3 * _ROW, title)
    every = apply_table(scenario.test_table(len(scenario.steps) - 1), mask)
    for column, (name, picture) in enumerate(
        (("image", _few_colours(image)), ("annotation", paint(every, mask, scenario)))
    ):
        sheet.text(_left(column), _TOP - 10, name, "head")
        sheet.picture(_left(column), _TOP, picture)
    _draw_legend(sheet, scenario, [id for id in scenario.channel_ids if id in mask])
    for t, step in enumerate(scenario.steps):
        names = [scenario.classes.names[id] for id in step.classes]
        sheet.text(_left(t), _GRID - 42, f"{when} {t}", "head")
        for line, part in enumerate((names[:3], names[3:])):
            sheet.text(_left(t), _GRID - 25 + 15 * line, ", ".join(part), "small")
    return sheet


def _draw_row(sheet: Sheet, row: int, name: str, cells: list[Picture | None], *absent: str) -> None:
    """Draw a row of label pictures; where there is none, two lines say why."""
    y = _GRID + row * _ROW
    sheet.text(12, y + HIGH / 2 + 4, name, "head")
    for column, cell in enumerate(cells):
        sheet.box(_left(column), y, WIDE, HIGH, "dashed")
        if cell is not None:
            sheet.picture(_left(column) + (WIDE - cell.shape[1]) // 2, y, cell)
        for line, text in enumerate(absent if cell is None else ()):
            sheet.text(_left(column) + 24, y + HIGH / 2 - 4 + 18 * line, text, "small")


def _draw_legend(sheet: Sheet, scenario: Scenario, ids: list[int]) -> None:
    """Name the colours of these classes, four lines in two columns, and of what is no class."""
    background: NDArray[np.uint16] = np.full((12, 18), BACKGROUND, np.uint16)
    plain, hidden = background.astype(np.uint8), np.ones((12, 18), np.uint8)
    classes = [
        (paint(background + scenario.channel_ids.index(id), plain, scenario), id) for id in ids if id != BACKGROUND
    ]
    for place, (picture, id) in enumerate(classes):
        _draw_entry(sheet, _left(2) + 100 * (place // 4), place % 4, picture, scenario.classes.names[id])
    _draw_entry(sheet, _left(2), 5, paint(background, plain, scenario), "background")
    _draw_entry(sheet, _left(2), 6, paint(background, hidden, scenario), "a class, labelled background")
    _draw_entry(sheet, _left(2), 7, paint(background + np.uint16(IGNORE), plain, scenario), "not counted (ignored)")


def _draw_entry(sheet: Sheet, x: int, line: int, picture: Picture, name: str) -> None:
    sheet.picture(x, _TOP + 18 * line, picture)
    sheet.text(x + 25, _TOP + 10 + 18 * line, name, "small")


def _count(data: Street) -> tuple[LabelIndex, LabelIndex]:
    return index_labels(data, "train"), index_labels(data, "test")


def _as_picture(picture: Picture) -> Pillow.Image:
    """Return pixels as a picture: one of few colours with a palette, which takes fewer bytes."""
    colours, places = np.unique(picture.reshape(-1, 3), axis=0, return_inverse=True)
    if len(colours) > 256:
        return Pillow.fromarray(picture)
    shown = Pillow.fromarray(places.reshape(picture.shape[:2]).astype(np.uint8))
    shown.putpalette(colours.tobytes())
    return shown


def _few_colours(image: Picture) -> Picture:
    """Return an image in steps of 16, which takes less than half the bytes."""
    return image // 16 * 16 + 8


def _middle(picture: NDArray[Any]) -> NDArray[Any]:
    """Return the middle HIGH rows."""
    top = (len(picture) - HIGH) // 2
    return picture[top : top + HIGH]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
