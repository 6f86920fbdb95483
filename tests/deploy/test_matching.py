"""Classes of new data in terms of a model's: names, ids, tables, by hand."""

import numpy as np
import pytest

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.deploy.matched_data import matched_index
from faircl.deploy.matching import Known, apply_matching, match_classes, resembling
from faircl.errors import UserError

MODEL = Known(Classes(("background", "road", "traffic light", "future"), True), (0, 2, 1))


def data(*names: str, background: bool = True) -> Classes:
    return Classes((("background",) if background else ()) + names, background)


def test_known_classes_are_found_by_name_and_new_ones_come_at_the_end():
    found = match_classes(MODEL, data("Van", "Traffic_Light", "road"))
    assert found.classes.names == ("background", "road", "traffic light", "future", "Van")
    assert found.ids == (None, 4, 2, 1)
    assert (found.new, found.known) == ((4,), (2, 1))
    assert MODEL.names == ("traffic light", "road")


def test_a_name_that_the_model_has_not_learned_keeps_its_id():
    found = match_classes(MODEL, data("van", "future"))
    assert found.ids == (None, 4, 3)
    assert found.new == (4, 3)


def test_wanted_classes_alone_are_new():
    found = match_classes(MODEL, data("van", "bus"), wanted=["bus"])
    assert found.ids == (None, None, 4)
    assert found.classes.names[4] == "bus"


def test_classes_without_pixels_are_not_new():
    assert match_classes(MODEL, data("van", "bus"), present={0, 2}).classes.names[4:] == ("bus",)


def test_another_name_for_a_known_class():
    found = match_classes(MODEL, data("signal", "van"), same={"signal": "traffic light"})
    assert found.ids == (None, 2, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"same": {"lamp": "road"}}, "class of the new data 'lamp'"),
        ({"same": {"van": "rode"}}, "class of the model 'rode'"),
        ({"wanted": ["road"]}, "knows class 'road' already"),
        ({"wanted": ["tram"]}, "has no class 'tram'"),
    ],
)
def test_names_that_are_not_there(arguments, words):
    with pytest.raises(UserError, match=words):
        match_classes(MODEL, data("van", "road"), **arguments)


def test_names_that_are_spelled_alike_are_noticed():
    found = match_classes(MODEL, data("trafic light", "van"))
    assert resembling(MODEL, found) == [("trafic light", "traffic light")]


def test_a_mask_in_the_ids_of_the_model():
    source = data("van", "road", "left out")
    found = match_classes(MODEL, source, wanted=["van"])
    mask = np.array([[0, 1, 2], [3, 255, 9]], np.uint8)
    out = apply_matching(found.table(source), mask, len(found.classes.names))
    assert out.dtype == np.uint8
    assert out.tolist() == [[0, 4, 1], [0, 255, 255]]
    ignored = apply_matching(found.table(source, found.ignore), mask, len(found.classes.names))
    assert ignored.tolist() == [[255, 4, 1], [255, 255, 255]]


def test_without_background_unlabelled_pixels_have_a_value_of_their_own():
    model = Known(Classes(("road", "sky"), False), (0, 1))
    source = data("sky", "van")
    found = match_classes(model, source)
    assert found.ids == (None, 1, 2)
    mask = np.array([[0, 1, 2, 255]], np.uint16)
    mask[0, 3] = 65535
    assert apply_matching(found.table(source), mask, 3).tolist() == [[254, 1, 2, 255]]


def test_masks_of_many_classes_are_16_bits_deep():
    model = Known(Classes(tuple(f"c{i}" for i in range(254)), False), tuple(range(254)))
    source = data("c7", "new")
    found = match_classes(model, source)
    out = apply_matching(found.table(source), np.array([[0, 1, 2, 255]], np.uint8), 255)
    assert out.dtype == np.uint16
    assert out.tolist() == [[65534, 7, 254, 65535]]


def test_pixel_counts_in_the_ids_of_the_model():
    source = data("van", "road", "left out")
    found = match_classes(MODEL, source, wanted=["van"])
    index = LabelIndex(("a", "b"), np.array([[5, 1, 2, 3], [7, 0, 0, 1]]))
    assert matched_index(index, found.table(source), found).pixels.tolist() == [[8, 2, 0, 0, 1], [8, 0, 0, 0, 0]]
    ignored = matched_index(index, found.table(source, found.ignore), found)
    assert ignored.pixels.tolist() == [[0, 2, 0, 0, 1], [0, 0, 0, 0, 0]]


def test_equal_names_of_the_data_are_one_class():
    found = match_classes(MODEL, data("fence", "Fence", "road", "Road"))
    assert found.ids == (None, 4, 4, 1, 1)
    assert (found.new, found.known) == ((4,), (1,))
