"""``faircl bench loss`` and ``bench evaluation``: tables, JSON, a plot, one sentence for what cannot be timed."""

import json

import pytest
import torch

TINY = ("--classes", 5, "--size", 16, "--batch", 2, "--rounds", 1)
LOSSES = ["interpolate + cross_entropy", "image by image", "fused"]
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has memory and a roofline")


def parsed(result):
    assert result.code == 0, result.err
    return json.loads(result.out)


@on_cpu
def test_loss_json(cli):
    found = parsed(cli("bench", "loss", *TINY, "--json"))
    rows, environment = found.pop("rows"), found.pop("environment")
    assert environment["torch"] == torch.__version__.partition("+")[0]
    assert found == {
        "classes": [5],
        "sizes": [16],
        "strides": [16, 4],
        "batch": 2,
        "precision": "bf16",
        "rounds": 1,
        "exact": True,
        "channels_last": False,
        "bytes_per_second": None,
        "exponentials_per_second": None,
    }
    assert [(row["stride"], row["loss"]) for row in rows] == [(stride, loss) for stride in (16, 4) for loss in LOSSES]
    for row in rows:
        assert row["milliseconds"] > 0
        assert row["gradient_error"] < 0.01
        assert row["repeatable"] is True
        assert (row["extra_gib"], row["roofline_ms"], row["roofline_share"]) == (None, None, None)


@on_cpu
def test_loss_table(cli):
    result = cli("bench", "loss", *TINY, "--stride", 4)
    assert result.code == 0, result.err
    assert "5 classes, batch 2 of 16×16, stride 4, bf16" in result.out
    lines = result.out.splitlines()
    (top,) = (k for k, line in enumerate(lines) if line.split()[:2] == ["loss", "ms"])
    assert lines[top].split()[2:6] == ["extra", "GiB", "speed", "roofline"]
    assert [line.strip().startswith(loss) for loss, line in zip(LOSSES, lines[top + 1 :], strict=False)] == [True] * 3
    assert "1.00×" in lines[top + 1]
    assert lines[top + 3].split()[-1] == "yes"


def test_tables_have_columns_for_what_differs(cli):
    result = cli("bench", "loss", *TINY, "--classes", 7, "--size", 8, "--stride", 4, "--no-exact")
    assert result.code == 0, result.err
    assert "batch 2, stride 4, bf16" in result.out
    (top,) = (line for line in result.out.splitlines() if "speed" in line)
    assert top.split()[:4] == ["classes", "size", "loss", "ms"]
    assert result.out.count("fused") == 4


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_plot_takes_the_combinations_it_shows(suffix, cli, tmp_path):
    several = ("--classes", 7, "--classes", 151, "--size", 8, "--size", 12, "--stride", 4, "--batch", 1, "--rounds", 1)
    path = tmp_path / f"cost.{suffix}"
    result = cli("bench", "loss", *several, "--no-exact", "--json", "--plot", path)
    found = {(row["classes"], row["size"]) for row in parsed(result)["rows"]}
    assert found == {(7, 8), (151, 8), (151, 12)}
    assert f"plot: {path}" in result.err.replace("\n", "")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    head = path.read_bytes()
    assert head.startswith(b"\x89PNG") if suffix == "png" else b"side of an image, at 151 classes" in head


def test_a_plot_without_151_classes_shows_sizes_at_the_first(cli, tmp_path):
    several = ("--classes", 7, "--classes", 9, "--size", 8, "--size", 12, "--stride", 4, "--batch", 1, "--rounds", 1)
    rows = parsed(cli("bench", "loss", *several, "--no-exact", "--json", "--plot", tmp_path / "cost.svg"))["rows"]
    assert {(row["classes"], row["size"]) for row in rows} == {(7, 8), (9, 8), (7, 12)}


@on_cpu
def test_evaluation_json(cli):
    found = parsed(cli("bench", "evaluation", *TINY, "--json"))
    assert {key: found[key] for key in ("classes", "sizes", "strides", "batch", "rounds")} == {
        "classes": [5],
        "sizes": [16],
        "strides": [16, 4],
        "batch": 2,
        "rounds": 1,
    }
    assert found["environment"]["gpu"] == "none"
    assert [row["work"] for row in found["rows"]] == ["argmax"] * 6 + ["confusion matrix"] * 2
    assert all(row["equal"] > 0.99 and row["extra_gib"] is None for row in found["rows"])


def test_evaluation_table(cli):
    result = cli("bench", "evaluation", *TINY)
    assert result.code == 0, result.err
    assert "5 classes, batch 2 of 16×16, fp32" in result.out
    for words in ("stride", "interpolate + argmax", "image by image", "1.00×", "100.0000%"):
        assert words in result.out


# ---- refused

WRONG = [
    (("--classes", 1), "--classes is 1, expected 2 to 65533"),
    (("--size", 0), "--size is 0, expected at least 1"),
    (("--stride", 17), "--stride is 17, expected 1 to the side of an image, 16"),
    (("--stride", 4, "--size", 3), "expected 1 to the side of an image, 3"),
    (("--batch", 0), "--batch is 0"),
    (("--rounds", 0), "--rounds is 0"),
]


@pytest.mark.parametrize("command", ["loss", "evaluation"])
@pytest.mark.parametrize(("args", "words"), WRONG, ids=[" ".join(map(str, args)) for args, _ in WRONG])
def test_what_cannot_be_timed_is_one_sentence(command, args, words, refused):
    refused(words, "bench", command, *TINY, *args)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--precision", "fp8"), "--precision is 'fp8', expected one of bf16, fp16, fp32"),
        (("--plot", "cost.gif"), "its name must end in one of .pdf, .png, .svg"),
        (("--plot", "nowhere/cost.png"), "there is no folder nowhere; make it first"),
    ],
)
def test_options_of_the_loss(args, words, refused, monkeypatch):
    monkeypatch.setattr("faircl.bench.loss.bench_loss", lambda *_: pytest.fail("timed"))
    refused(words, "bench", "loss", *TINY, *args)


@pytest.mark.parametrize("command", ["loss", "evaluation"])
def test_one_process(command, refused, monkeypatch):
    monkeypatch.setattr("faircl.distributed.init_process_group", lambda: None)
    monkeypatch.setattr("faircl.parallel.launched_world_size", lambda: 2)
    refused(f"faircl bench {command} times one process; start it without torchrun.", "bench", command, *TINY)
