"""Class statistics against numbers worked out by hand, and the plot of them."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from faircl.data.class_stats import data_stats, normalised_entropy
from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.report.data_plots import write_distribution


def stats_of(*rows: list[int], background: bool = True, ignored: int = 0):
    pixels = np.array(rows, np.int64)
    classes = Classes(tuple(f"c{id}" for id in range(pixels.shape[1])), background)
    index = LabelIndex(
        tuple(f"i{row}" for row in range(len(rows))), pixels, np.array([ignored] + [0] * (len(rows) - 1))
    )
    return data_stats(index, classes), classes


def test_entropy_by_hand():
    # 1/2, 1/4, 1/4 and nothing: −Σ p ln p = 3/2 ln 2, over ln 4 = 2 ln 2
    assert normalised_entropy(np.array([0.5, 0.25, 0.25, 0.0])) == pytest.approx(0.75)
    assert normalised_entropy(np.full(5, 0.2)) == pytest.approx(1)
    assert math.copysign(1, normalised_entropy(np.array([0.0, 1.0]))) == 1  # 0, and not −0
    assert normalised_entropy(np.array([0.0, 1.0])) == 0
    assert math.isnan(normalised_entropy(np.array([1.0])))
    assert math.isnan(normalised_entropy(np.zeros(3)))


def test_pixels_images_and_shares():
    stats, _ = stats_of([2, 0, 1, 0], [2, 2, 1, 0], ignored=8)
    assert [(c.id, c.name, c.pixels, c.images) for c in stats.classes] == [
        (0, "c0", 4, 2),
        (1, "c1", 2, 1),
        (2, "c2", 2, 2),
        (3, "c3", 0, 0),
    ]
    assert [c.share for c in stats.classes] == [0.5, 0.25, 0.25, 0]
    assert (stats.images, stats.ignored, stats.ignored_share) == (2, 8, 0.5)
    assert stats.entropy == pytest.approx(0.75)


def test_major_is_the_most_frequent_third_and_equals_go_by_id():
    stats, _ = stats_of([1, 5, 5, 9, 5, 0, 5])
    assert stats.major == (3, 1)
    assert stats.minor == (2, 4, 6, 0, 5)
    assert [c.id for c in stats.ranked] == [3, 1, 2, 4, 6, 0, 5]
    assert stats.major_share == pytest.approx(14 / 30)


@pytest.mark.parametrize(("classes", "major"), [(151, 50), (19, 6), (21, 7), (11, 3), (3, 1), (2, 0), (1, 0)])
def test_sizes_of_the_groups(classes, major):
    stats, _ = stats_of(list(range(1, classes + 1)))
    assert (len(stats.major), len(stats.minor)) == (major, classes - major)


def test_only_void():
    stats, _ = stats_of([0, 0, 0], ignored=4)
    assert [c.share for c in stats.classes] == [0, 0, 0]
    assert math.isnan(stats.entropy)
    assert stats.ignored_share == 1
    assert data_stats(LabelIndex(("a",), np.zeros((1, 2), np.int64)), Classes(("a", "b"), False)).ignored_share == 0


def test_json():
    stats, _ = stats_of([3, 0, 1])
    found = stats.to_json()
    assert set(found) == {"images", "ignored_share", "classes", "entropy", "major", "minor"}
    assert found["classes"][0] == {"id": 0, "name": "c0", "pixels": 3, "images": 1, "share": 0.75}
    assert (found["major"], found["minor"]) == (["c0"], ["c2", "c1"])
    assert [c["step"] for c in stats.to_json({0: 0, 2: 1})["classes"]] == [0, None, 1]


def texts(path):
    return ["".join(e.itertext()).strip() for e in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("count", [1, 11, 21, 151])
def test_plot_names_every_class(tmp_path, count):
    stats, classes = stats_of([10**6 // (rank + 1) for rank in range(count - 1)] + [0])
    write_distribution(tmp_path / "a.svg", "title & <more>", stats, classes)
    shown = texts(tmp_path / "a.svg")
    assert {f"c{id}" for id in range(count)} <= set(shown)
    assert {"title & <more>", "none"} <= set(shown)
    assert [file.name for file in tmp_path.iterdir()] == ["a.svg"]


def test_plot_by_step(tmp_path):
    stats, classes = stats_of([8, 4, 2, 1, 1, 1])
    write_distribution(tmp_path / "a.svg", "t", stats, classes, {0: 0, 1: 0, 2: 0, 3: 1})
    shown = texts(tmp_path / "a.svg")
    assert {"c0", "step 0", "step 1", "never learned", "major", "minor"} <= set(shown)
    many, classes = stats_of(list(range(60, 0, -1)), background=False)
    write_distribution(tmp_path / "b.svg", "t", many, classes, {id: id for id in range(60)})
    assert sum(text.startswith("step ") for text in texts(tmp_path / "b.svg")) == 12


def test_equal_plots_have_equal_bytes(tmp_path):
    stats, classes = stats_of([8, 4, 2])
    for suffix in (".svg", ".png", ".pdf"):
        for name in "ab":
            write_distribution(tmp_path / f"{name}{suffix}", "t", stats, classes)
        first, second = (tmp_path / f"{name}{suffix}" for name in "ab")
        assert first.read_bytes() == second.read_bytes()
        assert first.stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "words"), [("a.jpg", "must end in"), ("no/a.svg", "no folder"), ("folder.svg", "it is a folder")]
)
def test_plots_that_cannot_be_written(tmp_path, name, words):
    (tmp_path / "folder.svg").mkdir()
    stats, classes = stats_of([8, 4, 2])
    with pytest.raises(UserError, match=words):
        write_distribution(tmp_path / name, "t", stats, classes)
