"""Small data sets for tests of validation images, and the scenario that settings make of them."""

from pathlib import Path

import numpy as np
from PIL import Image
from trees import cityscapes_tree

from faircl.config.run import parse_data
from faircl.data.masks import write_mask
from faircl.scenario import make_scenario

NAMES = "background\na\nb\nc\n"
TEST = {"x": [0, 1], "y": [2, 3]}


def make(root: Path, splits):
    """A folder data set: split and id to the class ids that the image shows, a row of its mask for each."""
    for split, images in splits.items():
        for kind in ("images", "masks"):
            (root / kind / split).mkdir(parents=True, exist_ok=True)
        for id, shown in images.items():
            mask = np.repeat(np.array(shown, np.uint8)[:, None], 4, 1)
            write_mask(root / "masks" / split / f"{id}.png", mask)
            Image.fromarray(np.zeros((*mask.shape, 3), np.uint8)).save(root / "images" / split / f"{id}.png")
    (root / "classes.txt").write_text(NAMES)
    return root


def indexed(root, silent, *settings, convention="full", joint=False, name="folder"):
    reporter = silent()
    tree = {"data": {"name": name, "root": str(root)}, "scenario": {"task": "2-1"}}
    reader, config = parse_data(tree, list(settings))
    return make_scenario(reader.open(), reader, config, reporter, convention=convention, joint=joint), reporter


def three_cities(root: Path):
    """Cities a, b and c with 20 images each in train and val, and two more of a and of b in a split of their own."""
    mask = np.full((4, 4), 7, np.uint8)  # labelId 7: road
    splits = {
        split: {f"{city}/{city}_{k:06d}_000000": mask for city in "abc" for k in range(start, start + 20)}
        for split, start in (("train", 0), ("val", 20))
    }
    extra = {"extra": {f"{city}/{city}_{k:06d}_000000": mask for city in "ab" for k in (90, 91)}}
    return cityscapes_tree(root, splits | extra)
