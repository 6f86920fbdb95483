"""Training goes on where nobody can be shown its progress: whole processes; tests/test_progress.py has the parts."""

import os
import subprocess
import sys

import pytest

from faircl.runs.folder import RunFolder


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "reason"), [("full", "No space left on device"), ("pipe", "Broken pipe")])
def test_a_run_finishes_without_its_standard_error(lost, reason, tiny_flags, tmp_path):
    if lost == "full":
        target = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, target = os.pipe()
        os.close(reader)
    # Only what is buffered can fail once more when Python exits.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "faircl", "train", "demo", *tiny_flags, "--out", str(tmp_path / "run"), "--json"]
    try:
        found = subprocess.run(command, stdout=subprocess.PIPE, stderr=target, text=True, env=env, timeout=120)
    finally:
        os.close(target)
    assert found.returncode == 0
    assert found.stdout.startswith("{")
    folder = RunFolder.open(tmp_path / "run")
    assert folder.finished_steps() == 2
    assert (folder.path / "report.html").is_file()
    log = (folder.path / "train.log").read_text()
    assert log.count(f"progress can no longer be shown: {reason}; training goes on\n") == 1
    assert "after step 1: old " in log
