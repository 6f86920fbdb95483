"""``faircl predict``: what it prints, and every option tried wrongly."""

import csv
import json
import shutil
import signal
import subprocess
import sys
import time

import pytest


@pytest.fixture
def photo(tiny_run):
    return tiny_run.path / "examples/0.image.png"


@pytest.fixture
def wrong(refused, tiny_run, photo, out):
    return lambda words, *args, **kw: refused(words, "predict", tiny_run.path, photo, "--out", out, *args, **kw)


def test_json_and_table(cli, tiny_run, photo, out):
    result = cli("predict", tiny_run.path, photo, "--out", out, "--flip", "--no-overlay", "--unknown", "--json")
    assert result.code == 0, result.err
    made = json.loads(result.out)
    assert made == json.loads((out / "predictions.json").read_text())
    assert made["options"]["flip"]
    assert (out / made["images"][0]["unknown"]).is_file()
    again = cli("predict", tiny_run.path, photo, "--out", out.with_name("other"), "--format", "csv", "--step", "0")
    head, *rows = csv.reader(again.out.splitlines())
    assert head[0] == "class"
    assert len(rows) == 7  # the classes of step 0
    assert sum(int(row[1]) for row in rows) == 32 * 32
    assert "predictions: " in again.err


@pytest.mark.parametrize(("crop", "noted"), [(32, False), (100, True)])
def test_tiles_smaller_than_the_windows_of_training_are_noted(crop, noted, cli, tiny_run, photo, out, tmp_path):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("  crop: 32\n", f"  crop: {crop}\n"))
    result = cli("predict", run, photo, "--out", out, "--tile", 64)
    assert result.code == 0, result.err
    assert ("larger ones, from --tile 128 on, may be more accurate" in result.err) == noted
    assert "tiles of 64" not in cli("predict", run, photo, "--out", out.with_name("whole")).err
    assert cli("classes", "rename", run, "car=auto").code == 0
    assert ("tiles of 64" in cli("predict", run, photo, "--out", out.with_name("new"), "--tile", 64).err) == noted


def test_a_step_without_its_folder_is_damage(refused, tiny_run, photo, out, tmp_path):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    shutil.rmtree(run / "steps/01")
    words = "steps/01 is missing, though metrics.jsonl has its evaluation"
    refused(words, "predict", run, photo, "--out", out)
    refused(words, "eval", run)
    refused(words, "export", run, "--to", "torch", "--out", tmp_path / "out.pt2")
    shutil.rmtree(run / "steps/00")
    refused("steps/00 is missing, though metrics.jsonl has its evaluation", "eval", run)


def test_a_run_with_steps_to_come_is_noted(cli, tiny_run, photo, out, tmp_path):
    run = shutil.copytree(tiny_run.path, tmp_path / "run")
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] == 0))
    result = cli("predict", run, photo, "--out", out)
    assert result.code == 0, result.err
    assert f"note: the run {run} has finished 1 of 2 steps; the network of step 0 is used." in result.err
    assert "note: the run" not in cli("predict", tiny_run.path, photo, "--step", 0, "--out", out.with_name("first")).err


def test_broken_images_that_are_left_out_are_named(cli, tiny_run, photo, out, tmp_path):
    (tmp_path / "empty.png").touch()
    result = cli("predict", tiny_run.path, photo, tmp_path / "empty.png", "--out", out, "--skip-broken")
    assert result.code == 0, result.err
    assert "1 image, step 1" in result.out
    assert f"skipped: Image {tmp_path}/empty.png cannot be decoded: it is an empty file" in result.out


def test_wrong_options(wrong, tmp_path):
    wrong("tile is 1000 pixels wide; expected a multiple of 32", "--tile", 1000)
    wrong("An overlap of 32 was given without a tile", "--overlap", 32)
    wrong("The overlap is 96 pixels", "--tile", 128, "--overlap", 96)
    wrong("The batch is 0", "--batch", 0)
    wrong("has no step 7", "--step", 7)
    wrong("Unknown device 'gpu'", "--device", "gpu")
    wrong("Half precision needs a GPU", "--half", "--device", "cpu")
    wrong("Unknown score 'max-sotfmax'. Did you mean", "--unknown", "--unknown-score", "max-sotfmax")
    wrong("given without the map; add --unknown", "--unknown-score", "max-softmax")
    wrong("There is no image or folder", tmp_path / "nowhere.png")
    (tmp_path / "text.png").write_text("no picture")
    wrong("text.png cannot be decoded", tmp_path / "text.png")


def test_wrong_places(refused, tiny_run, photo, out, tmp_path):
    refused("is not a run folder", "predict", tmp_path, photo, "--out", out)
    refused("holds no image", "predict", tiny_run.path, _made(tmp_path / "none"), "--out", out)
    refused(
        "None of the 1 images can be read", "predict", tiny_run.path, _text(tmp_path), "--out", out, "--skip-broken"
    )
    (tmp_path / "file").touch()
    refused("Output", "predict", tiny_run.path, photo, "--out", tmp_path / "file")
    refused("Cannot make", "predict", tiny_run.path, photo, "--out", tmp_path / "file" / "below")


def _made(folder):
    folder.mkdir()
    return folder


def _text(folder):
    (folder / "text.jpg").write_text("no picture")
    return folder / "text.jpg"


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_finished(tiny_run, photo, out, tmp_path):
    """A process that is stopped while it works ends with one line; --resume then finishes the rest."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(2000):
        (photos / f"{number}.png").write_bytes(photo.read_bytes())
    command = [sys.executable, "-m", "faircl", "predict", str(tiny_run.path), str(photos), "--out", str(out)]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # A process that was started in the background ignores SIGINT, and so would its children.
    process = subprocess.Popen(command, **pipes, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    journal = out / "predictions.part.jsonl"
    while process.poll() is None and (not journal.exists() or journal.read_text().count("\n") < 3):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith("finished images are kept, and the same command continues with --resume.")
    assert not list(out.rglob(".*.part"))
    again = subprocess.run([*command, "--resume", "--json"], capture_output=True, text=True, check=True)
    assert len(json.loads(again.stdout)["images"]) == 2000
