"""The command lets a GPU's memory grow in place, unless somebody has chosen otherwise."""

import os
import subprocess
import sys

import pytest

from faircl import cli

ASK = "import os, faircl.cli as c; c.configure_allocator(); print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))"


def asked(**environment):
    clean = {name: value for name, value in os.environ.items() if name not in cli.ALLOCATOR}
    done = subprocess.run(
        [sys.executable, "-c", f"{ASK}; import sys; print('torch' in sys.modules)"],
        env=clean | environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="memory grows in place on Linux alone")
def test_memory_grows_in_place_and_torch_has_not_come_before():
    assert asked() == ["expandable_segments:True", "False"]


def test_what_somebody_has_chosen_stays():
    assert asked(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:512") == ["max_split_size_mb:512", "False"]
    assert asked(PYTORCH_ALLOC_CONF="max_split_size_mb:512") == ["None", "False"]
