"""``faircl bench step``: a table for people, JSON for scripts, one sentence for what cannot be timed."""

import json

import pytest
import torch

from faircl.config.run import load_config
from faircl.engine.network import build_model

TINY = ("--batch", 2, "--size", 32, "--precision", "fp32", "--iterations", 1, "--rounds", 1)
NARROW = "{name: small, width: 8, embedding: 8}"
ROW = {
    "model",
    "method",
    "parameters",
    "milliseconds",
    "spread",
    "images_per_second",
    "peak_gib",
    "time_ratio",
    "memory_ratio",
    "speed",
    "passes",
    "extra",
}
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has a peak")


def parsed(result):
    assert result.code == 0, result.err
    assert "NaN" not in result.out
    return json.loads(result.out)


def real_count(*settings, classes=151):
    """The parameters of a network that has grown to so many classes, one by one."""
    model = build_model(load_config("demo", settings))
    model.classifier.grow(classes)
    return sum(parameter.numel() for parameter in model.parameters())


@on_cpu
def test_json(cli):
    found = parsed(cli("bench", "step", "--model", "small", *TINY, "--json"))
    rows = found.pop("rows")
    environment = found.pop("environment")
    assert found == {
        "classes": 151,
        "old": 101,
        "batch": 2,
        "size": 32,
        "precision": "fp32",
        "iterations": 1,
        "rounds": 1,
    }
    assert environment["torch"] == torch.__version__.partition("+")[0]
    assert environment["gpu"] == "none"
    assert [(row["model"], row["method"]) for row in rows] == [("small", "cross-entropy"), ("small", "FairCL")]
    for row in rows:
        assert set(row) == ROW
        assert row["milliseconds"] > 0
        assert row["spread"] == [row["milliseconds"], row["milliseconds"]]  # one round
        assert row["images_per_second"] == pytest.approx(2 / row["milliseconds"] * 1e3)
        assert row["peak_gib"] is None
        assert row["memory_ratio"] is None
        assert row["parameters"] == real_count()
    assert rows[0]["time_ratio"] == 1
    assert rows[1]["time_ratio"] == pytest.approx(rows[1]["milliseconds"] / rows[0]["milliseconds"])


@pytest.mark.slow
def test_times_are_those_of_a_network_that_computes(cli):
    """Forward and backward passes of a network take longer than a clock takes to be read."""
    rows = parsed(cli("bench", "step", "--model", NARROW, *TINY, "--json"))["rows"]
    assert all(row["milliseconds"] > 0.5 for row in rows)


@pytest.mark.slow
def test_several_networks_and_rounds(cli):
    several = ("--model", "small", "--model", NARROW, "--classes", 5, "--old", 3)
    found = parsed(cli("bench", "step", *several, *TINY, "--rounds", 2, "--json"))
    assert (found["classes"], found["old"], found["rounds"], found["iterations"]) == (5, 3, 2, 1)
    rows = found["rows"]
    assert [row["method"] for row in rows] == ["cross-entropy", "FairCL"] * 2
    assert [row["time_ratio"] for row in rows[::2]] == [1, 1]
    narrow = real_count("model.width=8", "model.embedding=8", classes=5)
    assert [row["parameters"] for row in rows] == [real_count(classes=5)] * 2 + [narrow] * 2
    for row in rows:
        low, high = row["spread"]
        assert 0 < low <= row["milliseconds"] <= high


def test_table(cli):
    result = cli("bench", "step", "--model", NARROW, "--classes", 7, "--old", 4, *TINY)
    assert result.code == 0, result.err
    assert "small width=8 embedding=8; 7 classes, 4 of them old; batch 2 of 32×32, fp32" in result.out
    lines = result.out.splitlines()
    (top,) = (k for k, line in enumerate(lines) if line.split()[:2] == ["method", "passes"])
    assert lines[top].split() == [
        "method",
        "passes",
        "ms",
        "from",
        "to",
        "images/s",
        "peak",
        "GiB",
        "time",
        "memory",
        "kept",
    ]
    rows = [line.split() for line in lines[top + 1 : top + 3]]
    assert [row[0] for row in rows] == ["cross-entropy", "FairCL"]
    assert rows[0][7] == "1.000×"
    assert float(rows[1][7].rstrip("×")) > 0
    for row in rows:
        assert row[1] == "1"
        assert float(row[3]) == float(row[2]) == float(row[4])
        assert float(row[5]) > 0
        if not torch.cuda.is_available():
            assert (row[6], row[8]) == ("–", "–")


