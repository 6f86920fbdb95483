"""Exports of the small network: the contract of the files, their metadata, and what is refused."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from exported import agreement

import faircl
from faircl.deploy.exporting import export as exporting
from faircl.deploy.exporting.agreement import BATCHES, SIZES
from faircl.progress import SilentReporter


@pytest.fixture(scope="module")
def onnx_file(tiny_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("onnx") / "new/tiny.onnx"
    return faircl.export(tiny_run.path, "onnx", out, reporter=SilentReporter()).path


@pytest.fixture(scope="module")
def torch_file(tiny_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("torch") / "tiny.pt2"
    return faircl.export(tiny_run.path, "torch", str(out), step=0, reporter=SilentReporter()).path


def test_onnx_runtime_gives_the_same_masks(onnx_file, tiny_run):
    session = onnxruntime.InferenceSession(onnx_file)
    assert agreement(tiny_run.path, lambda images: session.run(["mask"], {"image": images})[0]) >= 0.9999
    assert [path.name for path in onnx_file.parent.iterdir()] == ["tiny.onnx"]


def test_the_onnx_file_has_free_axes_and_plain_operators(onnx_file):
    model = onnx.load(onnx_file)
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes["image"] == ["batch", 3, "height", "width"]
    assert shapes["mask"] == ["batch", "height", "width"]
    assert shapes["logits"][:2] == ["batch", 11]
    assert {node.domain for node in model.graph.node} == {""}
    assert not model.functions


def test_logits_are_those_of_the_network(onnx_file, tiny_run):
    network = faircl.load(tiny_run.path, device="cpu").network
    images = np.random.default_rng(1).integers(0, 256, (2, 3, 41, 57), np.uint8)
    found = onnxruntime.InferenceSession(onnx_file).run(["logits"], {"image": images})[0]
    expected = network(torch.from_numpy(images) / 255).logits.numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_metadata_of_onnx(onnx_file, tiny_run):
    about = onnxruntime.InferenceSession(onnx_file).get_modelmeta().custom_metadata_map
    predictor, scenario = faircl.load(tiny_run.path), tiny_run.load_scenario()
    classes = json.loads(about["classes"])
    assert {one["id"]: one["name"] for one in classes} == predictor.names
    assert {one["id"]: one["colour"] for one in classes} == {
        id: "#" + bytes(rgb).hex() for id, rgb in predictor.colours.items()
    }
    assert json.loads(about["channels"]) == list(scenario.channel_ids)
    assert (about["step"], about["faircl"], about["network"]) == ("1", faircl.__version__, "small")
    assert "uint8" in about["input"]


def test_torch_file_of_an_earlier_step(torch_file, tiny_run):
    extra = {"metadata.json": ""}
    module = torch.export.load(torch_file, extra_files=extra).module()
    about = json.loads(extra["metadata.json"])
    assert (about["step"], about["background"], len(about["classes"])) == (0, 0, 7)
    assert agreement(tiny_run.path, lambda images: module(torch.from_numpy(images))[0].numpy(), step=0) >= 0.9999


def test_the_result_says_what_was_compared(tiny_run, tmp_path, silent):
    reporter = silent()
    done = faircl.export(tiny_run.path, "huggingface", tmp_path / "hf", reporter=reporter)
    images = 2 * sum(BATCHES)
    assert done.pixels == images * sum(height * width for height, width in SIZES)
    assert (done.agreement, done.step, done.to, done.path) == (1.0, 1, "huggingface", tmp_path / "hf")
    assert done.classes == tiny_run.load_scenario().classes.names
    assert "no counterpart of network 'small'" in done.note
    assert reporter.tasks == ["check"]


@pytest.mark.parametrize("shift", [0, 1])
def test_masks_that_differ_are_refused(tiny_run, tmp_path, monkeypatch, silent, shift):
    """A pixel in 5,000 is above 0.01 %; a runtime that fails is refused too."""

    def other(path, source, real=exporting.slim_run_masks):
        def masks(images):
            if shift == 0:
                raise RuntimeError("out of\norder")
            found = real(path, source)(images)
            found.reshape(-1)[::5000] += shift
            return found

        return masks

    monkeypatch.setattr(exporting, "slim_run_masks", other)
    sentence = "another class than the model on 0.02" if shift else "fails on images of shape .*out of order"
    with pytest.raises(faircl.UserError, match=sentence):
        faircl.export(tiny_run.path, "huggingface", tmp_path / "new/hf", reporter=silent())
    assert list(tmp_path.iterdir()) == []


def test_a_backbone_that_cannot_be_exported_says_what_can(tiny_run, tmp_path, monkeypatch):
    class WindowAttention(torch.nn.Identity):
        pass

    load = faircl.api.predicting.load

    def windowed(*args, **options):
        predictor = load(*args, **options)
        predictor.network.window = WindowAttention()
        return predictor

    monkeypatch.setattr("faircl.api.predicting.load", windowed)
    for to, name in (("onnx", "a.onnx"), ("torch", "a.pt2")):
        with pytest.raises(faircl.UserError, match="its format is huggingface"):
            faircl.export(tiny_run.path, to, tmp_path / name, reporter=SilentReporter())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_network_that_cannot_be_traced_says_why(tiny_run, tmp_path, monkeypatch):
    from faircl.models.small import Small

    def embed(self, image, attentions=False, real=Small.embed):
        return real(self, image if image.mean() > 0.5 else 1 - image, attentions)

    monkeypatch.setattr(Small, "embed", embed)
    for to, name in (("torch", "a.pt2"), ("onnx", "a.onnx")):
        with pytest.raises(faircl.UserError, match=r"torch cannot export network 'small'.*huggingface works"):
            faircl.export(tiny_run.path, to, tmp_path / name, reporter=SilentReporter())
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_what_it_did(tiny_run, tmp_path, cli):
    result = cli("export", tiny_run.path, "--to", "huggingface", "--out", tmp_path / "hf", "--json")
    assert result.code == 0
    about = json.loads(result.out)
    assert (about["path"], about["to"], about["step"], about["agreement"]) == (
        str(tmp_path / "hf"),
        "huggingface",
        1,
        1.0,
    )
    result = cli("export", tmp_path / "hf", "--to", "huggingface", "--out", tmp_path / "again")
    assert result.out.splitlines()[:2] == [
        f"wrote {tmp_path / 'again'}: step 1, 11 classes",
        f"same class as the model on 100.0000% of {about['pixels']:,} pixels",
    ]
