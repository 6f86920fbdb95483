"""Class names, colours and published orders of the known data sets, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from faircl.data.masks import Colour, Palette, voc_palette


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _palette(colours: tuple[Colour, ...]) -> Palette:
    palette = np.array(colours, np.uint8)
    palette.setflags(write=False)  # shared by all readers
    return palette


# PASCAL VOC 2012

VOC = _split_names(
    "background, aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, dog, horse, "
    "motorbike, person, pottedplant, sheep, sofa, train, tvmonitor"
)
"""The 21 class names of PASCAL VOC by id."""

VOC_PALETTE = voc_palette(len(VOC))
"""Its colours (21, 3)."""


# ADE20K, the 150 classes of the scene parsing challenge

ADE = _split_names(
    "background, wall, building, sky, floor, tree, ceiling, road, bed, windowpane, grass, "
    "cabinet, sidewalk, person, earth, door, table, mountain, plant, curtain, chair, "
    "car, water, painting, sofa, shelf, house, sea, mirror, rug, field, "
    "armchair, seat, fence, desk, rock, wardrobe, lamp, bathtub, railing, cushion, "
    "base, box, column, signboard, chest of drawers, counter, sand, sink, skyscraper, fireplace, "
    "refrigerator, grandstand, path, stairs, runway, case, pool table, pillow, screen door, stairway, "
    "river, bridge, bookcase, blind, coffee table, toilet, flower, book, hill, bench, "
    "countertop, stove, palm, kitchen island, computer, swivel chair, boat, bar, arcade machine, hovel, "
    "bus, towel, light, truck, tower, chandelier, awning, streetlight, booth, television, "
    "airplane, dirt track, apparel, pole, land, bannister, escalator, ottoman, bottle, buffet, "
    "poster, stage, van, ship, fountain, conveyer belt, canopy, washer, plaything, swimming pool, "
    "stool, barrel, basket, waterfall, tent, bag, minibike, cradle, oven, ball, "
    "food, step, tank, trade name, microwave, pot, animal, bicycle, lake, dishwasher, "
    "screen, blanket, sculpture, hood, sconce, vase, traffic light, tray, ashcan, fan, "
    "pier, crt screen, plate, monitor, bulletin board, shower, radiator, glass, clock, flag"
)
"""Background (everything else) and the 150 classes by id, each by the first of its names."""


# Cityscapes

CITYSCAPES = _split_names(
    "road, sidewalk, building, wall, fence, pole, traffic light, traffic sign, vegetation, terrain, sky, person, "
    "rider, car, truck, bus, train, motorcycle, bicycle"
)
"""The 19 classes that are evaluated, by train id."""

CITYSCAPES_PALETTE = _palette(
    (
        (128, 64, 128),
        (244, 35, 232),
        (70, 70, 70),
        (102, 102, 156),
        (190, 153, 153),
        (153, 153, 153),
        (250, 170, 30),
        (220, 220, 0),
        (107, 142, 35),
        (152, 251, 152),
        (70, 130, 180),
        (220, 20, 60),
        (255, 0, 0),
        (0, 0, 142),
        (0, 0, 70),
        (0, 60, 100),
        (0, 80, 100),
        (0, 0, 230),
        (119, 11, 32),
    )
)
"""Their colours (19, 3)."""

_EVALUATED = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)  # label ids, by train id

CITYSCAPES_TRAIN_IDS: Mapping[int, int | None] = MappingProxyType(
    {label: _EVALUATED.index(label) if label in _EVALUATED else None for label in range(34)}
)
"""Label id, 0 to 33, to train id; None for those that are ignored."""

CITYSCAPES_CITIES = _split_names(
    "aachen, bremen, darmstadt, erfurt, hanover, krefeld, strasbourg, tubingen, weimar, bochum, cologne, dusseldorf, "
    "hamburg, jena, monchengladbach, stuttgart, ulm, zurich, frankfurt, lindau, munster"
)
"""Cities of train and val in the order in which the published domain protocol learns them."""


# CamVid

CAMVID_11 = _split_names("sky, building, pole, road, pavement, tree, sign, fence, car, pedestrian, bicyclist")
"""The 11 classes of published tables by id."""

CAMVID_11_PALETTE = _palette(
    (
        (128, 128, 128),
        (128, 0, 0),
        (192, 192, 128),
        (128, 64, 128),
        (60, 40, 222),
        (128, 128, 0),
        (192, 128, 128),
        (64, 64, 128),
        (64, 0, 128),
        (64, 64, 0),
        (0, 128, 192),
    )
)
"""Their colours (11, 3) as in SegNet; that of pavement differs from Sidewalk of the 32 labels."""

_CAMVID: dict[str, tuple[Colour, str | None]] = {
    "Animal": ((64, 128, 64), "pedestrian"),
    "Archway": ((192, 0, 128), "building"),
    "Bicyclist": ((0, 128, 192), "bicyclist"),
    "Bridge": ((0, 128, 64), "building"),
    "Building": ((128, 0, 0), "building"),
    "Car": ((64, 0, 128), "car"),
    "CartLuggagePram": ((64, 0, 192), "pedestrian"),
    "Child": ((192, 128, 64), "pedestrian"),
    "Column_Pole": ((192, 192, 128), "pole"),
    "Fence": ((64, 64, 128), "fence"),
    "LaneMkgsDriv": ((128, 0, 192), "road"),
    "LaneMkgsNonDriv": ((192, 0, 64), "road"),
    "Misc_Text": ((128, 128, 64), "sign"),
    "MotorcycleScooter": ((192, 0, 192), "bicyclist"),
    "OtherMoving": ((128, 64, 64), "car"),
    "ParkingBlock": ((64, 192, 128), "pavement"),
    "Pedestrian": ((64, 64, 0), "pedestrian"),
    "Road": ((128, 64, 128), "road"),
    "RoadShoulder": ((128, 128, 192), "pavement"),
    "Sidewalk": ((0, 0, 192), "pavement"),
    "SignSymbol": ((192, 128, 128), "sign"),
    "Sky": ((128, 128, 128), "sky"),
    "SUVPickupTruck": ((64, 128, 192), "car"),
    "TrafficCone": ((0, 0, 64), "pole"),
    "TrafficLight": ((0, 64, 64), "sign"),
    "Train": ((192, 64, 128), "car"),
    "Tree": ((128, 128, 0), "tree"),
    "Truck_Bus": ((192, 128, 192), "car"),
    "Tunnel": ((64, 0, 64), "building"),
    "VegetationMisc": ((192, 192, 0), "tree"),
    "Void": ((0, 0, 0), None),
    "Wall": ((64, 192, 0), "building"),
}

CAMVID_32: Mapping[str, Colour] = MappingProxyType({name: colour for name, (colour, _) in _CAMVID.items()})
"""The 32 labels as the data set's label_colors.txt lists them, and their colours."""

