"""Kinds of weight files, and files that do not fit or are damaged."""

import copy
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from network_tester import images, make
from weight_sources import (
    B0,
    DILATED,
    MOBILENET,
    loaded,
    mit_names,
    mobilenet_maps,
    normalised,
    one_sentence,
    same_maps,
    write,
)

from faircl.errors import UserError
from faircl.models.weights import read_weights

# ---- kinds of files


@pytest.mark.parametrize("file", ["half.pth", "half.safetensors"])
def test_half_precision(mobilenet, file, tmp_path):
    network = loaded(MOBILENET, write(mobilenet.state_dict(), tmp_path / file, half=True))
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    rounded = copy.deepcopy(mobilenet).half().float()
    same_maps(network, mobilenet_maps(rounded, normalised(images(), network)), images(), DILATED)


def without_counters(state):
    return {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}


def parallel(state):
    return {f"module.{key}": value for key, value in state.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        without_counters,
        parallel,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "optimizer": {"lr": 0.1}},
        lambda state: {"state_dict": parallel(state), "args": None},
        lambda state: {"model": {"state_dict": state}},
        lambda state: state | {"epoch": 3},
    ],
    ids=["no-counters", "parallel", "state_dict", "model", "state_dict-parallel", "nested", "beside"],
)
def test_wrapped(mobilenet, wrap, tmp_path):
    torch.save(wrap(mobilenet.state_dict()), tmp_path / "checkpoint.pth")
    network = loaded(MOBILENET, tmp_path / "checkpoint.pth")
    expected = without_counters(mobilenet.state_dict())
    for key, value in without_counters(network.backbone.state_dict()).items():
        assert torch.equal(value, expected[key]), key


