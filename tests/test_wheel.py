"""The built wheel carries its recipes and templates and works away from the checkout."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TINY = "data.images=24 data.test_images=8 data.size=32 train.epochs=0.3 train.later_epochs=0.3 train.crop=32"


@pytest.mark.slow
def test_a_wheel_trains_and_reports_elsewhere(tmp_path):
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", tmp_path / "dist", ROOT]
    subprocess.run(build, check=True, cwd=tmp_path)
    (wheel,) = (tmp_path / "dist").glob("faircl-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "MPLBACKEND": "Agg"}

    def python(*words):
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, check=True, capture_output=True, text=True
        )

    assert str(tmp_path / "site") in python("-c", "import faircl; print(faircl.__file__)").stdout
    assert "demo-joint" in python("-m", "faircl", "recipes").stdout
    settings = [word for setting in TINY.split() for word in ("--set", setting)]
    python("-m", "faircl", "train", "demo", "--out", "run", *settings)
    assert "<svg" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
