"""All kernels compile for a GPU, without having one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton comes with torch for Linux alone")

SMALLEST = 99 * 1024
"""Bytes of shared memory that a program has on the smallest GPUs that kernels are used on."""


@pytest.mark.slow
def test_every_kernel_compiles_and_fits(tmp_path):
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).with_name("compile_all.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {line[1] for line in lines} >= {
        "_scores",
        "_argmax",
        "_backward",
        "_add_upsampled",
        "_normalise",
        "_forward",
        "_resample_bilinear",
        "_resample_nearest",
    }
    assert all(int(line[-1]) <= SMALLEST for line in lines)
