"""Old names of settings: accepted with a warning, wherever they come from."""

import pytest
import yaml

from faircl.config import renamed
from faircl.config.renamed import Renamed, with_new_keys
from faircl.config.run import load_config, parse_config
from faircl.errors import RenamedSetting, UserError
from faircl.runs.folder import RunFolder


@pytest.fixture(autouse=True)
def old_names(monkeypatch):
    entries = (
        Renamed("train", "passes", "epochs"),
        Renamed("optim.parts", "body", "backbone"),
        Renamed("method", "strength", "distill", part="mib"),
        Renamed("", "random_seed", "seed"),
    )
    monkeypatch.setattr(renamed, "RENAMED", entries)


def test_an_override_may_use_the_old_name():
    with pytest.warns(RenamedSetting, match=r"setting train\.passes is now called train\.epochs"):
        assert load_config("demo", ["train.passes=7"]).train.epochs == 7
    with pytest.warns(RenamedSetting, match=r"optim\.parts\.body is now called optim\.parts\.backbone"):
        assert load_config("demo", ["optim.parts.body=0.5"]).optim.parts.backbone == 0.5
    with pytest.warns(RenamedSetting, match="setting random_seed is now called seed"):
        assert load_config("demo", ["random_seed=3"]).seed == 3


def test_a_file_and_a_tree_may_use_the_old_name(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"base": "demo", "train": {"passes": 7}}))  # the base has train.epochs
    with pytest.warns(RenamedSetting):
        config = load_config(str(path))
    assert config.train.epochs == 7
    tree = config.model_dump(mode="json")
    tree["train"]["passes"] = tree["train"].pop("epochs")
    with pytest.warns(RenamedSetting):
        assert parse_config(tree) == config


@pytest.mark.parametrize(
    ("settings", "at"),
    [
        (["method=mib", "method.strength=5"], ()),
        (["method={name: mib, strength: 5}"], ()),
        (["method=ewf", "method.method.name=mib", "method.method.strength=5"], ("method",)),
        (["method={name: ewf, method: {name: mib, strength: 5}}"], ("method",)),
    ],
)
def test_a_part_has_its_own_old_names(settings, at):
    with pytest.warns(RenamedSetting):
        method = load_config("demo", settings).method
    for key in at:
        method = getattr(method, key)
    assert method.distill == 5


def test_other_parts_do_not_have_them():
    with pytest.raises(UserError, match="Unknown setting 'strength' in method"):
        load_config("demo", ["method=plop", "method.strength=5"])


def test_both_names_at_once_are_refused():
    with pytest.raises(UserError, match=r"Setting train\.passes is now called train\.epochs, and both are given"):
        parse_config({"train": {"passes": 1, "epochs": 2}})


def test_new_names_and_saved_runs_are_not_warned_of(recwarn):
    load_config("demo", ["train.epochs=7"])
    assert with_new_keys({"train": {"passes": 1}}, warn=False) == {"train": {"epochs": 1}}
    assert not [one for one in recwarn if one.category is RenamedSetting]


def test_the_command_line_says_it_in_one_line(cli):
    result = cli("config", "show", "demo", "--set", "train.passes=7")
    assert result.code == 0
    assert result.err == (
        "faircl: note: setting train.passes is now called train.epochs; the next version will refuse train.passes\n"
    )
    assert yaml.safe_load(result.out)["train"]["epochs"] == 7


# ---- of today's table


@pytest.fixture
def todays_names(monkeypatch, old_names):
    monkeypatch.undo()


@pytest.mark.parametrize(("old", "new"), [("true", ("tensorboard",)), ("false", ())])
def test_tensorboard_is_one_of_the_loggers(todays_names, old, new):
    with pytest.warns(RenamedSetting, match=r"train\.tensorboard is now called train\.loggers"):
        config = load_config("demo", [f"train.tensorboard={old}"])
    assert config.train.loggers == new


def test_saved_runs_with_the_setting_tensorboard_are_read(todays_names, tmp_path, recwarn):
    tree = load_config("demo").model_dump(mode="json")
    del tree["train"]["loggers"]
    tree["train"]["tensorboard"] = True
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tree))
    assert RunFolder(tmp_path).config().train.loggers == ("tensorboard",)
    assert not [one for one in recwarn if one.category is RenamedSetting]


def test_a_wrong_value_is_one_of_the_new_setting(todays_names):
    with pytest.warns(RenamedSetting), pytest.raises(UserError, match=r"train\.loggers"):
        load_config("demo", ["train.tensorboard={a: 1}"])


@pytest.mark.parametrize(
    ("given", "loggers"), [("wandb", ("wandb",)), ("[mlflow, wandb, mlflow]", ("mlflow", "wandb")), ("[]", ())]
)
def test_loggers_are_a_name_or_a_list(given, loggers):
    assert load_config("demo", [f"train.loggers={given}"]).train.loggers == loggers


@pytest.mark.parametrize("given", ["[wand]", "comet", "[[wandb]]", "3", "{a: 1}", "null"])
def test_other_loggers_are_refused(given):
    with pytest.raises(UserError, match=r"Setting train\.loggers"):
        load_config("demo", [f"train.loggers={given}"])
