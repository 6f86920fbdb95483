"""The readings of benchmarks/readings.py are configurations that differ from one another and from what they change."""

import runpy
from pathlib import Path

import pytest

from faircl.config.run import load_config

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "readings.py"))
DEFAULT, PAPER, READINGS = (SCRIPT[name] for name in ("DEFAULT", "PAPER", "READINGS"))


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_changes_its_method_in_what_it_sets_alone(name):
    method, own = ("faircl", DEFAULT[name]) if name in DEFAULT else ("faircl-paper", PAPER[name])
    found, base = (load_config("demo", settings) for settings in (READINGS[name], [f"method={method}"]))
    assert found.method.name == method
    before, after = base.method.model_dump(), found.method.model_dump()
    changed = {f"method.{key}" for key in before if before[key] != after[key]}
    assert changed == {setting.partition("=")[0] for setting in own}
    assert found.model_copy(update={"method": base.method}) == base


def test_readings_differ():
    trees = [load_config("demo", settings).model_dump_json() for settings in READINGS.values()]
    assert len(set(trees)) == len(READINGS) == len(DEFAULT) + len(PAPER)
