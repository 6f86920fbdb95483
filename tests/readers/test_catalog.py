import numpy as np

from faircl.readers import catalog
from faircl.readers.catalog import (
    ADE,
    CAMVID_11,
    CAMVID_11_PALETTE,
    CAMVID_32,
    CAMVID_32_TO_11,
    CITYSCAPES,
    CITYSCAPES_CITIES,
    CITYSCAPES_PALETTE,
    CITYSCAPES_TRAIN_IDS,
    COCO_STUFF,
    VOC,
    VOC_PALETTE,
)


def test_names_are_unique_and_clean() -> None:
    sizes = {VOC: 21, ADE: 151, CITYSCAPES: 19, CITYSCAPES_CITIES: 21, CAMVID_11: 11, tuple(COCO_STUFF.values()): 171}
    for names, size in sizes.items():
        assert len(names) == size == len(set(names)), names
        assert all(name and name == name.strip() for name in names)


def test_palettes_are_distinct_and_fit() -> None:
    for names, palette in ((VOC, VOC_PALETTE), (CITYSCAPES, CITYSCAPES_PALETTE), (CAMVID_11, CAMVID_11_PALETTE)):
        assert palette.shape == (len(names), 3)
        assert palette.dtype == np.uint8
        assert len({tuple(colour) for colour in palette.tolist()}) == len(names)


def test_voc() -> None:
    assert list(VOC[1:]) == sorted(VOC[1:])
    assert VOC[0] == "background"
    assert (VOC.index("person"), VOC.index("sheep"), VOC.index("tvmonitor")) == (15, 17, 20)
    assert VOC_PALETTE[VOC.index("person")].tolist() == [192, 128, 128]


def test_ade_at_known_places() -> None:
    # Every tenth class of objectInfo150, and the two ends.
    tenths = "background grass chair field cushion fireplace stairway bench hovel television buffet"
    assert ADE[:101:10] == tuple(tenths.split())
    assert ADE[110:151:10] == ("swimming pool", "ball", "dishwasher", "fan", "flag")
    assert (ADE.index("wall"), ADE.index("crt screen"), ADE.index("clock")) == (1, 142, 149)


def test_cityscapes() -> None:
    trained = {label: train for label, train in CITYSCAPES_TRAIN_IDS.items() if train is not None}
    assert list(CITYSCAPES_TRAIN_IDS) == list(range(34))
    assert list(trained.values()) == list(range(19))
    known = {7: "road", 11: "building", 17: "pole", 23: "sky", 26: "car", 28: "bus", 31: "train", 33: "bicycle"}
    assert {label: CITYSCAPES[trained[label]] for label in known} == known
    for ignored in (0, 4, 6, 9, 10, 14, 16, 18, 29, 30):  # parking, caravan and alike
        assert CITYSCAPES_TRAIN_IDS[ignored] is None
    assert CITYSCAPES_PALETTE[CITYSCAPES.index("rider")].tolist() == [255, 0, 0]
    assert CITYSCAPES_CITIES[0] == "aachen"
    assert CITYSCAPES_CITIES[-3:] == ("frankfurt", "lindau", "munster")  # the cities of val


def test_camvid() -> None:
    assert len(CAMVID_32) == 32 == len(set(CAMVID_32.values()))
    assert CAMVID_32.keys() == CAMVID_32_TO_11.keys()
    assert [name for name, group in CAMVID_32_TO_11.items() if group is None] == ["Void"]
    assert set(CAMVID_32_TO_11.values()) == {*CAMVID_11, None}
    assert CAMVID_32["Sidewalk"] == (0, 0, 192)
    assert CAMVID_32_TO_11["RoadShoulder"] == "pavement"
    assert CAMVID_32_TO_11["LaneMkgsDriv"] == "road"
    pole = CAMVID_11.index("pole")
    assert tuple(CAMVID_11_PALETTE[pole].tolist()) == CAMVID_32["Column_Pole"]


def test_coco_stuff() -> None:
    assert sum(id <= 90 for id in COCO_STUFF) == 80
    assert [id for id in COCO_STUFF if id > 91] == list(range(92, 183))
    assert {12, 26, 29, 30, 45, 66, 68, 69, 71, 83, 91}.isdisjoint(COCO_STUFF)  # ids that were never annotated
    known = {1: "person", 13: "stop sign", 44: "bottle", 90: "toothbrush", 92: "banner", 157: "sky-other", 182: "wood"}
    assert {id: COCO_STUFF[id] for id in known} == known


def test_shared_arrays_cannot_be_changed() -> None:
    assert not catalog.CITYSCAPES_PALETTE.flags.writeable
    assert not catalog.CAMVID_11_PALETTE.flags.writeable
