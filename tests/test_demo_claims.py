"""The demo's claims on three seeds: several minutes, so only in make test-all."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "demo_claims.py"


@pytest.mark.slow
def test_the_demo_shows_what_it_claims_on_three_seeds(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("\nok ") == 18
