"""Exports of larger networks, run by ONNX Runtime, by torch without faircl and by transformers alone."""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from exported import BATCHES, NETWORKS, SIZES, agreement, photos
from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation, SegformerForSemanticSegmentation

import faircl
from faircl.deploy.exporting.contract import ExportedNetwork, Source
from faircl.deploy.exporting.onnx_file import onnx_masks, write_onnx
from faircl.progress import SilentReporter

pytestmark = pytest.mark.slow

WITHOUT_FAIRCL = """
import sys
sys.modules["faircl"] = None  # an import of it fails
import numpy, torch

module = torch.export.load(sys.argv[1]).module()
for path in sys.argv[2:]:
    numpy.save(path, module(torch.from_numpy(numpy.load(path)))[0].numpy())
assert not any(name.startswith("faircl.") for name in sys.modules)
"""


@pytest.fixture(scope="module", params=NETWORKS)
def run(request, tiny_train, tmp_path_factory):
    return tiny_train(tmp_path_factory.mktemp(request.param) / "run", NETWORKS[request.param], "train.epochs=1").path


def export(run, to, out, **options):
    done = faircl.export(run, to, out, reporter=SilentReporter(), **options)
    assert done.agreement >= 0.9999
    return done


def onnx_runtime(path):
    session = onnxruntime.InferenceSession(path)
    return lambda images: session.run(["mask"], {"image": images})[0]


def loaded_torch(path):
    module = torch.export.load(path).module()
    return lambda images: module(torch.from_numpy(images))[0].numpy()


def test_onnx_runtime_gives_the_same_masks(run, tmp_path):
    assert agreement(run, onnx_runtime(export(run, "onnx", tmp_path / "a.onnx").path)) >= 0.9999


def test_torch_gives_the_same_masks_without_faircl(run, tmp_path):
    path = export(run, "torch", tmp_path / "a.pt2").path
    files = {}
    for height, width in SIZES:
        for batch in BATCHES:
            files[batch, height, width] = tmp_path / f"{batch}-{height}-{width}.npy"
            np.save(files[batch, height, width], photos(batch, height, width))
    subprocess.run([sys.executable, "-c", WITHOUT_FAIRCL, path, *files.values()], check=True)

    def masks(images):
        batch, _, height, width = images.shape
        return np.load(files[batch, height, width])

    assert agreement(run, masks) >= 0.9999


def test_faircl_loads_the_folder_of_every_network(run, tmp_path):
    path = export(run, "huggingface", tmp_path / "hf").path
    predictor = faircl.load(path)
    assert agreement(run, lambda images: np.stack([predictor.predict(torch.from_numpy(i)).mask for i in images])) == 1


# ---- transformers


@pytest.fixture(scope="module")
def segformer(tiny_train, tmp_path_factory):
    return tiny_train(tmp_path_factory.mktemp("segformer") / "run", NETWORKS["segformer"], "train.epochs=1").path


@pytest.mark.parametrize("step", [0, 1])
def test_transformers_gives_the_same_masks(segformer, tmp_path, step):
    path = export(segformer, "huggingface", tmp_path / "hf", step=step).path
    processor = AutoImageProcessor.from_pretrained(path)
    model = AutoModelForSemanticSegmentation.from_pretrained(path).eval()
    assert isinstance(model, SegformerForSemanticSegmentation)
    names = faircl.load(segformer, step).names
    assert model.config.id2label == dict(enumerate(names.values()))
    assert model.config.label2id == {name: label for label, name in enumerate(names.values())}
    ids = np.array([id for id, name in names.items()])

    @torch.no_grad()
    def masks(images):
        inputs = processor(images=[image.transpose(1, 2, 0) for image in images], return_tensors="pt")
        found = processor.post_process_semantic_segmentation(model(**inputs), [images.shape[-2:]] * len(images))
        return ids[torch.stack(found).numpy()]

    assert agreement(segformer, masks, step) >= 0.9999
    assert "library_name: transformers" in (path / "README.md").read_text()


