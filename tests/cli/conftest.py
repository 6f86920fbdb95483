"""Commands that must be refused: exit code 2, one sentence on standard error, nothing left behind."""

import pytest
import yaml


@pytest.fixture
def out(tmp_path):
    return tmp_path / "runs" / "run"


@pytest.fixture
def refused(cli, out):
    """Run a command that must fail with one sentence holding some words, and leave nothing behind."""

    def check(words: str, *args: object, made: bool = False):
        result = cli(*args)
        assert result.code == 2, result
        assert result.out == ""
        lines = result.err.splitlines()
        assert len(lines) == 1, result.err
        assert lines[0].startswith("faircl: ")
        assert lines[0].endswith((".", "?"))
        assert words in lines[0]
        assert "Traceback" not in result.err
        assert made or not out.parent.exists()

    return check


@pytest.fixture
def train(refused, out, tiny_flags):
    """Train the demo with settings that must be refused."""
    return lambda words, *settings, **kw: refused(
        words, "train", "demo", "--out", out, *tiny_flags, *(p for s in settings for p in ("--set", s)), **kw
    )


@pytest.fixture
def on_folder(refused, street, out, tmp_path):
    """Train on the folder data set, which a test has broken first."""
    recipe = tmp_path / "mine.yaml"
    data = {"name": "folder", "root": str(street)}
    tree = {"data": data, "scenario": {"task": "6-4"}, "model": "small", "method": "finetune"}
    recipe.write_text(yaml.safe_dump(tree))
    return lambda words, *settings: refused(
        words, "train", recipe, "--out", out, *(p for s in settings for p in ("--set", s))
    )