@pytest.mark.slow
def test_table_of_several_networks_names_them(cli):
    result = cli("bench", "step", "--model", "small", "--model", NARROW, "--classes", 7, "--old", 4, *TINY)
    assert result.code == 0, result.err
    assert result.out.count("small width=8 embedding=8") == 2
    assert "network" in result.out


def test_joint_training_has_no_later_step(cli):
    result = cli("bench", "methods", "--method", "joint", "--model", "small")
    assert (result.code, result.err.strip()) == (2, "faircl: Method 'joint' has no later step to time; leave it out.")


@pytest.mark.slow
def test_settings_reach_the_network_and_the_method(cli):
    wide = ("--set", "model.width=8", "--set", "method.fairness=kl", "--set", "optim.name=adamw")
    rows = parsed(cli("bench", "step", "--model", "small", *wide, *TINY, "--json"))["rows"]
    assert rows[0]["parameters"] == real_count("model.width=8")


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "key"), [("train.batch=4", "batch"), ("train.crop=64", "size")])
def test_what_is_printed_is_what_was_timed(setting, key, cli):
    """A size that is given twice is refused, or the one that was used is the one that is said."""
    result = cli("bench", "step", "--model", NARROW, *TINY, "--set", setting, "--json")
    assert result.code == 2 or json.loads(result.out)[key] == int(setting.partition("=")[2])


# ---- refused

WRONG = [
    (("--model", "smal"), "Unknown model 'smal'. Did you mean 'small'?"),
    (("--model", "small", "--model", "{name: segfromer}"), "Did you mean 'segformer'?"),
    (("--model", "{name: small, wdth: 8}"), "Unknown setting 'wdth' in model. Did you mean 'width'?"),
    (("--model", "{name: "), "Cannot read"),
    (("--model", "3"), "model"),
    (("--model", ""), "model"),
    (("--model", "small", "--old", 151), "found 151 old of 151"),
    (("--model", "small", "--old", 9, "--classes", 8), "found 9 old of 8"),
    (("--model", "small", "--old", 1), "at least two old classes"),
    (("--model", "small", "--set", "method.name=joint"), "changes FairCL's settings here, found method.name=joint"),
    (("--model", "small", "--set", "method=finetune"), "found method.name=finetune"),
    (("--model", "small", "--precision", "fp8"), "train.precision"),
    (("--model", "small", "--batch", 0), "train.batch"),
    (("--model", "small", "--size", 4), "train.crop"),
    (("--model", "small", "--set", "method.marign=2"), "Did you mean 'margin'?"),
    (("--model", "small", "--set", "train.checkpointing=maybe"), "train.checkpointing"),
    (("--model", "{name: deeplabv3, backbone: mobilenet_v2}", "--batch", 1), "cannot train on batches of 1 windows"),
]


@pytest.mark.parametrize(("args", "words"), WRONG, ids=[" ".join(map(str, args)) for args, _ in WRONG])
def test_what_cannot_be_timed_is_one_sentence(args, words, refused):
    refused(words, "bench", "step", *TINY, *args)


@on_cpu
def test_fp16_wants_a_gpu(refused):
    refused("fp16 needs a GPU", "bench", "step", *TINY, "--model", "small", "--precision", "fp16")


@pytest.mark.parametrize("option", ["--iterations", "--rounds"])
def test_nothing_to_time_is_refused(option, cli):
    result = cli("bench", "step", "--model", "small", *TINY, option, 0)
    assert (result.code, result.out) == (2, "")
    assert option in result.err
    assert "Traceback" not in result.err


def test_peers_come_first_and_unknown_ones_are_refused(cli, refused):
    found = parsed(cli("bench", "step", "--model", NARROW, *TINY, "--peer", "eager", "--json"))
    assert [row["method"] for row in found["rows"]] == ["plain eager", "cross-entropy", "FairCL"]
    assert found["rows"][0]["speed"] == 1
    refused("--peer is 'lazy'; expected eager or compiled", "bench", "step", "--peer", "lazy")


def test_methods_side_by_side(cli):
    found = parsed(
        cli("bench", "methods", "--model", NARROW, *TINY, "--classes", 6, "--old", 4, "--method", "mib", "--json")
    )
    assert [row["method"] for row in found["rows"]] == ["finetune", "mib"]
    assert [row["passes"] for row in found["rows"]] == [1, 2]
    assert all(set(row) == ROW for row in found["rows"])
    result = cli("bench", "methods", "--method", "mip")
    assert result.code == 2
    assert "Did you mean 'mib'" in result.err
