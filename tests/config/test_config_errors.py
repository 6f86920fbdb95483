"""A sentence for every mistake in a configuration, with the closest known word."""

import pytest
import yaml

from faircl.config.run import load_config
from faircl.errors import UserError


def message(source, settings=()) -> str:
    with pytest.raises(UserError) as caught:
        load_config(str(source), settings)
    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?!"
    return text


@pytest.mark.parametrize(
    ("setting", "place", "guess"),
    [
        ("optm.lr=1", "Unknown setting 'optm'.", "optim"),
        ("sed=1", "Unknown setting 'sed'.", "seed"),
        ("optim.laterlr=1", "Unknown setting 'laterlr' in optim.", "later_lr"),
        ("train.epoch=1", "Unknown setting 'epoch' in train.", "epochs"),
        ("optim.parts.bakbone=1", "Unknown setting 'bakbone' in optim.parts.", "backbone"),
        ("scenario.settings=disjoint", "Unknown setting 'settings' in scenario.", "setting"),
        ("method.lambda_clas=1", "Unknown setting 'lambda_clas' in method.", "lambda_class"),
        ("model.widht=8", "Unknown setting 'widht' in model.", "width"),
        ("data.image=8", "Unknown setting 'image' in data.", "images"),
    ],
)
def test_unknown_key(setting, place, guess):
    text = message("demo", [setting])
    assert text.startswith(f"{place} Did you mean '{guess}'? Known: ")
    assert f"{guess}" in text.partition("Known: ")[2].rstrip(".").split(", ")


def test_unknown_key_far_from_any_known_one_lists_them():
    text = message("demo", ["train.zzz=1"])
    assert "Did you mean" not in text
    assert "Known: epochs, later_epochs, batch" in text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("method.name=fairlc", "Unknown method 'fairlc'. Did you mean 'faircl'? Known: awt, dft, ewf, faircl,"),
        ("method=fairlc", "Unknown method 'fairlc'. Did you mean 'faircl'?"),
        ("model.name=smal", "Unknown model 'smal'. Did you mean 'small'?"),
        ("data.name=scene", "Unknown data set 'scene'. Did you mean 'scenes'?"),
    ],
)
def test_unknown_part(setting, words):
    assert words in message("demo", [setting])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("seed=-1", ["seed", "greater than or equal to 0", "-1"]),
        ("seed=abc", ["seed", "integer", "'abc'"]),
        ("train.batch=0", ["train.batch", "greater than or equal to 1"]),
        ("train.batch=[1]", ["train.batch", "integer"]),
        ("train.precision=fp8", ["train.precision", "'fp32', 'bf16', 'fp16' or 'fp64'", "'fp8'"]),
        ("optim.lr=0", ["optim.lr", "greater than 0"]),
        ("optim.lr=fast", ["optim.lr", "number", "'fast'"]),
        ("optim=3", ["optim", "settings of its own, as in optim.name=…", "3"]),
        ("optim=null", ["optim"]),
        ("optim.parts.decoder=-1", ["optim.parts.decoder", "greater than or equal to 0"]),
        ("train.scale=[1]", ["train.scale"]),
        ("train.scale=[1, 2, 3]", ["train.scale"]),
        ("train.scale=[0, 1]", ["train.scale", "0 < low ≤ high"]),
        ("train.scale=[2, 1]", ["train.scale", "0 < low ≤ high"]),
        ("train.scale=[.nan, 1]", ["train.scale"]),
        ("scenario.setting=overlap", ["scenario.setting", "'overlapped'", "'overlap'"]),
        ("scenario.task=15", ["Setting scenario.task: expected '15-1', '6-2-3', 'offline', or class lists, found 15."]),
        ("scenario.task=[1, 2]", ["scenario.task: expected", "found [1, 2]"]),
        ("scenario.order=3", ["scenario.order: expected order of the classes", "found 3"]),
        ("method.window=4", ["method", "odd"]),
        ("method.clip=[2, 1]", ["method", "low ≤ high"]),
        ("method.normalise=true", ["method", "margin ≤ 2"]),
        ("method.lambda_class=1.5", ["method: with fairness importance", "found 1.5", "raise gamma"]),
        ("method.cap_assign=true", ["Unknown setting 'cap_assign' in method.", "cap_assigned"]),
        ("method.gamma=-1", ["method.gamma", "greater than or equal to 0"]),
        ("model.width=0", ["model.width", "greater than or equal to 4"]),
        ("model.width=6", ["model.width", "multiple of 4", "found 6"]),
        ("data.ignore_colour=3", ["ignore_colour"]),
        ("method=null", ["method"]),
        ("method=[1]", ["method"]),
        ("optim.lr=.inf", ["optim.lr", "finite"]),
        ("optim.lr=.nan", ["optim.lr"]),
        ("train.epochs=.inf", ["train.epochs", "finite"]),
    ],
)
def test_wrong_values(setting, words):
    text = message("demo", [setting])
    for word in words:
        assert word in text
    assert ".str" not in text.partition(":")[0]  # pydantic's own names of union members are no settings


