"""The benchmark of audits measures time and memory, and says whether its limits hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks/audit.py"


@pytest.mark.slow
@pytest.mark.parametrize(("most", "code"), [("1000", 0), ("0.001", 1)])
def test_benchmark(most, code):
    size = ["--images", "4", "--width", "64", "--height", "32", "--rounds", "1"]
    done = subprocess.run([sys.executable, SCRIPT, *size, "--most", most], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["images"] == 4
    assert 20 < found["peak_mb"] < 1000
    assert found["ratio"] == found["seconds"]["audit"][0] / found["seconds"]["decoding"][0]
