"""Runs that are killed, and resumed twice at once, lose nothing; benchmarks/durability.py does more of both."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "durability.py"


@pytest.fixture(scope="module")
def durability():
    spec = importlib.util.spec_from_file_location("durability", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_three_kills(durability, tmp_path, capsys):
    assert durability.kills(tmp_path, times=3, epochs=60, seed=1)
    assert "3 kills, " in capsys.readouterr().out


@pytest.mark.slow
def test_two_resumes_at_once(durability, tmp_path):
    assert durability.pairs(tmp_path, times=1, epochs=40, seed=0)


def test_results_that_differ_are_told_apart(durability, tmp_path):
    for name, text in (("a", "x"), ("b", "y")):
        (tmp_path / name / "steps/00").mkdir(parents=True)
        (tmp_path / name / "steps/00/model.json").write_text(text)
        (tmp_path / name / "metrics.jsonl").write_text('{"kind": "eval", "step": 0, "seconds": 3}\n')
    assert durability.result(tmp_path / "a") != durability.result(tmp_path / "b")
    assert durability.result(tmp_path / "a")["records"] == [{"kind": "eval", "step": 0}]
    assert durability.updates_done(tmp_path / "a") == (1, 0)
    (tmp_path / "a/checkpoints/01-00000012").mkdir(parents=True)
    assert durability.updates_saved(tmp_path / "a") == (1, 12)
