"""Which label belongs to which prediction."""

import numpy as np
import pytest
from mask_folders import write_masks

from faircl.auditing.pairing import pair_files
from faircl.errors import UserError

MASK = np.zeros((2, 2))


def folders(tmp_path, labels, predictions):
    return (
        write_masks(tmp_path / "labels", dict.fromkeys(labels, MASK)),
        write_masks(tmp_path / "predictions", dict.fromkeys(predictions, MASK)),
    )


def paired(found):
    return {pair.id: (pair.label.name, pair.prediction.name) for pair in found.pairs}


def test_by_path_without_extension(tmp_path):
    found = pair_files(*folders(tmp_path, ["ulm/b", "a.v2.png"], ["ulm/b.tif", "a.v2.bmp"]))
    assert paired(found) == {"a.v2": ("a.v2.png", "a.v2.bmp"), "ulm/b": ("b.png", "b.tif")}
    assert found.notes == ()


def test_by_name_where_no_path_is_the_same(tmp_path):
    found = pair_files(*folders(tmp_path, ["ulm/a", "bonn/b"], ["a", "b"]))
    assert paired(found) == {"a": ("a.png", "a.png"), "b": ("b.png", "b.png")}


def test_names_that_are_not_unique_are_not_used(tmp_path):
    with pytest.raises(UserError, match="No file of"):
        pair_files(*folders(tmp_path, ["ulm/a", "bonn/a"], ["a"]))


def test_endings(tmp_path):
    labels = ["ulm/a_gtFine_labelTrainIds", "ulm/a_gtFine_color", "ulm/b_gtFine_labelTrainIds"]
    both = folders(tmp_path, labels, ["a_leftImg8bit", "b_leftImg8bit"])
    found = pair_files(*both, endings=("_gtFine_labelTrainIds", "_leftImg8bit"))
    assert list(paired(found)) == ["a", "b"]
    with pytest.raises(UserError, match="no file whose name ends in '_ids'"):
        pair_files(*both, endings=("_ids", ""))


def test_missing_and_extra(tmp_path):
    both = folders(tmp_path, ["a", "b", "c"], ["b", "c", "d"])
    with pytest.raises(UserError, match=r"1 label with no prediction in .*: a; .*--common"):
        pair_files(*both)
    found = pair_files(*both, common=True)
    assert list(paired(found)) == ["b", "c"]
    assert [note.startswith("left out 1 ") for note in found.notes] == [True, True]


def test_folders_that_are_none(tmp_path):
    good, _ = folders(tmp_path, ["a"], [])
    with pytest.raises(UserError, match=r"folder of predictions .* does not exist"):
        pair_files(good, tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"folder of labels .* is not a folder"):
        pair_files(good / "a.png", good)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty/notes.txt").touch()
    with pytest.raises(UserError, match="holds no mask"):
        pair_files(good, tmp_path / "empty")
    with pytest.raises(UserError, match="found 'a' and 'x'"):
        pair_files(good, write_masks(tmp_path / "other", {"x": MASK}))
    (good / "a.tif").touch()
    with pytest.raises(UserError, match=r"both a\.png and a\.tif"):
        pair_files(good, good)
