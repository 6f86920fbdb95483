"""The scripts of examples/, run as they are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_the_life_of_a_model(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "life_of_a_model.py", tmp_path / "life"],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    first, second = map(float, re.search(r"lost (-?[\d.]+) and (-?[\d.]+) points", done.stdout).groups())
    assert max(first, second) <= 3
    assert '"status": "rejected"' in done.stdout
    predicted = list((tmp_path / "life" / "predicted").rglob("*.png"))
    assert len(predicted) >= 80
