"""Which settings make a run another run, and which make it no repeat."""

from pathlib import Path

import pytest

from faircl.config.identity import REPEATS, differing_settings
from faircl.config.run import RunConfig, load_config
from faircl.config.schema import EvalConfig, TrainConfig
from faircl.effects import Effect, effect_of
from faircl.models.weights import WeightsConfig
from faircl.readers.base import FileConfig

SECTIONS = {"train": TrainConfig, "eval": EvalConfig, "data": FileConfig, "model": WeightsConfig}


def marked(effect):
    found = {
        f"{section}.{key}"
        for section, model in SECTIONS.items()
        for key, field in model.model_fields.items()
        if effect_of(field) is effect
    }
    return found | {key for key, field in RunConfig.model_fields.items() if effect_of(field) is effect}


def tree(*settings):
    return load_config("folder-deeplab", ["data.root=/a", "scenario.task=6-5", *settings]).model_dump(mode="json")


def test_the_marks():
    assert marked(Effect.NONE) == {
        *(f"train.{key}" for key in ("workers", "cache", "graphs", "log_every", "loggers", "checkpointing")),
        "train.checkpoint_minutes",
        "eval.batch",
        "eval.gallery",
        "data.root",
        "data.digest",
    }
    assert marked(Effect.ROUNDING) == {"train.threads", "train.accelerator"}
    assert marked(Effect.PRESENCE) == {"data.saliency"}
    assert marked(Effect.FIRST_STEP) == {"model.weights"}
    assert marked(Effect.EVALUATION) == {"eval.images", "eval.convention", "eval.size", "eval.examples"}
    assert marked(Effect.REPEAT) == {"seed"}


def test_the_page_on_runs_names_every_setting_that_may_differ_on_resume():
    page = (Path(__file__).parents[2] / "docs/runs.md").read_text(encoding="utf-8")
    section = page.partition("## Resume")[2].partition("\n## ")[0]
    assert all(f"`{key}`" in section for key in marked(Effect.NONE) | marked(Effect.FIRST_STEP))


@pytest.mark.parametrize(
    ("setting", "resumed", "repeated"),
    [
        ("train.workers=3", [], []),
        ("data.root=/b", [], []),
        ("train.threads=3", ["train.threads"], []),
        ("seed=3", ["seed"], []),
        ("eval.convention=plop", ["eval.convention"], []),
        ("optim.parts.backbone=0.5", ["optim.parts.backbone"], ["optim.parts.backbone"]),
        ("method.gamma=0.3", ["method.gamma"], ["method.gamma"]),
        ("data.saliency=/s", ["data.saliency"], ["data.saliency"]),
        ("model.weights=none", ["model.weights"], ["model.weights"]),
    ],
)
def test_what_counts(setting, resumed, repeated):
    assert differing_settings(tree(), tree(setting), {Effect.NONE}) == resumed
    assert differing_settings(tree(), tree(setting), REPEATS) == repeated


def test_files_may_move():
    one, other = tree("data.saliency=/s"), tree("data.saliency=/t")
    assert differing_settings(one, other, {Effect.NONE}) == []
    one, other = tree("model.weights=a.pth"), tree("model.weights=b.pth")
    assert differing_settings(one, other, {Effect.NONE, Effect.FIRST_STEP}) == []


def test_parts_that_are_not_installed_and_odd_trees():
    one = {"data": {"name": "other-package", "root": "/a", "x": 1}, "method": "mib", "odd": {"y": 1}}
    other = {"data": {"name": "other-package", "root": "/b", "x": 2}, "method": "mib", "odd": {"y": 2}}
    assert differing_settings(one, other, {Effect.NONE}) == ["data.x", "odd.y"]
