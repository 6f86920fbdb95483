"""Mistakes of ``faircl adopt``: one sentence, exit code 2, nothing written."""

import json
import shutil

import pytest
import torch

NAMES = "--classes=a,b,c,d"


def refused(cli, out, *args):
    """Call the command; return its sentence after checking that nothing was written."""
    before = sorted(out.parent.iterdir())
    result = cli("adopt", *args, "--out", out)
    assert result.code == 2, result.err
    assert result.out == ""
    assert sorted(out.parent.iterdir()) == before
    return result.err.strip().splitlines()[-1]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "run"


@pytest.fixture(autouse=True)
def _parent(out):
    out.parent.mkdir()


def test_sources(cli, out, tmp_path, segformer, tiny_run, deeplab):
    assert "There is no network at" in refused(cli, out, tmp_path / "nothing")
    assert "is a run of faircl already" in refused(cli, out, tiny_run.path)
    assert "is a run of faircl already, or a step of one" in refused(cli, out, tiny_run.step_path(0))
    assert "has no config.json" in refused(cli, out, tmp_path)
    other = tmp_path / "bert"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    assert "type 'bert'" in refused(cli, out, other)
    (other / "config.json").write_text('{"model_type": "segformer"}', encoding="utf-8")
    assert "has no weights" in refused(cli, out, other)
    (other / "config.json").write_text("{", encoding="utf-8")
    assert "Cannot read" in refused(cli, out, other)
    text = tmp_path / "notes.pth"
    text.write_text("hello", encoding="utf-8")
    assert "damaged or cut short" in refused(cli, out, text, NAMES)
    torch.save({"fc.weight": torch.zeros(2, 2)}, text)
    assert "of a network that is not known here (fc.weight, …)" in refused(cli, out, text, NAMES)
    shutil.copyfile(segformer[0] / "model.safetensors", tmp_path / "alone.safetensors")
    assert "weights of a SegFormer alone" in refused(cli, out, tmp_path / "alone.safetensors")
    state = deeplab[1].state_dict()
    torch.save({k: v for k, v in state.items() if not k.startswith("backbone.16")}, text)
    assert "a backbone that is not known here" in refused(cli, out, text, NAMES)
    torch.save({k: v for k, v in state.items() if k != "backbone.0.0.weight"}, text)
    assert "1 missing: backbone.features.0.0.weight" in refused(cli, out, text, NAMES)
    torch.save(state | {"classifier.4.bias": state["classifier.4.bias"] * float("nan")}, text)
    assert "are not finite" in refused(cli, out, text, NAMES)


class Evil:
    def __reduce__(self):
        return print, ("code ran",)


def test_code_in_a_pickle_is_not_run(cli, out, tmp_path, capfd):
    torch.save({"classifier.4.weight": Evil()}, tmp_path / "evil.pth")
    assert "hold more than tensors, and none of it was run" in refused(cli, out, tmp_path / "evil.pth", NAMES)


