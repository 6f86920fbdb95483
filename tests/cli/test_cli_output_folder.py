"""Output folders that cannot be used, and that nothing in them is ever touched."""

import os
import shutil
import sys

import pytest


def test_folder_of_another_run(train, tiny_run, out):
    shutil.copytree(tiny_run.path, out)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    train("already holds another run, with another optim.lr;", "optim.lr=0.02", made=True)
    train("already holds this run; continue it with --resume", made=True)
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_folder_with_foreign_files(train, out):
    out.mkdir(parents=True)
    (out / "thesis.tex").write_text("precious")
    train("holds other files", made=True)
    assert [file.name for file in out.iterdir()] == ["thesis.tex"]


def test_output_is_a_file(train, out):
    out.parent.mkdir()
    out.write_text("precious")
    train("is a file; choose a folder", made=True)
    assert out.read_text() == "precious"


def test_output_below_a_file(train, out):
    out.parent.write_text("precious")
    train("Cannot make the output folder", made=True)
    assert out.parent.read_text() == "precious"


@pytest.mark.parametrize("function", ["mkdir", "write_text"])
def test_unwritable_output(train, out, function, monkeypatch):
    def denied(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(f"pathlib.Path.{function}", denied)
    train("Permission denied", made=function == "write_text")
    assert not [path for path in out.rglob("*") if path.name != ".lock"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_folder_without_permission(train, out, mode):
    out.mkdir(parents=True)
    out.chmod(mode)
    try:
        train("Permission denied", made=True)
    finally:
        out.chmod(0o755)


def test_damaged_config_in_the_output_folder(train, out):
    out.mkdir(parents=True)
    (out / "config.yaml").write_text("- a\n- b\n")
    train("the run folder is damaged", made=True)


def test_a_diverging_run_keeps_its_folder_for_resuming(cli, out, tiny_flags):
    result = cli("train", "demo", "--out", out, *tiny_flags, "--set", "optim.lr=1e30")
    assert result.code == 2
    assert result.err.splitlines()[-1].startswith("faircl: The loss is not finite at step 0, iteration 2: seg = ")
    assert (out / "config.yaml").is_file()
    assert not list(out.glob("steps/*"))


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("model.width", ["model.norm=group", "model.width=6"]),
        ("pip install 'faircl[tensorboard]'", ["train.loggers=[tensorboard]"]),
        ("cannot train on batches of 1 windows of 8x8", ["train.batch=1", "train.crop=8"]),
    ],
)
def test_what_cannot_be_built_is_refused_before_the_folder_is_made(train, words, settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    train(words, *settings)