def test_old_kind_of_pickle(mobilenet, tmp_path):
    torch.save(mobilenet.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    network = loaded(MOBILENET, tmp_path / "old.pth")
    same_maps(network, mobilenet_maps(mobilenet, normalised(images(), network)), images(), DILATED)


def test_home_folder(mobilenet, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(mobilenet.state_dict(), tmp_path / "w.pth")
    network = loaded(MOBILENET, "~/w.pth")
    assert torch.equal(network.backbone.state_dict()["features.0.0.weight"], mobilenet.features[0][0].weight)


def test_none_leaves_the_random_start():
    torch.manual_seed(0)
    network = make(MOBILENET)
    before = copy.deepcopy(network.state_dict())
    network.load_pretrained()
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())


# ---- wrong files


class Code:
    """An object whose unpickling executes code."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return (exec, (f"open({str(self.marker)!r}, 'w').close()",))


def broken(state, key, value):
    state = dict(state)
    state[key] = state[key].clone()
    state[key].view(-1)[0] = value
    return state


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_wrong(kind, state, folder):
    """Write a file of a wrong kind and return its path; ``code`` would write a file 'marker'."""
    path = folder / ("weights.safetensors" if kind.endswith("safetensors") else "weights.pth")
    if kind == "shapes":
        torch.save(torchvision.models.mobilenet_v2(width_mult=0.5).state_dict(), path)
    elif kind == "one shape":
        torch.save(state | {"features.0.1.weight": torch.ones(31)}, path)
    elif kind == "another network":
        torch.save(torchvision.models.resnet18().state_dict(), path)
    elif kind == "one missing":
        torch.save({key: value for key, value in state.items() if key != "features.0.1.weight"}, path)
    elif kind == "one too many":
        torch.save(state | {"features.0.9.weight": torch.ones(1)}, path)
    elif kind == "arrays":
        with path.open("wb") as file:
            pickle.dump({"weight": np.ones(3)}, file)
    elif kind == "cut old":
        torch.save(state, path, _use_new_zipfile_serialization=False)
        path.write_bytes(path.read_bytes()[:30])
    elif kind == "long name":
        path = folder / ("w" * 300 + ".pth")
    elif kind == "nobody's":
        path = Path("~nobody-of-this-name/weights.pth")
    elif kind.startswith("cut"):
        write(state, path)
        cut(path)
    elif kind in ("empty", "empty safetensors"):
        path.write_bytes(b"")
    elif kind.startswith("text"):
        path.write_text("These are no weights.\nNot at all.\n")
    elif kind == "code":
        torch.save(state | {"more": Code(folder / "marker")}, path)
    elif kind == "old code":
        torch.save({"more": Code(folder / "marker")}, path, _use_new_zipfile_serialization=False)
    elif kind == "whole module":
        torch.save(torchvision.models.mobilenet_v2(), path)
    elif kind == "list":
        torch.save([state["features.0.0.weight"]], path)
    elif kind == "tensor":
        torch.save(state["features.0.0.weight"], path)
    elif kind == "no tensors":
        torch.save({"epoch": 3, "lr": 0.1}, path)
    elif kind == "no entries":
        torch.save({}, path)
    elif kind == "nan":
        torch.save(broken(state, "features.3.conv.2.weight", float("nan")), path)
    elif kind == "infinite":
        torch.save(broken(state, "features.3.conv.3.running_var", float("inf")), path)
    elif kind == "empty folder":
        path = folder / "folder"
        path.mkdir()
    else:
        assert kind == "missing"
    return path


WRONG = {
    "shapes": "of another shape: features.0.0.weight (found 16×3×3×3, expected 32×3×3×3)",
    "one shape": "1 of another shape: features.0.1.weight (found 31, expected 32)",
    "another network": "do not fit network 'deeplabv3' with mobilenet_v2",
    "one missing": "1 missing: features.0.1.weight",
    "one too many": "1 unexpected: features.0.9.weight",
    "cut": "damaged or cut short",
    "cut safetensors": "damaged or cut short",
    "empty": "damaged or cut short",
    "empty safetensors": "damaged or cut short",
    "text": "torch did not write it; the file is damaged or cut short",
    "text safetensors": "damaged or cut short",
    "arrays": "torch did not write it",
    "cut old": "damaged or cut short",
    "long name": "There are no weights at",
    "nobody's": "There are no weights at",
    "code": "hold more than tensors, and none of it was run",
    "old code": "hold more than tensors, and none of it was run",
    "whole module": "hold more than tensors, and none of it was run",
    "list": "are a list; expected names with tensors",
    "tensor": "expected names with tensors",
    "no tensors": "hold no tensors",
    "no entries": "hold no tensors",
    "nan": "not finite: features.3.conv.2.weight",
    "infinite": "not finite: features.3.conv.3.running_var",
    "missing": "There are no weights at",
    "empty folder": "There are no weights at",
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_weights(kind, mobilenet, tmp_path):
    path = make_wrong(kind, mobilenet.state_dict(), tmp_path)
    network = make(MOBILENET | {"weights": str(path)})
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(UserError, match=re.escape(WRONG[kind])) as caught:
        network.load_pretrained()
    one_sentence(str(caught.value), path)
    assert not (tmp_path / "marker").exists()
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key])


def test_nothing_is_said_beside_the_sentence(mobilenet, tmp_path):
    path = make_wrong("arrays", mobilenet.state_dict(), tmp_path)
    with warnings.catch_warnings(record=True) as said, pytest.raises(UserError):
        read_weights(str(path))
    assert said == []


@pytest.mark.parametrize("kind", ["new.pth", "old.pth", "new.safetensors"])
def test_damage_anywhere(kind, tmp_path):
    """A file cut anywhere or with any wrong byte gives weights or a UserError, never another error."""
    path = tmp_path / kind
    state = {"a.weight": torch.arange(12.0).view(3, 4), "a.bias": torch.ones(3)}
    if kind == "old.pth":
        torch.save(state, path, _use_new_zipfile_serialization=False)
    else:
        write(state, path)
    assert read_weights(str(path)).keys() == state.keys()
    content, refused = path.read_bytes(), 0
    step = max(1, len(content) // 150)
    cuts = [content[:end] for end in range(0, len(content), step)]
    flips = [content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :] for at in range(0, len(content), step)]
    for damaged in cuts + flips:
        path.write_bytes(damaged)
        try:
            assert all(isinstance(value, torch.Tensor) for value in read_weights(str(path)).values())
        except UserError as error:
            one_sentence(str(error), path)
            refused += 1
    assert refused >= len(cuts) - 2


def test_the_code_in_the_wrong_file_would_run(mobilenet, tmp_path):
    """Unpickling the object does execute code: the other tests would notice."""
    for kind in ("code", "old code"):
        path = make_wrong(kind, mobilenet.state_dict(), tmp_path)
        torch.load(path, weights_only=False)
        assert (tmp_path / "marker").exists()
        (tmp_path / "marker").unlink()


@pytest.mark.parametrize(
    ("config", "label"),
    [
        (B0, "network 'segformer' b0"),
        ({"name": "timm", "backbone": "convnext_atto"}, "network 'timm' with convnext_atto"),
        ({"name": "vit", "backbone": "vit_tiny_patch16_224"}, "network 'vit' with vit_tiny_patch16_224"),
        ({"name": "deeplabv3plus", "backbone": "resnet50"}, "network 'deeplabv3plus' with resnet50"),
    ],
)
def test_weights_of_another_network(config, label, mobilenet, tmp_path):
    path = write(mobilenet.state_dict(), tmp_path / "mobilenet.safetensors")
    with pytest.raises(UserError, match=f"do not fit {label}") as caught:
        loaded(config, path)
    one_sentence(str(caught.value), path)


def test_weights_of_another_size(segformer, dinos, tmp_path):
    path = write(segformer.state_dict(), tmp_path / "b0.safetensors")
    with pytest.raises(UserError, match="do not fit network 'segformer' b1") as caught:
        loaded(B0 | {"variant": "b1"}, path)
    one_sentence(str(caught.value), path)
    path = write(dinos[1].state_dict(), tmp_path / "dino.safetensors")
    with pytest.raises(UserError, match="do not fit network 'vit' with vit_tiny_patch16_224") as caught:
        loaded({"name": "vit", "backbone": "vit_tiny_patch16_224"}, path)
    one_sentence(str(caught.value), path)


def test_patches_of_another_size_are_not_resampled(tmp_path):
    plain = timm.create_model("vit_tiny_patch16_224")
    state = plain.state_dict()
    state["patch_embed.proj.weight"] = torch.rand(192, 3, 32, 32)
    source = write(state, tmp_path / "patch32.safetensors")
    with pytest.raises(UserError, match=r"patch_embed\.proj\.weight \(found 192×3×32×32, expected 192×3×16×16\)"):
        loaded({"name": "vit", "backbone": "vit_tiny_patch16_224"}, source)


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenetv3_small_100"])
def test_a_relative_of_mobilenet_is_another_network(name, tmp_path):
    source = write(timm.create_model(name).state_dict(), tmp_path / "relative.safetensors")
    with pytest.raises(UserError, match="do not fit network 'deeplabv3' with mobilenet_v2"):
        loaded(MOBILENET, source)


def test_keys_and_values_that_cannot_be_told_apart_are_damage(segformer, tmp_path):
    state = mit_names(segformer.segformer.state_dict())
    state = {key: value[:1] if ".attn.kv." in key else value for key, value in state.items()}
    source = write(state, tmp_path / "cut.safetensors")
    with pytest.raises(UserError, match="damaged") as caught:
        loaded(B0, source)
    one_sentence(str(caught.value), source)
