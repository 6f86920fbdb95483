"""The pages for newcomers run: every command of the tutorial in its order, and the quick start of the README."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from grids import grid
from pages import ROOT, Command, blocks, commands
from PIL import Image

import faircl

TUTORIAL = "docs/your-own-data.md"
SMALL = ("model.width=8", "model.embedding=8", "train.crop=64", "train.workers=0")
QUICK = {
    ("data", "synth"): ("--images", "32", "--test-images", "8", "--size", "64"),
    ("train",): tuple(word for setting in (*SMALL, "train.epochs=1") for word in ("--set", setting)),
}
"""What is added to commands of the tutorial, by their first words, to make them quick."""


def quick(words: list[str]) -> list[str]:
    if "--resume" in words:
        return words
    added = [more for first, more in QUICK.items() if tuple(words[: len(first)]) == first]
    return [*words, *(word for more in added for word in more)]


def cut(run: Path) -> bytes:
    """Leave the run as one that was killed in its last step; return the weights of that step."""
    step = run / "steps/01"
    weights = (step / "model.safetensors").read_bytes()
    shutil.rmtree(step)
    records = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(line for line in records if json.loads(line)["step"] == 0))
    return weights


# ---- the tutorial


@pytest.fixture
def follow(cli, tmp_path, monkeypatch):
    """Return a function that runs a command of a page in a folder of its own and returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(command: Command) -> str:
        weights = cut(Path(command.words[-1])) if "--resume" in command.words else b""
        result = cli(*quick(command.words))
        assert result.code == 0, f"{command.words}: {result.err}"
        if command.target:
            Path(command.target).write_text(result.out, encoding="utf-8")
        if weights:
            assert (Path(command.words[-1]) / "steps/01/model.safetensors").read_bytes() == weights
        return result.out

    return run


@pytest.mark.slow
def test_every_command_of_the_tutorial_runs(follow, tmp_path):
    (file,) = blocks(TUTORIAL, "yaml")
    (tmp_path / "mine.yaml").write_text(file, encoding="utf-8")
    printed = {" ".join(command.words[:2]): follow(command) for command in commands(TUTORIAL)}
    assert "no problem" in printed["data check"]
    assert "hidden" in printed["scenario show"]
    rows = printed["compare runs/finetune"].splitlines()
    assert [line.split()[0] for line in rows if line.startswith((" finetune ", " mib ", " faircl "))] == [
        "finetune",
        "mib",
        "faircl",
    ]
    assert (tmp_path / "runs/compared/comparison.html").is_file()
    assert [run["method"] for run in json.loads((tmp_path / "scores.json").read_text())["runs"]] == ["faircl"]
    assert faircl.load_config(tmp_path / "deeplab.yaml").train.checkpointing
    assert faircl.open_run(tmp_path / "runs/rare").config.balance.sampling == "rare"
    (snippet,) = blocks(TUTORIAL, "python")
    exec(compile(snippet, TUTORIAL, "exec"), {"__name__": "page"})
    assert Image.open(tmp_path / "overlay.png").size == (64, 64)


def test_the_settings_of_the_tutorial_hold():
    """What it says of the recipe that it trains."""
    config = faircl.load_config("folder")
    assert (config.model.name, config.train.crop, config.train.checkpoint_minutes) == ("small", 256, 5)
    assert "five\nminutes (`train.checkpoint_minutes`)" in (ROOT / TUTORIAL).read_text(encoding="utf-8")


# ---- the three kinds of background


@pytest.fixture
def tiles(tmp_path):
    """Return a function that writes a folder of tiles, each of one of eight classes; no pixel is background."""

    def write(*names: str) -> Path:
        root, draw = tmp_path / "tiles", np.random.default_rng(0)
        for split, images in (("train", 16), ("test", 4)):
            for number in range(images):
                ids = 1 + draw.permutation(16).reshape(4, 4) % 8
                mask = np.kron(ids, np.ones((8, 8))).astype(np.uint8)
                image = (30 * mask[..., None] + draw.integers(0, 9, (*mask.shape, 3))).astype(np.uint8)
                for kind, pixels in (("images", image), ("masks", mask)):
                    (root / kind / split).mkdir(parents=True, exist_ok=True)
                    Image.fromarray(pixels).save(root / kind / split / f"{number}.png")
        (root / "classes.txt").write_text("\n".join(names) + "\n")
        return root

    return write


TILES = tuple(f"tile {number}" for number in range(1, 9))


def test_background_that_no_pixel_shows_is_named(tiles, cli):
    root = tiles("background", *TILES)
    data = ("--data", "folder", "--root", root)
    assert "no test image shows background" in cli("scenario", "show", *data, "--task", "5-3").out
    assert "background is scored at no step" in cli("data", "check", *data).out


@pytest.mark.parametrize(
    ("name", "setting", "counted"),
    [("background", "auto", 8), ("void", "auto", 9), ("void", "first", 8), ("background", "none", 9)],
)
def test_what_the_first_class_is(name, setting, counted, tiles):
    classes = faircl.open_data("folder", root=tiles(name, *TILES), background=setting).classes
    assert len(classes.names) - classes.background == counted


# ---- the README


@grid("settings", [QUICK["train",], ()], ids=["smaller", "as written"])
def test_the_quick_start_runs(settings, tiles, cli, tmp_path):
    train, resume = [command.words for command in commands("README.md") if command.words[0] == "train"][:2]
    assert " ".join(train) == "train folder --root /data/mine --task 5-3 --epochs 1 --out runs/mine"
    assert " ".join(resume) == "train --resume runs/mine"
    places = {"/data/mine": str(tiles("background", *TILES)), "runs/mine": str(tmp_path / "run")}
    result = cli(*(places.get(word, word) for word in train), *settings)
    assert result.code == 0, result.err
    assert "task 5-3" in result.out
    weights = cut(tmp_path / "run")
    assert cli(*(places.get(word, word) for word in resume)).code == 0
    assert (tmp_path / "run/steps/01/model.safetensors").read_bytes() == weights
