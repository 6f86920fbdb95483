"""Recipes of the benchmarks on CamVid and CCP: their tasks and settings, typed here apart from the recipes."""

import pytest

from faircl.config.recipes import recipe_names
from faircl.config.run import load_config
from faircl.data.sample import Classes
from faircl.methods.faircl import FairCLConfig
from faircl.scenario.tasks import split_classes

CAMVID = [
    "background", "sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian",
    "bicyclist",
]  # fmt: skip
CCP = [
    "background", "skin", "dress", "coat", "pants", "hair", "jeans", "bag", "blouse", "skirt", "shoes", "suit",
    "shirt", "blazer", "sweater", "jacket", "t-shirt", "purse", "stockings", "scarf", "hat", "accessories", "belt",
    "sandals", "sunglasses", "socks", "bracelet",
]  # fmt: skip
COATS = {"coat", "blazer", "jacket"}
STEPS = {
    "camvid-6-5": [CAMVID[1:7], CAMVID[7:]],
    "camvid-6-1": [CAMVID[1:7], *([name] for name in CAMVID[7:])],
    "ccp-16-10": [CCP[1:17], CCP[17:]],
    "ccp-16-2": [CCP[1:17], *(CCP[k : k + 2] for k in range(17, 27, 2))],
    "ccp-coats": [[name for name in CCP[1:] if name not in COATS], ["coat"], ["blazer"], ["jacket"]],
}
SETTINGS = {
    "data": {"name": "folder", "root": None},
    "scenario": {"setting": "overlapped", "order": None, "protocol": None},
    "model": {"name": "deeplabv3plus", "backbone": "mobilenet_v2"},
    "optim": {"name": "sgd", "lr": 0.02, "later_lr": 0.01, "weight_decay": 1e-4},
    "train": {"batch": 16, "crop": 256, "scale": (0.7, 1.6), "precision": "bf16", "augment": "device", "cache": "gpu"},
    "eval": {"convention": "full", "images": "test"},
}
OWN = {
    "camvid": {"data": {"validation": ("val", "0006R0_*")}, "train": {"epochs": 30, "later_epochs": 15}},
    "ccp": {"data": {"validation": 0.2}, "train": {"epochs": 20, "later_epochs": 15}},
}


def test_these_are_all():
    assert {name for name in recipe_names() if name.startswith(("camvid", "ccp"))} == STEPS.keys()


@pytest.mark.parametrize("name", STEPS)
def test_steps_in_the_order_of_the_data_s_classes(name):
    names = tuple(CAMVID if name.startswith("camvid") else CCP)
    config = load_config(name).scenario
    found = split_classes(config.task, config.order, Classes(names, background=True))
    assert [[names[id] for id in step] for step in found] == STEPS[name]


@pytest.mark.parametrize("name", STEPS)
def test_settings(name):
    config = load_config(name)
    tree = config.model_dump()
    for expected in (SETTINGS, OWN[name.partition("-")[0]]):
        for section, settings in expected.items():
            assert {key: tree[section][key] for key in settings} == settings
    assert config.method == FairCLConfig()  # the default method with its defaults
