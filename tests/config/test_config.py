"""Configuration: recipes, inheritance, --set, and a sentence for every mistake."""

import pytest
import yaml
from grids import grid

from faircl.config.recipes import recipe_names, recipe_tree
from faircl.config.run import RunConfig, load_config, parse_config
from faircl.errors import RenamedSetting, UserError

MINIMAL = {"data": "scenes", "model": "small", "method": "finetune"}


def write(folder, name: str, tree: object) -> str:
    path = folder / name
    path.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
    return str(path)


def message(call, *args) -> str:
    with pytest.raises(UserError) as caught:
        call(*args)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "!", "?"))
    return text


# ---- recipes


@grid("name", recipe_names(), quick=set(recipe_names()[::4]).__contains__)
def test_every_packaged_recipe_loads_says_what_it_is_and_survives_yaml(name):
    config = load_config(name)
    assert recipe_tree(name)["about"]
    assert parse_config(yaml.safe_load(config.to_yaml())) == config


def test_the_recipes_of_the_demo_are_there():
    # The comparison is fair only if all four differ in nothing but the method and the length of joint training.
    names = ("demo", "demo-finetune", "demo-unfair", "demo-joint")
    configs = {name: load_config(name).model_dump() for name in names}
    for config in configs.values():
        config.pop("method")
        config["train"].pop("epochs")
    assert all(config == configs["demo"] for config in configs.values())


def test_joint_demo_has_as_many_iterations_as_both_steps():
    demo, joint = load_config("demo").train, load_config("demo-joint").train
    assert joint.epochs == demo.epochs + demo.later_epochs


def test_defaults_fill_a_minimal_configuration():
    config = parse_config(MINIMAL)
    assert isinstance(config, RunConfig)
    assert (config.seed, config.scenario.task, config.optim.name, config.data.size) == (0, None, "sgd", 96)


@pytest.mark.parametrize(
    "settings",
    [
        ["scenario.task=[[road, 3], [car]]", "seed=7", "optim.later_lr=0.001", "train.scale=[0.9, 1.1]"],
        ["data={name: folder, root: some/where, ignore_colour: [1, 2, 3]}", "optim.parts.backbone=0"],
        ["scenario.order=random:3", "method.clip=[0.5, 2]", "method.fairness=kl", "model.dropout=0.25"],
    ],
)
def test_yaml_round_trip_is_exact(settings):
    config = load_config("demo", settings)
    again = parse_config(yaml.safe_load(config.to_yaml()))
    assert again == config
    assert again.to_yaml() == config.to_yaml()


# ---- inheritance


def test_a_file_changes_only_what_it_names(tmp_path):
    config = load_config(write(tmp_path, "a.yaml", {"base": "demo", "method": {"gamma": 0.25}, "train": {"batch": 4}}))
    demo = load_config("demo")
    assert config.method == demo.method.model_copy(update={"gamma": 0.25})
    assert config.train == demo.train.model_copy(update={"batch": 4})
    assert config.optim == demo.optim


def test_another_method_drops_the_settings_of_the_one_beneath(tmp_path):
    base = write(tmp_path, "base.yaml", {"base": "demo", "method": {"gamma": 0.25}})
    for method in ("finetune", {"name": "finetune"}, {"name": "finetune", "init": "background"}):
        config = load_config(write(tmp_path, "b.yaml", {"base": base, "method": method}))
        assert config.method.name == "finetune"
    assert config.method.init == "background"
    same = load_config(write(tmp_path, "c.yaml", {"base": base, "method": {"name": "faircl", "sigma_x": 0.2}}))
    assert (same.method.gamma, same.method.sigma_x) == (0.25, 0.2)


def test_another_data_set_drops_the_settings_of_the_one_beneath():
    config = load_config("demo", ["data.name=folder", "data.root=x"])
    assert (config.data.name, str(config.data.root)) == ("folder", "x")


@pytest.mark.parametrize("settings", [["optim.name=adamw", "optim.lr=0.3"], ["optim.lr=0.3", "optim.name=adamw"]])
def test_another_optimiser_keeps_the_other_settings_of_optim(settings, tmp_path):
    optim = load_config("demo", [*settings, "optim.weight_decay=0.5"]).optim
    assert (optim.name, optim.lr, optim.weight_decay) == ("adamw", 0.3, 0.5)
    assert load_config("demo", ["optim.name=sgd"]) == load_config("demo")
    assert load_config(write(tmp_path, "a.yaml", {"base": "demo", "optim": {"name": "adamw"}})).optim.lr == 0.05


@pytest.mark.parametrize(
    "settings", [["method.name=finetune", "method.init=background"], ["method.init=background", "method.name=finetune"]]
)
def test_the_order_of_settings_does_not_matter(settings):
    method = load_config("demo", settings).method
    assert (method.name, method.init) == ("finetune", "background")


def test_a_bare_name_beneath_can_be_refined(tmp_path):
    path = write(tmp_path, "a.yaml", {**MINIMAL, "method": "faircl"})
    assert load_config(path, ["method.gamma=0.25"]).method.gamma == 0.25
    child = write(tmp_path, "b.yaml", {"base": path, "model": {"width": 8}})
    assert load_config(child).model.width == 8


def test_three_levels_and_a_base_beside_the_file(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    write(tmp_path, "one.yaml", {"base": "demo", "seed": 1, "train": {"batch": 2}})
    write(tmp_path, "two.yaml", {"base": "one.yaml", "train": {"crop": 40}})
    three = write(tmp_path / "deep", "three.yaml", {"base": "../two.yaml", "seed": 3})
    config = load_config(three)
    assert (config.seed, config.train.batch, config.train.crop, config.train.epochs) == (3, 2, 40, 24)
    monkeypatch.chdir(tmp_path / "deep")
    assert load_config("three.yaml") == config


# ---- --set


def test_set_parses_yaml_values():
    config = load_config(
        "demo",
        ["optim.lr=1e-3", "train.flip=false", "train.scale=[1, 1.5]", "train.later_epochs=null", "scenario.task=3-7",
         "optim.parts.backbone=0.1", " seed =5", "data.train=a=b"],
    )  # fmt: skip
    assert config.optim.lr == 0.001
    assert config.train.flip is False
    assert config.train.scale == (1.0, 1.5)
    assert config.train.later_epochs is None
    assert config.scenario.task == "3-7"
    assert config.optim.parts.backbone == 0.1
    assert config.optim.parts.decoder == 1.0
    assert config.seed == 5
    assert config.data.train == "a=b"


def test_the_last_of_two_settings_counts():
    assert load_config("demo", ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize("bad", ["seed", "=3", "optim..lr=1", ".seed=1", "optim.=1", ""])
def test_set_without_key_or_value(bad):
    assert message(load_config, "demo", [bad]).startswith(f"Cannot read --set {bad}: expected key=value")


def test_set_with_broken_yaml():
    assert "expected YAML" in message(load_config, "demo", ["train.scale=[1, 2"])


def test_names_before_void_became_ignore_are_accepted_for_a_version():
    with pytest.warns(RenamedSetting, match=r"data\.void_colour is now called data\.ignore_colour"):
        config = load_config("folder", ["data.root=x", "data.void_colour=[1, 2, 3]"])
    assert config.data.ignore_colour == (1, 2, 3)
    with pytest.warns(RenamedSetting, match=r"data\.void is now called data\.ignore_value"):
        config = load_config("folder", ["data={name: huggingface, path: x, void: 7}"])
    assert config.data.ignore_value == 7