CAMVID_32_TO_11: Mapping[str, str | None] = MappingProxyType({name: group for name, (_, group) in _CAMVID.items()})
"""SegNet's grouping of the 32 labels into the 11 classes; None is ignored."""


# COCO-Stuff

_COCO_THINGS = _split_names(
    "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, -, stop sign, "
    "parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, -, backpack, umbrella, "
    "-, -, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, "
    "skateboard, surfboard, tennis racket, bottle, -, wine glass, cup, fork, knife, spoon, bowl, banana, apple, "
    "sandwich, orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, -, "
    "dining table, -, -, toilet, -, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, "
    "refrigerator, -, book, clock, vase, scissors, teddy bear, hair drier, toothbrush, -"
)
"""Ids 1 to 91; a dash is an id that was never annotated."""

_COCO_STUFF = _split_names(
    "banner, blanket, branch, bridge, building-other, bush, cabinet, cage, cardboard, carpet, ceiling-other, "
    "ceiling-tile, cloth, clothes, clouds, counter, cupboard, curtain, desk-stuff, dirt, door-stuff, fence, "
    "floor-marble, floor-other, floor-stone, floor-tile, floor-wood, flower, fog, food-other, fruit, furniture-other, "
    "grass, gravel, ground-other, hill, house, leaves, light, mat, metal, mirror-stuff, moss, mountain, mud, napkin, "
    "net, paper, pavement, pillow, plant-other, plastic, platform, playingfield, railing, railroad, river, road, rock, "
    "roof, rug, salad, sand, sea, shelf, sky-other, skyscraper, snow, solid-other, stairs, stone, straw, "
    "structural-other, table, tent, textile-other, towel, tree, vegetable, wall-brick, wall-concrete, wall-other, "
    "wall-panel, wall-stone, wall-tile, wall-wood, water-other, waterdrops, window-blind, window-other, wood"
)
"""Ids 92 to 182."""

COCO_STUFF: Mapping[int, str] = MappingProxyType(
    {id: name for id, name in enumerate(_COCO_THINGS + _COCO_STUFF, start=1) if name != "-"}
)
"""The 171 classes by original id: 80 things among 1 to 90, 91 stuff classes from 92 on. stuffthingmaps hold id − 1."""
