"""Recipes of the paper's tables: its settings, a run for every row of FairCL, and no claim of having reproduced any.

Every cell of the main tables has a second recipe, with FairCL's defaults, which no table prints.

Those of other methods are in test_recipes_methods.py.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from recipe_page import method_tables, page_tables

from faircl.config.published import published, tables
from faircl.config.recipes import recipe_names, recipe_tree
from faircl.config.run import load_config
from faircl.errors import UserError
from faircl.methods.faircl import FairCLConfig, FairCLPaperConfig
from faircl.scenario.tasks import step_sizes

TREES = {name: recipe_tree(name) for name in recipe_names()}
BENCHMARKS = [name for name, tree in TREES.items() if tree["data"]["name"] in ("ade", "cityscapes", "voc")]
PAPER = [name for name in BENCHMARKS if TREES[name]["method"]["name"] in ("faircl-paper", "joint")]
DEFAULT = [name for name in BENCHMARKS if TREES[name]["method"]["name"] == "faircl"]
PLAIN = [name for name in TREES if name not in BENCHMARKS]
RUNS = [name for name in PAPER if not name.endswith("-joint")]
STATUS = "published, not yet reproduced here"
MAIN = ("faircl", "faircl-paper", "finetune", "joint")
"""Methods whose recipes are listed by default."""

SHARED = {
    "scenario": {"setting": "overlapped", "order": None},
    "optim": {"name": "sgd", "momentum": 0.9, "weight_decay": 1e-4, "schedule": "poly", "power": 0.9},
    "train": {"batch": 24, "crop": 512, "scale": (0.5, 2.0), "precision": "bf16", "workers": 8},
    "eval": {"convention": "plop"},
}
OWN = {
    "ade": {
        "data": {"train": "training", "test": "validation", "root": None},
        "scenario": {"protocol": None},
        "optim": {"lr": 0.01, "later_lr": 0.001},
        "train": {"epochs": 60, "later_epochs": 60},
    },
    "cityscapes": {
        "data": {"train": "train+val", "test": "train+val", "root": None},
        "scenario": {"protocol": "plop"},
        "optim": {"lr": 0.02, "later_lr": 0.002},
        "train": {"epochs": 90, "later_epochs": 90},
    },
    "voc": {
        "data": {"train": "train_aug", "test": "val", "root": None},
        "scenario": {"protocol": None},
        "optim": {"lr": 0.02, "later_lr": 0.001},
        "train": {"epochs": 30, "later_epochs": 30},
    },
}
NETWORKS = {
    "deeplabv3": {"name": "deeplabv3", "backbone": "resnet101", "stride": 16, "weights": "imagenet"},
    "segformer": {"name": "segformer", "variant": "b3", "weights": "imagenet"},
}
TASKS = {
    "ade": {"100-50", "50-50", "100-10", "100-5"},
    "cityscapes": {"11-5", "11-1", "1-1"},
    "voc": {"15-1", "10-1"},
}
OFF = {
    "1-seg": {"lambda_cluster": 0, "lambda_class": 0, "lambda_cons": 0, "unlabelled": "background"},
    "2-cluster": {"lambda_class": 0, "lambda_cons": 0},
    "3-class": {"lambda_cons": 0},
}


def parts(name: str) -> tuple[str, str, str, str]:
    """Split a name into data set, task, network and variant."""
    data, *words = name.split("-")
    task, words = "-".join(words[:2]), words[2:]
    network = "segformer" if words[:1] == ["segformer"] else "deeplabv3"
    return data, task, network, "-".join(words[network == "segformer" :])


# ---- settings


@pytest.mark.parametrize("name", PAPER)
def test_settings_are_those_of_the_paper_and_its_scripts(name):
    config = load_config(name).model_dump()
    data = config["data"]["name"]
    for expected in (SHARED, OWN[data]):
        for section, settings in expected.items():
            if data == "voc" and config["scenario"]["task"] == "10-1" and "later_epochs" in settings:
                settings = {**settings, "later_epochs": 15}
            assert {key: config[section][key] for key in settings} == settings


@pytest.mark.parametrize("name", RUNS)
def test_a_name_says_data_task_network_and_variant(name):
    data, task, network, variant = parts(name)
    config = load_config(name)
    assert (config.data.name, config.scenario.task, config.model.name) == (data, task, network)
    assert task in TASKS[data]
    assert config.model.model_dump(include=NETWORKS[network].keys()) == NETWORKS[network]
    changes = {"margin": int(variant[7:])} if variant.startswith("margin-") else OFF.get(variant[9:], {})
    assert bool(changes) == bool(variant)
    assert config.method == FairCLPaperConfig(**changes)  # all else is the default


def test_the_defaults_that_the_paper_gives():
    method = load_config("ade-100-50").method
    assert (method.margin, method.momentum, method.queue, method.window) == (10, 0.99, 500, 3)
    assert (method.distance_order, method.embedding) == (2, "decoder")


def test_tasks_have_as_many_steps_as_the_tables_say():
    to_learn = {"ade": 150, "cityscapes": 21, "voc": 20}  # classes, or cities
    for data, tasks in TASKS.items():
        for task in tasks - {"100-5"}:
            assert f"({len(step_sizes(task, to_learn[data]))} steps)" in tables()[f"{data}-{task}"].title


def test_every_task_has_a_recipe_for_both_networks():
    plain = {parts(name)[:3] for name in RUNS if not parts(name)[3]}
    assert plain == {(data, task, network) for data, tasks in TASKS.items() for task in tasks for network in NETWORKS}


@pytest.mark.parametrize("data", OWN)
def test_joint_training_differs_in_the_method_alone(data):
    joint = load_config(f"{data}-joint").model_dump()
    base = load_config({"ade": "ade-100-50", "cityscapes": "cityscapes-11-5", "voc": "voc-15-1"}[data]).model_dump()
    assert joint.pop("method")["name"] == "joint"
    assert base.pop("method")["name"] == "faircl-paper"
    assert joint == base


# ---- FairCL's defaults on the same tasks


def test_every_cell_of_the_main_tables_has_a_recipe_with_the_defaults():
    tasks = {data: tasks - {"100-5"} for data, tasks in TASKS.items()}
    cells = {(data, task, network, "default") for data in tasks for task in tasks[data] for network in NETWORKS}
    assert Counter(map(parts, DEFAULT)) == Counter(cells)


@pytest.mark.parametrize("name", DEFAULT)
def test_a_recipe_with_the_defaults_differs_from_its_cell_in_the_method_alone(name):
    config, cell = (load_config(one).model_dump() for one in (name, name.removesuffix("-default")))
    own, paper = config.pop("method"), cell.pop("method")
    assert config == cell
    assert own == FairCLConfig().model_dump()
    # A method of another name drops the settings beneath it: those that the paper gives must be the defaults too.
    differing = {"name", "unlabelled", "lambda_replay", "lambda_cluster", "lambda_cons", "lambda_iou", "quota"}
    assert {key for key in own if own[key] != paper[key]} == differing


@pytest.mark.parametrize("name", DEFAULT)
def test_a_recipe_with_the_defaults_says_that_they_were_not_tuned_on_its_data(name):
    assert published(name) is None
    assert TREES[name]["status"] == "no published number, settings transferred, not yet run here"
    assert TREES[name]["about"].endswith("; settings chosen on small real benchmarks, not tuned on this data.")
    cell = TREES[name.removesuffix("-default")]["about"].rstrip(".")
    assert TREES[name]["about"].startswith(f"The default {cell};")


@pytest.mark.parametrize("name", ["1-seg", "2-cluster", "3-class", "4-full"])
def test_the_paper_s_ablation_on_the_scenes(name):
    config, demo = load_config(f"ablation-{name}").model_dump(), load_config("demo").model_dump()
    assert config.pop("method") == FairCLPaperConfig(**OFF.get(name, {})).model_dump()
    assert demo.pop("method") == FairCLConfig(lambda_cluster=0.02).model_dump()  # its network begins at random
    assert config == demo


# ---- published rows


def test_every_row_of_faircl_and_of_joint_training_belongs_to_one_recipe():
    ours = ("Joint", "FairCL", "DeepLab-V3,", "SegFormer,", "Δ")
    paper = [table for table in tables().values() if table.paper]
    rows = [(table.name, row) for table in paper for row in table.rows if row.startswith(ours)]
    used = Counter((entry.table.name, entry.row) for name in PAPER if (p := published(name)) for entry in p.entries)
    assert used == Counter(rows)


@pytest.mark.parametrize("name", RUNS)
def test_a_published_row_is_of_the_recipe_s_task_network_and_terms(name):
    if parts(name)[1] == "100-5":
        assert published(name) is None
        return
    config = load_config(name)
    weights = {term: getattr(config.method, f"lambda_{term}") for term in ("cluster", "class", "cons")}
    terms = " + ".join(f"L_{term}" for term, weight in weights.items() if weight) or "L_seg alone"
    network = {"deeplabv3": "DeepLab-V3", "segformer": "SegFormer"}[config.model.name]
    task = f"{config.data.name}-{config.scenario.task}"
    rows = {
        task: f"FairCL + {network}",
        f"{task}-ablation": f"{network}, {terms}",
        f"{task}-margin": f"Δ = {config.method.margin:g}",
        f"{task}-groups": f"{network}, {terms}",
        f"{task}-groups-first": f"{network}, {terms}",
    }
    for entry in published(name).entries:
        assert entry.row == rows[entry.table.name]


@pytest.mark.parametrize("data", OWN)
def test_joint_training_stands_in_all_tables_of_its_data(data):
    entries = published(f"{data}-joint").entries
    assert {entry.row for entry in entries} == {"Joint"}
    assert {entry.table.name for entry in entries} == {f"{data}-{task}" for task in TASKS[data] - {"100-5"}}
    assert entries[0].table.name == f"{data}-{load_config(f'{data}-joint').scenario.task}"


# ---- status


@pytest.mark.parametrize("name", PAPER)
def test_nothing_claims_to_be_reproduced(name):
    expected = STATUS if published(name) else "no published number, not yet run here"
    assert recipe_tree(name)["status"] == expected


@pytest.mark.parametrize("name", PLAIN)
def test_recipes_on_scenes_and_folders_have_no_status(name):
    assert not {"status", "published"} & recipe_tree(name).keys()
    assert recipe_tree(name)["data"]["name"] in ("scenes", "folder")


# ---- bases and notes


def test_bases_are_not_listed_but_can_be_built_on(tmp_path):
    assert not [name for name in recipe_names() if name.startswith("_")]
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"base": "_paper-voc", "scenario": {"task": "19-1"}}))
    assert load_config(str(path)).scenario.task == "19-1"


def test_what_a_recipe_says_of_itself_is_not_inherited(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"base": "ade-100-50", "optim": {"lr": 0.5}}))
    tree = recipe_tree(str(path))
    assert not tree.keys() & {"about", "status", "published"}
    assert tree["optim"]["lr"] == 0.5
    assert load_config(str(path)).optim.lr == 0.5


# ---- command line and page


def test_the_list_has_names_status_and_numbers(cli):
    text = cli("recipes").out
    listed = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert listed >= {name for name, tree in TREES.items() if tree["method"]["name"] in MAIN}
    assert text.count(STATUS.removesuffix(" here")) == sum(published(name) is not None for name in PAPER)
    assert [line.strip() for line in text.splitlines() if line.strip() in (*OWN, "scenes")] == ["scenes", *OWN]
    (line,) = (line for line in text.splitlines() if line.split()[:1] == ["ade-100-50"])
    assert "all 36.99" in line


def test_the_list_as_json(cli):
    rows = {row["name"]: row for row in json.loads(cli("recipes", "--json").out)}
    assert list(rows) == recipe_names()
    assert all(row.keys() == {"name", "about", "data", "method", "status", "published"} for row in rows.values())
    assert (rows["demo"]["status"], rows["demo"]["published"]) == (None, [])
    assert rows["voc-15-1"]["published"][0]["numbers"] == {"0-15": 72.0, "16-20": 22.7, "all": 60.3}


def test_one_recipe_is_shown_beside_the_other_methods(cli):
    text = cli("recipes", "ade-100-50").out
    for words in (STATUS, "MiB + AWT", "→  FairCL + DeepLab-V3", "Table 7", "lr 0.01, later 0.001", "convention plop"):
        assert words in text
    assert "\nfaircl train ade-100-50 --root DIR --out runs/ade-100-50\n" in text
    assert "\nfaircl train demo --out runs/demo\n" in cli("recipes", "demo").out
    assert "\nfaircl train folder --root DIR --task TASK --out runs/folder\n" in cli("recipes", "folder").out


def test_one_recipe_as_json(cli):
    found = json.loads(cli("recipes", "voc-15-1", "--json").out)
    assert (found["name"], found["status"], found["data"]) == ("voc-15-1", STATUS, "voc")
    (entry,) = found["published"]
    assert entry["rows"]["PLOP"] == {"0-15": 65.1, "16-20": 21.1, "all": 54.6}
    assert (entry["source"], entry["row"]) == ("Table 4 (tab:voc)", "FairCL + DeepLab-V3")
    assert found["settings"]["method"] == "faircl-paper, margin 10.0, momentum 0.99, queue 500, window 3"
    assert found["command"].startswith("faircl train voc-15-1 ")


@pytest.mark.parametrize("name", ["ade-100-51", "_paper", "_published"])
def test_a_recipe_that_is_not_there(cli, name):
    result = cli("recipes", name)
    assert result.code == 2
    assert f"Unknown recipe '{name}'" in result.err


def test_the_page_shows_the_recipes_as_they_are():
    page = (Path(__file__).parents[2] / "docs/recipes.md").read_text(encoding="utf-8")
    for part in (page_tables(), method_tables()):
        assert part in page, "docs/recipes.md is old: put in what 'python tests/recipe_page.py' prints"


def test_a_base_alone_is_refused_in_one_sentence():
    with pytest.raises(UserError, match="The configuration has no data"):
        load_config("_paper")