def test_names(cli, out, tmp_path, deeplab, segformer):
    path = deeplab[0]
    assert "has 4 classes and does not name them" in refused(cli, out, path)
    assert "Found 2 names for a network of 4" in refused(cli, out, path, "--classes=a,b")
    assert "Found 1 name for a network of 4" in refused(cli, out, path, "--classes=a")
    assert "Several classes are called 'a'" in refused(cli, out, path, "--classes=a,a,b,c")
    assert "Class 1 has an empty name" in refused(cli, out, path, "--classes=a,,b,c")
    assert "There is no file" in refused(cli, out, path, "--classes=names.txt")
    assert "no class 'voids' to be the background. Did you mean 'void'?" in refused(
        cli, out, path, "--classes=a,b,c,void", "--background=voids"
    )
    hub = tmp_path / "hub"
    shutil.copytree(segformer[0], hub)
    config = json.loads((hub / "config.json").read_text(encoding="utf-8"))
    (hub / "config.json").write_text(json.dumps(config | {"id2label": {"0": "a", "1": "b"}}), encoding="utf-8")
    assert "names 2 classes, but the classifier has 5" in refused(cli, out, hub)
    (hub / "config.json").write_text(json.dumps(config | {"sr_ratios": [8, 4, 2, 2]}), encoding="utf-8")
    assert "sr_ratios [8, 4, 2, 2], not [8, 4, 2, 1]" in refused(cli, out, hub)
    (hub / "config.json").write_text(json.dumps(config | {"depths": [1, 2, 2, 2]}), encoding="utf-8")
    assert "expected one of the published sizes" in refused(cli, out, hub)
    (hub / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (hub / "preprocessor_config.json").write_text('{"image_mean": [0.5, 0.5, 0.5]}', encoding="utf-8")
    assert "cannot take this network up" in refused(cli, out, hub)


@pytest.mark.slow
def test_images_and_data(cli, out, tmp_path, deeplab, street):
    path = deeplab[0]
    assert "given twice" in refused(cli, out, path, NAMES, "--images", street, "--data", "folder", "--root", street)
    assert "are of no kind" in refused(cli, out, path, NAMES, "--root", street)
    assert "There is no image or folder" in refused(cli, out, path, NAMES, "--images", tmp_path / "nowhere")
    assert "holds no image" in refused(cli, out, path, NAMES, "--images", out.parent)
    assert "have no class in common" in refused(cli, out, path, NAMES, "--data", "folder", "--root", street)
    assert "Unknown data set" in refused(cli, out, path, NAMES, "--data", "folders", "--root", street)
    assert "has no root" in refused(cli, out, path, NAMES, "--data", "scenes", "--root", street)
    (street / "broken.png").write_bytes(b"no picture")
    assert "broken.png" in refused(cli, out, path, NAMES, "--images", street)


@pytest.mark.slow
def test_networks_of_ours(cli, out, tmp_path, tiny_run, deeplab):
    weights = tmp_path / "weights.safetensors"
    shutil.copyfile(tiny_run.step_path(0) / "model.safetensors", weights)
    names = "--classes=background,a,b,c,d,e,f"
    assert "add --model NAME" in refused(cli, out, weights, names)
    assert "Unknown model 'smal'" in refused(cli, out, weights, names, "--model", "smal")
    assert "do not fit network 'small'" in refused(cli, out, weights, names, "--model", "small")
    assert "add --model NAME" in refused(cli, out, weights, names, "--set", "model.width=8")
    assert "leave them out" in refused(cli, out, deeplab[0], NAMES, "--model", "deeplabv3")
    assert "found mib: leave it out" in refused(cli, out, deeplab[0], NAMES, "--set", "method=mib")
    assert "train.crop" in refused(cli, out, deeplab[0], NAMES, "--set", "train.crop=small")


def test_an_output_that_is_there(cli, tmp_path, deeplab, tiny_run):
    places = (
        (tiny_run.path, "is not empty"),
        (deeplab[0], "is a file"),
        (deeplab[0] / "run", "Cannot make the output"),
    )
    for place, sentence in places:
        result = cli("adopt", deeplab[0], NAMES, "--out", place)
        assert (result.code, result.out) == (2, "")
        assert sentence in result.err


def test_the_present_folder_is_no_output(cli, tmp_path, deeplab, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli("adopt", deeplab[0], NAMES, "--out", ".")
    assert (result.code, result.out) == (2, "")
    assert "choose a new one in it" in result.err


@pytest.mark.slow
def test_a_network_that_computes_something_else_is_refused(cli, out, deeplab, monkeypatch):
    from faircl.deploy.adoption import torchvision_source

    monkeypatch.setattr(torchvision_source, "_RATES", [6, 12, 18])
    assert "differs from torchvision's deeplabv3_mobilenet_v3_large" in refused(cli, out, deeplab[0], NAMES)


@pytest.mark.slow
def test_json(cli, tmp_path, deeplab):
    settings = ("--set", "method.lambda_replay=0")  # a method without a memory of features
    result = cli("adopt", deeplab[0], NAMES, "--out", tmp_path / "run", "--json", *settings)
    assert result.code == 0
    about = json.loads(result.out)
    assert about["run"] == str(tmp_path / "run")
    assert [c["name"] for c in about["classes"]] == ["a", "b", "c", "d"]
