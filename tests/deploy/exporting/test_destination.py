"""Wrong use of an export: one sentence, and nothing written, not even the folders on the way."""

import importlib.util
import os
import shutil

import pytest

import faircl
from faircl.deploy.exporting import destination
from faircl.deploy.exporting.destination import OPSETS, check_request, written_whole


@pytest.fixture
def wrong(tmp_path, tiny_run, cli):
    """Return a function that calls 'faircl export RUN …', which must fail with a sentence and write nothing."""

    def call(sentence, *args, run=tiny_run.path):
        before = sorted(tmp_path.rglob("*"))
        result = cli("export", run, *args)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("faircl: ")
        assert len(result.err.splitlines()) == 1
        assert sentence in result.err
        assert sorted(tmp_path.rglob("*")) == before

    return call


def test_unknown_format(wrong, tmp_path):
    wrong("Did you mean 'onnx'?", "--to", "onxx", "--out", tmp_path / "a.onnx")


def test_format_and_output_are_asked_for(wrong, tmp_path):
    wrong("Say which format", "--out", tmp_path / "a.onnx")
    wrong("Say where to write", "--to", "onnx")


def test_existing_output(wrong, tmp_path):
    file, folder = tmp_path / "a.onnx", tmp_path / "a"
    file.write_text("mine")
    folder.mkdir()
    (folder / "mine").write_text("")
    wrong("exists already", "--to", "onnx", "--out", file)
    wrong("exists already", "--to", "huggingface", "--out", folder)
    wrong("is a folder", "--to", "torch", "--out", folder)
    assert file.read_text() == "mine"


def test_name_of_the_output(wrong, tmp_path):
    wrong("ends in .onnx", "--to", "onnx", "--out", tmp_path / "a.pt2")
    wrong("ends in .pt2", "--to", "torch", "--out", tmp_path / "a")


def test_no_run_and_no_finished_step(wrong, tmp_path, tiny_run):
    out = tmp_path / "out.pt2"
    wrong("not a run folder", "--to", "torch", "--out", out, run=tmp_path)
    begun = tmp_path / "begun"
    begun.mkdir()
    for name in ("config.yaml", "scenario.json"):
        shutil.copy(tiny_run.path / name, begun)
    wrong("no finished step yet", "--to", "torch", "--out", out, run=begun)


def test_a_step_that_is_not_there(wrong, tmp_path):
    wrong("has no step 7", "--to", "torch", "--out", tmp_path / "a.pt2", "--step", 7)
    wrong("no step -3; counted from its last", "--to", "torch", "--out", tmp_path / "deep/a.pt2", "--step", -3)


def test_opset(wrong, tmp_path):
    wrong("belongs to ONNX", "--to", "torch", "--out", tmp_path / "a.pt2", "--opset", 20)
    wrong(f"from {OPSETS[0]} to {OPSETS[-1]}", "--to", "onnx", "--out", tmp_path / "a.onnx", "--opset", 9)


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_package_that_is_not_installed(wrong, tmp_path, monkeypatch, package):
    real = importlib.util.find_spec
    monkeypatch.setattr(destination, "find_spec", lambda name: None if name == package else real(name))
    wrong(f"needs {package}, not installed", "--to", "onnx", "--out", tmp_path / "a.onnx")
    wrong("pip install 'faircl[export]'", "--to", "onnx", "--out", tmp_path / "a.onnx")


def test_a_place_that_cannot_be_written(wrong, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    wrong("is a file", "--to", "torch", "--out", tmp_path / "file/a.pt2")
    real = os.access  # the tests may run as root, who may write anywhere
    monkeypatch.setattr(os, "access", lambda path, mode, **more: not mode & os.W_OK and real(path, mode, **more))
    wrong("no permission to write", "--to", "torch", "--out", tmp_path / "new/a.pt2")


def test_output_that_is_no_path(tiny_run):
    with pytest.raises(faircl.UserError, match="Expected the path"):
        faircl.export(tiny_run.path, "onnx", 3)


# ---- whole or not at all


def test_what_was_written_appears_at_the_end(tmp_path):
    out = tmp_path / "new/deep/model.onnx"
    with written_whole(out) as part:
        part.write_text("graph")
        part.with_name("model.onnx.data").write_text("weights")
        assert not out.exists()
    assert {path.name for path in out.parent.iterdir()} == {"model.onnx", "model.onnx.data"}
    assert out.read_text() == "graph"


@pytest.mark.parametrize("error", [faircl.UserError("differs"), KeyboardInterrupt(), OSError(28, "No space left")])
def test_an_error_leaves_nothing(tmp_path, error):
    def write():
        with written_whole(tmp_path / "new/deep/model") as part:
            part.mkdir()
            (part / "half").write_text("")
            raise error

    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else faircl.UserError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_filled(tmp_path):
    out = tmp_path / "hf"
    out.mkdir()
    check_request("huggingface", out, None)
    with written_whole(out) as part:
        part.mkdir()
        (part / "README.md").write_text("card")
    assert (out / "README.md").read_text() == "card"