@pytest.mark.parametrize("missing", ["data", "model", "method"])
def test_a_missing_part_lists_the_choices(tmp_path, missing):
    tree = {"data": "scenes", "model": "small", "method": "finetune"}
    del tree[missing]
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(tree))
    assert f"has no {missing}; expected one of: " in message(path)


def test_a_part_without_a_name(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("data: scenes\nmodel: {width: 8}\nmethod: finetune\n")
    assert "The model has no name; expected one of: small" in message(path)


def test_unknown_recipe():
    assert message("dmo").startswith("Unknown recipe 'dmo'. Did you mean 'demo'? 'faircl recipes' lists them all.")
    assert "Cannot read nowhere.yaml" in message("nowhere.yaml")


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n", "3\n"])
def test_files_that_hold_no_settings(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert "holds no settings" in message(path)


@pytest.mark.parametrize("text", ["a: [1, 2\nb: 3", "a: b: c", "\t- x", "a: &x 1\nb: *y", "a: \x00"])
def test_broken_yaml(tmp_path, text):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert "is not valid YAML" in message(path)


def test_a_key_given_twice_is_named_with_its_lines(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("base: demo\ntrain:\n  epochs: 3\n  batch: 8\n  epochs: 5\n")
    assert "key 'epochs' is given twice, first at line 3 and again at line 5, column 3" in message(path)
    assert "key 'lr' is given twice" in message("demo", ["optim={lr: 0.1, momentum: 0, lr: 0.2}"])
    assert "key 'a' is given twice" in message("demo", ["scenario.task=[[x], [{a: 1, a: 1}]]"])


def test_a_merged_key_may_be_changed(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("base: demo\neval:\n  <<: {batch: 3, examples: 2}\n  batch: 5\n")
    config = load_config(str(path))
    assert (config.eval.batch, config.eval.examples) == (5, 2)


def test_not_text(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xff\xfe\x00\x80")
    assert "Cannot read" in message(path)
    assert "Cannot read" in message(tmp_path.with_name("x.yaml"))


def test_keys_that_are_no_words(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("base: demo\n1: 2\n")
    message(path)


@pytest.mark.parametrize("base", [3, ["demo"], "dmo", "gone.yaml"])
def test_bad_base(tmp_path, base):
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump({"base": base}))
    assert str(base).split(".")[0] in message(path)


def test_recipes_in_a_circle(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.yaml").write_text("base: sub/b.yaml\n")
    (tmp_path / "sub/b.yaml").write_text("base: ../a.yaml\n")
    (tmp_path / "self.yaml").write_text("base: self.yaml\n")
    assert "refer to each other in a circle" in message(tmp_path / "a.yaml")
    assert "refer to each other in a circle" in message(tmp_path / "self.yaml")
