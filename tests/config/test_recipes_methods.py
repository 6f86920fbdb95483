"""Recipes of other methods: named after what they run, with the settings that were published, each row in one recipe.

``PUBLISHED`` is typed from the publications and their scripts, apart from the recipes.
"""

import json
from collections import Counter

import pytest
from grids import grid

from faircl.config.published import published, tables
from faircl.config.recipes import recipe_names, recipe_tree
from faircl.config.run import load_config
from faircl.registry import METHODS

DATA = ("ade", "cityscapes", "voc")
REFERENCES = ("faircl", "faircl-paper", "joint")
TREES = {name: recipe_tree(name) for name in recipe_names()}
OTHERS = [
    name for name, tree in TREES.items() if tree["data"]["name"] in DATA and tree["method"]["name"] not in REFERENCES
]
STEPS = [name for name in TREES if name.startswith("demo-steps")]

TASKS = {
    "ade": {"100-50", "50-50", "100-10"},
    "cityscapes": {"11-5", "11-1", "1-1"},
    "voc": {"15-1", "10-1"},
}
ROW = {
    "lwf": "LWF",
    "lwf-mc": "LWF-MC",
    "ilt": "ILT",
    "mib": "MiB",
    "sdr": "SDR",
    "plop": "PLOP",
    "rcil": "RCIL",
    "reminder": "REMINDER",
    "ssul": "SSUL",
    "ssul-m": "SSUL-M",
    "sats": "SATS",
    "awt": "MiB + AWT",
}
"""What tables call a method; a network behind a comma is not the one that all others have there."""

PUBLISHED = {
    # Weights by method and data set; a task where it differs from the data set's others.
    ("lwf", "*"): {"distill": 100},
    ("lwf-mc", "*"): {"distill": 10},
    ("ilt", "*"): {"distill": 100, "features": 100},
    ("mib", "ade"): {"distill": 10},
    ("mib", "cityscapes"): {"distill": 10},
    ("mib", "voc-15-1"): {"distill": 100},
    ("mib", "voc-10-1"): {"distill": 10},
    ("sdr", "*"): {"distill": 100, "match": 1e-2, "attract": 1e-3, "repel": 1e-3, "sparse": 1e-3},
    ("plop", "voc"): {"pod": 0.01, "pod_logits": 5e-4, "threshold": 0.001, "doubt": "published"},
    ("plop", "ade"): {"pod": 1e-3, "pod_logits": 1e-5, "threshold": 0.001, "doubt": "published"},
    ("plop", "cityscapes-11-5"): {"pod": 0.01, "pod_logits": 5e-4, "doubt": "published"},
    ("plop", "cityscapes-11-1"): {"pod": 1e-4, "pod_logits": 1e-4, "doubt": "published"},
    ("plop", "cityscapes-1-1"): {"pod": 1e-4, "pod_logits": 1e-3, "doubt": "published"},
    ("rcil", "voc"): {"distill": 100, "spatial": 0.01, "spatial_logits": 5e-4, "channel": 0.01},
    ("rcil", "ade"): {"distill": 100, "spatial": 5e-6, "spatial_logits": 5e-7, "channel": 5e-6},
    ("rcil", "cityscapes"): {"spatial": 5e-4, "spatial_logits": 1e-4, "channel": 1e-4, "channel_embedding": 0},
    ("reminder", "voc"): {
        "pod": 0.01,
        "pod_logits": 5e-4,
        "threshold": 0.001,
        "similarity": 0.5,
        "delta": 0,
        "doubt": "published",
    },
    ("reminder", "ade"): {
        "pod": 1e-3,
        "pod_logits": 1e-5,
        "threshold": 0.001,
        "similarity": 0.5,
        "delta": 1,
        "doubt": "published",
    },
    ("ssul", "*"): {"threshold": 0.7, "transfer": True},
    ("ssul-m", "*"): {"threshold": 0.7, "transfer": True},
    ("sats", "*"): {"distill": 20, "attention": 20, "threshold": 0.001, "doubt": "published"},
    ("awt", "*"): {"share": 0.25},
    ("ewf", "*"): {"freeze_old": True},
    ("dft", "*"): {},
}
INSIDE = {("ewf", "ade-100-10"): 100}
"""Weight of the distillation in MiB inside a wrapper, where it is not 10."""

