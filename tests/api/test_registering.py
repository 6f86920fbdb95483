"""Methods, networks and readers registered by a script."""

from importlib.metadata import EntryPoint

import pytest
from torch import nn

import faircl
from faircl.methods.finetune import FineTune
from faircl.models.small import Small
from faircl.readers.base import SceneConfig, SceneReader
from faircl.registry import METHODS, MODELS, READERS


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    """Forget after each test what it registered."""
    for table in (METHODS, MODELS, READERS):
        monkeypatch.setattr(table, "registered", {})


class Mine(FineTune):
    name = "mine"


class Narrow(Small):
    name = "narrow"


class ManyConfig(SceneConfig):
    name: str = "many"


class Many(SceneReader):
    Config = ManyConfig


def test_registered_parts_train_a_run_that_predicts(tmp_path, tiny_config, cli):
    faircl.register_method("mine", Mine)
    faircl.register_network("narrow", Narrow)
    faircl.register_reader("many", Many)
    for names, name in ((faircl.list_methods, "mine"), (faircl.list_networks, "narrow"), (faircl.list_readers, "many")):
        assert name in names()
    data = {"name": "many", "images": 24, "test_images": 8, "size": 32}
    settings = {"data": data, "method": {"name": "mine"}, "model": {"name": "narrow", "width": 8, "embedding": 8}}
    config = faircl.load_config(tiny_config("train.epochs=0.3", "train.later_epochs=0.3"), settings)
    run = faircl.train(config, tmp_path / "run", reporter=faircl.SilentReporter())
    assert (run.config.method.name, run.config.model.name, run.config.data.name) == ("mine", "narrow", "many")
    assert faircl.load(run).predict(run.folder / "examples/0.image.png").mask.shape == (32, 32)
    assert "mine" in cli("methods").out
    MODELS.registered.clear()
    with pytest.raises(faircl.UserError, match="Unknown model 'narrow'"):
        faircl.load(run)


def test_a_cell_can_run_twice_but_nothing_else_is_replaced(monkeypatch):
    faircl.register_method("mine", Mine)
    again = type("Mine", (Mine,), {"summary": "another"})
    faircl.register_method("mine", again)
    assert METHODS.get("mine") is again
    assert faircl.list_methods().count("mine") == 1
    with pytest.raises(faircl.UserError, match="'finetune' is built in"):
        faircl.register_method("finetune", FineTune)
    point = EntryPoint("mine", "elsewhere:Mine", "faircl.methods")
    monkeypatch.setattr("faircl.registry.entry_points", lambda group: [point] if group == point.group else [])
    with pytest.raises(faircl.UserError, match="comes with an installed package"):
        faircl.register_method("mine", Mine)


@pytest.mark.parametrize(
    ("register", "cls", "words"),
    [
        (faircl.register_method, Mine, "Mine.name is 'mine'; set it to 'other'"),
        (faircl.register_method, "mine:Mine", "expected a class, found 'mine:Mine'"),
        (faircl.register_method, nn.Module, r"Module is not a subclass of faircl\.Method"),
        (
            faircl.register_method,
            type("A", (Mine,), {"Config": None}),
            r"A.Config must be a subclass of faircl\.MethodC",
        ),
        (faircl.register_method, type("A", (faircl.Method,), {"name": "other"}), "A has no summary; add a sentence"),
        (
            faircl.register_method,
            type("A", (faircl.Method,), {"name": "other", "summary": "s", "paper": "p"}),
            "A has no losses of its own",
        ),
        (faircl.register_network, Mine, r"is not a subclass of faircl\.Segmenter"),
        (faircl.register_reader, type("A", (), {}), r"A.Config must be a subclass of faircl\.ReaderConfig"),
        (faircl.register_reader, type("A", (), {"Config": ManyConfig}), "A has no summary"),
        (
            faircl.register_reader,
            type("A", (), {"Config": faircl.ReaderConfig, "summary": "s"}),
            "A.Config has no open of its own",
        ),
    ],
)
def test_what_cannot_be_registered_is_said(register, cls, words):
    with pytest.raises(faircl.UserError, match=words):
        register("other", cls)
    for names in (faircl.list_methods, faircl.list_networks, faircl.list_readers):
        assert "other" not in names()


def test_a_name_is_needed():
    with pytest.raises(faircl.UserError, match="an empty one"):
        faircl.register_reader("", Many)


def test_recipes_are_listed():
    assert {"demo", "folder", "voc-15-1"} <= set(faircl.list_recipes())