def test_what_transformers_lacks_is_said(tiny_train, tmp_path):
    cases = {
        "bare decoder": ("model={name: segformer, variant: b0, weights: none, decoder: bare}",),
        "head for unknown pixels": (NETWORKS["segformer"], "method={name: ssul}"),
    }
    for number, (part, settings) in enumerate(cases.items()):
        run = tiny_train(tmp_path / f"run{number}", *settings, "train.epochs=1").path
        done = export(run, "huggingface", tmp_path / f"hf{number}")
        assert f"has no {part}" in done.note
        assert sorted(path.name for path in done.path.iterdir()) == ["README.md", "faircl"]


# ---- other networks and methods


@pytest.mark.parametrize(
    "settings",
    [
        ["model={name: deeplabv3plus, backbone: mobilenet_v2, weights: none}"],
        ["model={name: timm, backbone: convnext_atto, weights: none}"],
        ["model={name: vit, backbone: vit_tiny_patch16_224, weights: none}"],
        ["method={name: ssul}"],
        ["method={name: rcil}"],
        ["method={name: joint}"],
    ],
    ids=["deeplabv3plus", "timm", "vit", "ssul", "rcil", "joint"],
)
def test_networks_and_methods(tiny_train, tmp_path, settings):
    run = tiny_train(tmp_path / "run", *settings, "train.epochs=1").path
    assert agreement(run, onnx_runtime(export(run, "onnx", tmp_path / "a.onnx").path)) >= 0.9999
    assert agreement(run, loaded_torch(export(run, "torch", tmp_path / "a.pt2").path)) >= 0.9999
    folder = export(run, "huggingface", tmp_path / "hf").path
    (again,) = faircl.evaluate(folder, reporter=SilentReporter())
    assert again.to_json() == faircl.open_run(run).final.to_json()


def test_a_backbone_with_windows_is_refused(tiny_train, tmp_path):
    model = "model={name: timm, backbone: swin_tiny_patch4_window7_224, weights: none}"
    run = tiny_train(tmp_path / "run", model, "train.epochs=1").path
    with pytest.raises(faircl.UserError, match="its format is huggingface"):
        export(run, "onnx", tmp_path / "a.onnx")
    export(run, "huggingface", tmp_path / "hf")


@pytest.mark.parametrize("opset", [18, 23])
def test_other_opsets(tiny_run, tmp_path, opset):
    import onnx

    path = export(tiny_run.path, "onnx", tmp_path / "a.onnx", opset=opset).path
    assert [entry.version for entry in onnx.load(path).opset_import if not entry.domain] == [opset]
    assert agreement(tiny_run.path, onnx_runtime(path)) >= 0.9999


def test_more_classes_than_a_byte_holds(tiny_run, tmp_path):
    from dataclasses import replace

    from faircl.data.sample import Classes

    predictor, scenario = faircl.load(tiny_run.path, device="cpu"), tiny_run.load_scenario()
    ids = tuple(range(290, 300))
    steps = (replace(scenario.steps[0], classes=ids),)
    large = replace(scenario, classes=Classes(tuple(f"c{n}" for n in range(300)), background=True), steps=steps)
    names = {0: "c0"} | {id: f"c{id}" for id in ids}
    colours = dict.fromkeys(names, (0, 0, 0))
    source = Source(tiny_run, tiny_run.config(), predictor.network, large, 0, names, colours, predictor.reading, None)
    write_onnx(source, tmp_path / "a.onnx")
    images = photos(2, 40, 50)
    found = onnx_masks(tmp_path / "a.onnx")(images)
    assert found.dtype == np.int32
    assert np.array_equal(found, ExportedNetwork(source)(torch.from_numpy(images))[0].numpy())
    assert json.loads(onnxruntime.InferenceSession(tmp_path / "a.onnx").get_modelmeta().custom_metadata_map["channels"])
    assert set(np.unique(found)) <= {0, *ids}