LENGTH = {
    # Rate, later rate, epochs, later epochs, batch.
    ("*", "voc"): (0.01, 0.001, 30, 30, 24),
    ("*", "ade"): (0.01, 0.001, 60, 60, 24),
    ("*", "cityscapes"): (0.01, 0.001, 50, 50, 24),
    ("plop", "voc-10-1"): (0.01, 0.001, 30, 10, 24),
    ("sdr", "voc"): (0.001, 0.0001, 30, 30, 8),
    ("sdr", "ade"): (0.001, 0.0001, 60, 60, 4),
    ("rcil", "voc"): (0.02, 0.001, 30, 30, 24),
    ("rcil", "cityscapes"): (0.02, 0.002, 50, 50, 24),
    ("rcil", "cityscapes-11-1"): (0.02, 0.004, 50, 50, 24),
    ("reminder", "voc"): (0.01, 0.001, 30, 30, 16),
    ("reminder", "ade"): (0.01, 0.001, 60, 70, 10),
    ("reminder", "ade-100-50"): (0.01, 0.0008, 60, 70, 10),
    ("ssul", "voc"): (0.01, 0.01, 50, 50, 32),
    ("ssul", "ade"): (0.01, 0.05, 100, 100, 24),
    ("ssul-m", "voc"): (0.01, 0.01, 50, 50, 32),
    ("ssul-m", "ade"): (0.01, 0.05, 100, 100, 24),
    ("awt", "voc"): (0.02, 0.001, 30, 30, 24),
    ("awt", "ade"): (0.02, 0.001, 60, 60, 24),
    ("dft", "voc"): (0.02, 0.0005, 30, 30, 24),
    ("dft", "ade"): (0.02, 0.1, 30, 60, 24),
}
MEMORY = {("ssul-m", "voc"): 100, ("ssul-m", "ade"): 300}


def parts(name: str) -> tuple[str, str, str]:
    """Split a name into data set, task and method."""
    data, first, second, method = name.split("-", 3)
    return data, f"{first}-{second}", method


def of(table: dict, name: str, default=None):
    """Look up a recipe's method: by task, by data set, for all; then what holds for all methods."""
    data, task, method = parts(name)
    keys = [(who, where) for who in (method, "*") for where in (f"{data}-{task}", data, "*")]
    return next((table[key] for key in keys if key in table), default)


# ---- names and settings


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_says_data_task_and_method(name):
    data, task, method = parts(name)
    config = load_config(name)
    assert (config.data.name, config.scenario.task, config.method.name) == (data, task, method)
    assert method.split("-")[0] in TREES[name]["about"].lower()
    assert f"{task}" in TREES[name]["about"]
    assert config.scenario.protocol == ("plop" if data == "cityscapes" else None)


@grid("name", OTHERS, quick=set(OTHERS[::4]).__contains__)
def test_a_recipe_differs_from_faircl_s_in_method_and_length_alone(name):
    data, task, method = parts(name)
    ours, own = (load_config(one).model_dump() for one in (name, f"{data}-{task}"))
    for config in (ours, own):
        for section, keys in {
            "optim": ("lr", "later_lr", "parts"),
            "train": ("epochs", "later_epochs", "batch"),
        }.items():
            for key in keys:
                del config[section][key]
        del config["method"]
        if method.startswith("ssul"):
            del config["train"]["crop"], config["memory"]
        if method == "sats":
            del config["model"]
    assert ours == own


