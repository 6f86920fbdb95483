"""Software and hardware of a run: versions, devices, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import faircl
from faircl.distributed import world_size

PACKAGES = (
    "torch",
    "torchvision",
    "lightning-fabric",
    "numpy",
    "pillow",
    "pydantic",
    "safetensors",
    "timm",
    "transformers",
)


def environment() -> dict[str, str]:
    """Return a flat description of software and hardware."""
    facts = {"faircl": faircl.__version__, "commit": _commit(), "python": platform.python_version()}
    facts |= {name: _version(name) for name in PACKAGES}
    facts |= {"platform": platform.platform(), "cpu": _cpu(), "cores": str(os.cpu_count())}
    facts |= {"processes": str(world_size()), "threads": str(torch.get_num_threads())}
    facts["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return facts


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Commit of the source tree faircl runs from; empty when installed from a wheel."""
    here = Path(__file__).resolve().parent
    if "site-packages" in here.parts:
        return ""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
