"""Starting weights and networks from the command line: what does not fit is one sentence, and no run folder is made."""

import pickle

import numpy as np
import pytest
import torch
import torchvision
from grids import grid
from safetensors.torch import load_file, save_file

FIT = "do not fit network 'deeplabv3' with mobilenet_v2"
DAMAGED = "damaged or cut short"


class Code:
    """Runs when unpickled without care."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (exec, (f"open({str(self.marker)!r}, 'w').close()",))


@pytest.fixture(scope="session")
def tiny_flags(tiny_flags):
    """The small settings without those of the small network."""
    kept = [setting for setting in tiny_flags[1::2] if not setting.startswith("model.")]
    return [part for setting in kept for part in ("--set", setting)]


@pytest.fixture(scope="module")
def mobilenet():
    torch.manual_seed(0)
    return torchvision.models.mobilenet_v2().state_dict()


@pytest.fixture
def weights(tmp_path):
    return tmp_path / "weights.pth"


def model(path, name="deeplabv3", backbone="mobilenet_v2", more=""):
    return f"model={{name: {name}, backbone: {backbone}, weights: '{path}'{more}}}"


@pytest.fixture
def wrong(train, weights, tmp_path):
    """Train with weights that must be refused by a sentence that names them."""

    def check(words, path=weights):
        train(words, model(path))
        train(f"{path}", model(path))
        assert not (tmp_path / "marker").exists()

    return check


def test_other_shapes(wrong, weights):
    torch.save(torchvision.models.mobilenet_v2(width_mult=0.5).state_dict(), weights)
    wrong("of another shape: features.0.0.weight (found 16×3×3×3, expected 32×3×3×3)")


def test_another_network(wrong, weights):
    torch.save(torchvision.models.resnet18().state_dict(), weights)
    wrong(FIT)


@grid("part", [0.5, 0, 0.01, 0.99])
@pytest.mark.parametrize("kind", ["safetensors", "new", "old"])
def test_cut_short(wrong, mobilenet, tmp_path, kind, part):
    path = tmp_path / ("weights.safetensors" if kind == "safetensors" else "weights.pth")
    if kind == "safetensors":
        save_file(mobilenet, path)
    else:
        torch.save(mobilenet, path, _use_new_zipfile_serialization=kind == "new")
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    wrong(DAMAGED, path)


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors", "weights"])
def test_text(wrong, tmp_path, name):
    (tmp_path / name).write_text("<!DOCTYPE html>\n<html>Not found</html>\n")
    wrong(DAMAGED, tmp_path / name)


def test_arrays(wrong, weights):
    with weights.open("wb") as file:
        pickle.dump({"weight": np.ones(3)}, file)
    wrong(DAMAGED)


def test_code_is_not_run(wrong, weights, mobilenet, tmp_path):
    torch.save(mobilenet | {"more": Code(tmp_path / "marker")}, weights)
    wrong("none of it was run")
    torch.load(weights, weights_only=False)
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([torch.ones(2)], "are a list"),
        (torch.ones(2), "are a Tensor"),
        ({"epoch": 3}, "hold no tensors"),
        ({"features.0.0.weight": torch.ones(32, 3, 3, 3)}, "missing: features.0.1.weight"),
    ],
)
def test_other_contents(wrong, weights, content, words):
    torch.save(content, weights)
    wrong(words)


def test_not_a_number(wrong, weights, mobilenet):
    state = mobilenet | {"features.0.1.bias": torch.full((32,), float("nan"))}
    torch.save(state, weights)
    wrong("not finite: features.0.1.bias")


def test_missing(wrong):
    wrong("There are no weights at")


def test_folder_without_weights(wrong, tmp_path):
    (tmp_path / "folder").mkdir()
    wrong("There are no weights at", tmp_path / "folder")


def test_offline(train, monkeypatch):
    def fail(*args, **options):
        raise OSError("no\nnetwork")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fail)
    train("Cannot download the weights of torchvision's mobilenet_v2 (OSError: no network)", model("imagenet"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("{name: timm, backbone: convnext_tinny}", "timm has no model 'convnext_tinny'. Did you mean 'convnext_tiny'?"),
        ("{name: timm, backbone: mixer_s16_224}", "takes images of certain sizes only"),
        ("{name: vit, backbone: vit_tiny}", "timm has no model 'vit_tiny'."),
        ("{name: vit, backbone: resnet18}", "timm's resnet18 is no plain vision transformer"),
        ("{name: vit, backbone: vit_relpos_small_patch16_224}", "takes images of certain sizes only"),
        ("{name: vit, backbone: vit_tiny_patch16_224, layers: 13}", "vit_tiny_patch16_224 has 12 blocks, found 13"),
        ("{name: vit, layers: 0}", "model.layers"),
        ("{name: deeplabv3, backbone: resnet18}", "model.backbone"),
        ("{name: deeplabv3, stride: 4}", "model.stride"),
        ("{name: deeplabv3plus, head: mib}", "Unknown setting"),
        ("{name: deeplabv3, rates: [6, 12]}", "model.rates"),
        ("{name: segformer, variant: b6}", "model.variant"),
        ("{name: segformer, drop_path: 1}", "model.drop_path"),
    ],
)
def test_networks_there_are_not(train, setting, words):
    train(words, f"model={setting}")


def test_pooled_branch_needs_two_images(train):
    train("needs at least two per process", "model={name: deeplabv3, backbone: mobilenet_v2}", "train.batch=1")


def test_right_weights_are_where_training_starts(cli, tiny_flags, weights, mobilenet, tmp_path):
    torch.save({"state_dict": mobilenet}, weights)
    settings = (model(weights), "optim.parts.backbone=0", "method=finetune")
    flags = [part for setting in settings for part in ("--set", setting)]
    result = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags, *flags)
    assert result.code == 0, result.err
    kept = sorted((tmp_path / "run").rglob("model.safetensors"))
    assert kept
    for file in kept:
        state = {key.removeprefix("backbone."): value for key, value in load_file(file).items()}
        frozen = [key for key in mobilenet if key in state]
        assert len(frozen) == len([key for key in state if key.startswith("features.")]) > 100
        assert all(torch.equal(state[key], mobilenet[key]) for key in frozen)