@pytest.mark.parametrize("name", OTHERS)
def test_weights_and_length_are_those_published(name):
    config = load_config(name)
    method, train, optim = config.method.model_dump(), config.train, config.optim
    expected = of(PUBLISHED, name)
    assert {key: method[key] for key in expected} == expected
    assert (optim.lr, optim.later_lr, train.epochs, train.later_epochs, train.batch) == of(LENGTH, name)
    assert config.memory.images == of(MEMORY, name, 0)
    assert config.memory.share == 0.5
    assert config.memory.labels == ("all" if config.memory.images else "step")
    if method["name"] in ("awt", "ewf"):
        assert (method["method"]["name"], method["method"]["distill"]) == ("mib", of(INSIDE, name, 10))
    frozen_later = method["name"] in ("ssul", "ssul-m")
    assert optim.parts.backbone == (0.1 if frozen_later else 1)
    assert train.crop == (513 if frozen_later else 512)
    assert optim.clip == 0


@pytest.mark.parametrize("name", OTHERS)
def test_settings_that_were_published_are_written_down_not_left_to_defaults(name):
    expected = of(PUBLISHED, name).keys() - {"transfer", "freeze_old"}
    assert expected <= TREES[name]["method"].keys()


@pytest.mark.slow
def test_sats_has_its_own_network():
    for name in OTHERS:
        model = load_config(name).model
        if parts(name)[2] == "sats":
            assert (model.name, model.variant, model.weights) == ("segformer", "b2", "imagenet")
            assert TREES[name]["about"].endswith("SegFormer-B2.")


# ---- coverage


@pytest.mark.parametrize("method", [name for name in METHODS.builtin if name not in (*REFERENCES, "finetune")])
def test_every_method_has_recipes_on_voc_ade_and_the_scenes(method):
    for data in ("ade", "voc"):
        assert {f"{data}-{task}-{method}" for task in TASKS[data]} <= set(OTHERS)
    assert f"demo-steps-{method}" in STEPS


def test_cityscapes_has_the_methods_that_act_on_domain_steps():
    found = {parts(name)[1:] for name in OTHERS if name.startswith("cityscapes-")}
    whole = {
        (task, method) for task in TASKS["cityscapes"] for method in ("lwf", "lwf-mc", "ilt", "mib", "plop", "rcil")
    }
    assert found == whole | {("11-5", method) for method in ("sdr", "sats", "ewf", "dft")}


# ---- published rows


def test_every_row_of_a_method_belongs_to_the_recipe_of_its_task():
    expected = []
    for table in tables().values():
        task = table.name if table.paper else table.name.rpartition("-")[0]
        for row in table.rows:
            label, _, network = row.partition(", ")
            methods = [method for method, known in ROW.items() if known == label]
            if methods and network in ("", "SegFormer-B2" if label == "SATS" else ""):
                expected.append((f"{task}-{methods[0]}", table.name, row))
    used = [(name, e.table.name, e.row) for name in OTHERS if (p := published(name)) for e in p.entries]
    assert Counter(used) == Counter(expected)


@pytest.mark.parametrize("name", OTHERS)
def test_the_paper_s_row_comes_first_and_nothing_claims_to_be_reproduced(name):
    found = published(name)
    if found is None:
        assert TREES[name]["status"] == "no number at hand, not yet run here"
        return
    assert TREES[name]["status"] == "published, not yet reproduced here"
    origins = [entry.table.paper for entry in found.entries]
    assert origins == sorted(origins, reverse=True)


# ---- the scenes in three steps


def test_demo_steps_differ_in_method_clipping_and_the_rate_of_lone_heads_alone():
    own = load_config("demo-steps").model_dump()
    assert own["scenario"]["task"] == "4-3-3"
    for name in STEPS:
        config, reference = load_config(name).model_dump(), json.loads(json.dumps(own))
        if config["model"]["name"] == "segformer":
            assert (config["model"]["variant"], config["model"]["weights"]) == ("b0", "none")
            assert "SegFormer-B0" in TREES[name]["about"]
            reference = load_config("demo-steps-sats").model_dump()
        if config["method"]["name"] == "joint":
            reference["train"]["epochs"] = config["train"]["epochs"]
        for section in ("method", "memory"):
            del config[section], reference[section]
        heads_only = config["optim"]["later_lr"] is not None
        assert heads_only == (name.split("-")[2:3] in (["dft"], ["ssul"])), name
        for one in (config, reference):
            del one["optim"]["clip"], one["optim"]["later_lr"]
        assert json.loads(json.dumps(config)) == json.loads(json.dumps(reference)), name


def test_demo_steps_are_named_after_their_method():
    for name in STEPS:
        rest = name.removeprefix("demo-steps").removeprefix("-segformer").removeprefix("-")
        assert load_config(name).method.name == (rest or "faircl")
    assert {"finetune", "joint", "faircl-paper"} <= {load_config(name).method.name for name in STEPS}


def test_joint_demo_steps_have_as_many_iterations_as_all_steps(cli):
    data = load_config("demo-steps").data
    sizes = ("--set", f"data.images={data.images}", "--set", "data.test_images=1")
    shown = json.loads(cli("scenario", "show", "--data", "scenes", "--task", "4-3-3", *sizes, "--json").out)
    images = [step["images"] for step in shown["steps"]]
    first, later = (load_config("demo-steps").train.model_dump()[key] for key in ("epochs", "later_epochs"))
    for name in ("demo-steps-joint", "demo-steps-segformer-joint"):
        assert load_config(name).train.epochs * data.images == first * images[0] + later * sum(images[1:])


# ---- command line


def test_the_list_names_other_methods_without_their_recipes(cli):
    text = cli("recipes").out
    assert "voc-15-1-plop" not in text
    (line,) = (line for line in text.splitlines() if line.startswith("other methods on cityscapes: "))
    assert line.endswith(": lwf, lwf-mc, ilt, mib, plop, rcil, sats, ewf, dft, sdr")
    assert "faircl recipes --method plop" in text


def test_the_list_of_a_method_and_of_a_data_set(cli):
    plop = cli("recipes", "--method", "plop").out
    names = {line.split()[0] for line in plop.splitlines() if line.strip()}
    assert names & set(TREES) == {name for name, tree in TREES.items() if tree["method"]["name"] == "plop"}
    assert "all 54.6" in plop
    assert "other methods" not in plop
    voc = cli("recipes", "--data", "voc").out
    names = {line.split()[0] for line in voc.splitlines() if line.strip()}
    assert names & set(TREES) == {name for name, tree in TREES.items() if tree["data"]["name"] == "voc"}
    both = json.loads(cli("recipes", "--data", "voc", "--method", "ssul", "--json").out)
    assert [row["name"] for row in both] == ["voc-10-1-ssul", "voc-15-1-ssul"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--method", "plpo"], "Unknown method among the recipes 'plpo'. Did you mean 'plop'?"),
        (["--data", "vco"], "Unknown data set among the recipes 'vco'. Did you mean 'voc'?"),
        (["--data", "cityscapes", "--method", "awt"], "No recipe of method awt is on data set cityscapes"),
        (["ade-100-50", "--method", "plop"], "leave them out to see ade-100-50"),
    ],
)
def test_a_choice_that_leaves_nothing_is_refused_in_one_sentence(cli, args, words):
    result = cli("recipes", *args)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert words in result.err


def test_one_recipe_shows_the_method_inside_and_the_memory(cli):
    assert "awt, method (mib, distill 10.0), share 0.25" in cli("recipes", "ade-100-50-awt").out
    text = cli("recipes", "voc-15-1-ssul-m").out
    assert "SSUL's public tables: Pascal VOC 15-1" in text
    assert "→  SSUL-M" in text
    assert "100 images, 0.5 of every later batch, all labels so far" in text
