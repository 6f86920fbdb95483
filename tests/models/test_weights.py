"""Weights from files under other libraries' names: the network then computes the features of the one they come from."""

import copy
import pickle
import re
import warnings
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import timm
import torch
import torchvision
import transformers
from network_tester import enliven, images, make
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from torchvision.models import segmentation

from faircl.errors import UserError
from faircl.models.names import vit_names
from faircl.models.weights import read_weights

MOBILENET = {"name": "deeplabv3", "backbone": "mobilenet_v2"}
RESNET = {"name": "deeplabv3", "backbone": "resnet50", "head": "mib"}
B0 = {"name": "segformer", "variant": "b0"}
DILATED = (1, 1, 1, 2)
"""Every how many pixels of a stage at output stride 16 those of a network without dilation lie."""


def loaded(config, source):
    """Return a network that has read weights, with two classes and in evaluation."""
    torch.manual_seed(11)
    network = make(config | {"weights": str(source)})
    network.classifier.grow(2)
    network.load_pretrained()
    return network.eval()


def write(state, path, half=False):
    state = {key: value.half() if half and value.is_floating_point() else value for key, value in state.items()}
    if path.suffix == ".safetensors":
        save_file({key: value.contiguous() for key, value in state.items()}, path)
    else:
        torch.save(state, path)
    return path


@torch.no_grad()
def same_maps(network, expected, batch, steps=(1, 1, 1, 1), tolerance=1e-4):
    stages = network(batch).stages
    assert len(stages) == len(expected) == len(steps)
    for found, other, step in zip(stages, expected, steps, strict=True):
        assert other.std() > 0.01
        found = found[:, :, ::step, ::step]
        torch.testing.assert_close(found, other, rtol=0, atol=tolerance * max(1.0, other.abs().max().item()))


def normalised(batch, network):
    return (batch - network.mean) / network.std


@torch.no_grad()
def trained(plain, side=64):
    """Make a library's network look trained: no constant parameter, no constant statistic."""
    return enliven(plain, side)


# ---- ResNet and MobileNetV2


@pytest.fixture(scope="module")
def resnet():
    torch.manual_seed(1)
    return trained(torchvision.models.resnet50())


@pytest.fixture(scope="module")
def mobilenet():
    torch.manual_seed(2)
    return trained(torchvision.models.mobilenet_v2())


@torch.no_grad()
def resnet_maps(plain, image):
    x, maps = plain.maxpool(plain.relu(plain.bn1(plain.conv1(image)))), []
    for layer in (plain.layer1, plain.layer2, plain.layer3, plain.layer4):
        x = layer(x)
        maps.append(x)
    return maps


@torch.no_grad()
def mobilenet_maps(plain, image):
    return [plain.features[: end + 1](image) for end in (3, 6, 13, 17)]


@pytest.mark.parametrize("file", ["resnet.pth", "resnet.safetensors"])
@pytest.mark.parametrize("part", ["whole", "body"])
def test_torchvision_resnet(resnet, file, part, tmp_path):
    state = {key: value for key, value in resnet.state_dict().items() if part == "whole" or not key.startswith("fc.")}
    network = loaded(RESNET, write(state, tmp_path / file))
    same_maps(network, resnet_maps(resnet, normalised(images(), network)), images(), DILATED)


def test_torchvision_mobilenet(mobilenet, tmp_path):
    expected = mobilenet_maps(mobilenet, normalised(images(), make(MOBILENET)))
    for name in ("deeplabv3", "deeplabv3plus"):
        network = loaded(MOBILENET | {"name": name}, write(mobilenet.state_dict(), tmp_path / "weights.pth"))
        same_maps(network, expected, images(), DILATED)


@torch.no_grad()
def test_torchvision_segmentation_model_with_auxiliary_classifier(tmp_path):
    torch.manual_seed(3)
    plain = segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=4, aux_loss=True)
    trained(plain)
    path = write(plain.state_dict(), tmp_path / "deeplab.safetensors")
    network = loaded({"name": "deeplabv3", "backbone": "resnet50", "stride": 8}, path)
    x = plain.backbone(normalised(images(), network))["out"]
    for layer in list(plain.classifier)[:-1]:
        x = layer(x)
    torch.testing.assert_close(network(images()).embedding, x, rtol=1e-4, atol=1e-4)
    # Another head has another decoder: its backbone alone is loaded.
    other = loaded({"name": "deeplabv3", "backbone": "resnet50", "stride": 8, "head": "mib"}, path)
    torch.testing.assert_close(other(images()).stages, network(images()).stages)


@torch.no_grad()
def test_torchvision_segmentation_model_on_another_backbone(tmp_path):
    torch.manual_seed(3)
    plain = segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)
    path = write(plain.state_dict(), tmp_path / "lraspp.pth")
    with pytest.raises(UserError, match=r"do not fit network 'deeplabv3' with mobilenet_v2"):
        loaded(MOBILENET, path)


@torch.no_grad()
def test_timm_resnet(tmp_path):
    torch.manual_seed(4)
    plain = trained(timm.create_model("resnet50"))
    network = loaded(RESNET, write(plain.state_dict(), tmp_path / "timm.safetensors"))
    maps = plain.forward_intermediates(normalised(images(), network), intermediates_only=True)
    same_maps(network, maps[1:], images(), DILATED)


@torch.no_grad()
def test_timm_mobilenet(tmp_path):
    torch.manual_seed(5)
    plain = trained(timm.create_model("mobilenetv2_100"))
    network = loaded(MOBILENET, write(plain.state_dict(), tmp_path / "timm.safetensors"))
    maps = plain.forward_intermediates(normalised(images(), network), intermediates_only=True)
    same_maps(network, maps[1:], images(), DILATED)


@pytest.mark.parametrize("whole", [True, False], ids=["classifier", "body"])
@torch.no_grad()
def test_hugging_face_resnet(whole, tmp_path):
    torch.manual_seed(6)
    plain = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=3))
    trained(plain)
    state = (plain if whole else plain.resnet).state_dict()
    network = loaded(RESNET, write(state, tmp_path / "hf.safetensors"))
    hidden = plain(normalised(images(), network), output_hidden_states=True).hidden_states
    same_maps(network, hidden[1:], images(), DILATED)


@torch.no_grad()
def test_hugging_face_resnet_folder(tmp_path):
    torch.manual_seed(6)
    plain = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=3))
    trained(plain).save_pretrained(tmp_path)
    network = loaded(RESNET, tmp_path)
    hidden = plain(normalised(images(), network), output_hidden_states=True).hidden_states
    same_maps(network, hidden[1:], images(), DILATED)


# ---- SegFormer


@pytest.fixture(scope="module")
def segformer():
    torch.manual_seed(7)
    config = transformers.SegformerConfig(num_labels=4)
    return trained(transformers.SegformerForSemanticSegmentation(config))


HUB_NAMES = (
    ("stages.{s}.patch_embeddings.", "encoder.patch_embeddings.{s}."),
    ("stages.{s}.layer_norm.", "encoder.layer_norm.{s}."),
    ("stages.{s}.blocks.", "encoder.block.{s}."),
)
HUB_BLOCK_NAMES = {
    "attention.q_proj": "attention.self.query",
    "attention.k_proj": "attention.self.key",
    "attention.v_proj": "attention.self.value",
    "attention.sequence_reduction.sequence_reduction": "attention.self.sr",
    "attention.sequence_reduction.layer_norm": "attention.self.layer_norm",
    "attention.o_proj": "attention.output.dense",
    "layernorm_before": "layer_norm_1",
    "layernorm_after": "layer_norm_2",
    "mlp.fc1": "mlp.dense1",
    "mlp.fc2": "mlp.dense2",
    "decode_head.linear_projections": "decode_head.linear_c",
}
MIT_BLOCK_NAMES = {
    "attention.q_proj": "attn.q",
    "attention.k_proj": "attn.k",
    "attention.v_proj": "attn.v",
    "attention.sequence_reduction.sequence_reduction": "attn.sr",
    "attention.sequence_reduction.layer_norm": "attn.norm",
    "attention.o_proj": "attn.proj",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
}


def replaced(state, pairs):
    renamed = {}
    for key, value in state.items():
        for new, old in pairs:
            key = key.replace(new, old)
        renamed[key] = value
    assert len(renamed) == len(state)
    return renamed


def hub_names(state):
    """Return a state under the names of transformers 4, as files on the hub have them."""
    stages = [(new.format(s=s), old.format(s=s)) for s in range(4) for new, old in HUB_NAMES]
    return replaced(state, [*stages, *HUB_BLOCK_NAMES.items()])


def mit_names(state):
    """Return an encoder's state under the names of the first release, keys above values in one weight."""
    stages = []
    for s in range(4):
        stages += [(f"stages.{s}.patch_embeddings.layer_norm.", f"patch_embed{s + 1}.norm.")]
        stages += [(f"stages.{s}.patch_embeddings.", f"patch_embed{s + 1}.")]
        stages += [(f"stages.{s}.layer_norm.", f"norm{s + 1}."), (f"stages.{s}.blocks.", f"block{s + 1}.")]
    state = replaced(state, [*stages, *MIT_BLOCK_NAMES.items()])
    for key in [key for key in state if ".attn.k." in key]:
        keys, values = state.pop(key), state.pop(key.replace(".attn.k.", ".attn.v."))
        state[key.replace(".attn.k.", ".attn.kv.")] = torch.cat([keys, values])
    return state | {"head.weight": torch.zeros(1000, 256), "head.bias": torch.zeros(1000)}


@torch.no_grad()
def same_segformer(network, plain, decoder=True):
    batch = images(2, 65, 97)
    out = plain(normalised(batch, network), output_hidden_states=True)
    same_maps(network, out.hidden_states, batch)
    if decoder:
        logits = plain.decode_head.classifier(network(batch).embedding)
        torch.testing.assert_close(logits, out.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("file", ["weights.pth", "weights.safetensors"])
@pytest.mark.parametrize("names", [dict, hub_names], ids=["present", "hub"])
def test_segformer_for_segmentation(segformer, names, file, tmp_path):
    state = names(segformer.state_dict())
    assert ("segformer.encoder.block.2.1.attention.self.sr.weight" in state) == (names is hub_names)
    same_segformer(loaded(B0, write(state, tmp_path / file)), segformer)


def test_hub_names_are_those_transformers_reads(segformer, tmp_path):
    """A check of this file's own renaming."""
    segformer.config.save_pretrained(tmp_path)
    save_file(hub_names(segformer.state_dict()), tmp_path / "model.safetensors", {"format": "pt"})
    again, report = transformers.SegformerForSemanticSegmentation.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    for key, value in segformer.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
    same_segformer(loaded(B0, tmp_path), segformer)


@pytest.mark.parametrize("names", [dict, hub_names], ids=["present", "hub"])
def test_segformer_for_classification(segformer, names, tmp_path):
    plain = transformers.SegformerForImageClassification(transformers.SegformerConfig(num_labels=7))
    plain.segformer.load_state_dict(segformer.segformer.state_dict())
    network = loaded(B0, write(names(plain.state_dict()), tmp_path / "classifier.pth"))
    same_segformer(network, segformer, decoder=False)


@pytest.mark.parametrize("names", [dict, hub_names, mit_names], ids=["present", "hub", "first-release"])
def test_segformer_encoder(segformer, names, tmp_path):
    state = names(segformer.segformer.state_dict())
    assert ("block3.1.attn.kv.bias" in state) == (names is mit_names)
    network = loaded(B0, write(state, tmp_path / "mit.pth"))
    same_segformer(network, segformer, decoder=False)


def test_segformer_folder(segformer, tmp_path):
    segformer.save_pretrained(tmp_path)
    same_segformer(loaded(B0, tmp_path), segformer)


def test_bare_decoder_takes_the_encoder_of_a_whole_segformer(segformer, tmp_path):
    path = write(hub_names(segformer.state_dict()), tmp_path / "weights.pth")
    same_segformer(loaded(B0 | {"decoder": "bare"}, path), segformer, decoder=False)


# ---- timm


@pytest.mark.parametrize("name", ["convnext_atto", "test_resnet", "swin_tiny_patch4_window7_224", "hrnet_w18_small"])
@torch.no_grad()
def test_timm_features(name, tmp_path):
    torch.manual_seed(8)
    options = {"strict_img_size": False} if name.startswith("swin") else {}
    plain = timm.create_model(name, **options)
    trained(plain)
    network = loaded({"name": "timm", "backbone": name, "width": 16}, write(plain.state_dict(), tmp_path / "w.pth"))
    features = timm.create_model(name, features_only=True, **options).eval()
    state = {key.replace(".", "_"): value for key, value in plain.state_dict().items()}
    features.load_state_dict({key: state[key.replace(".", "_")] for key in features.state_dict()})
    maps = features(normalised(images(), network))[-4:]
    same_maps(network, [m.permute(0, 3, 1, 2) if name.startswith("swin") else m for m in maps], images())

    if hasattr(plain, "forward_intermediates") and not name.startswith(("swin", "hrnet")):
        own = plain.forward_intermediates(normalised(images(), network), intermediates_only=True)
        same_maps(network, own[-4:], images())


@torch.no_grad()
def test_timm_vit(tmp_path):
    torch.manual_seed(9)
    plain = timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True)
    trained(plain)
    path = write(plain.state_dict(), tmp_path / "vit.safetensors")
    network = loaded({"name": "vit", "backbone": "vit_tiny_patch16_224", "width": 16}, path)
    inputs = normalised(images(), network)
    maps = plain.forward_intermediates(inputs, indices=[2, 5, 8, 11], norm=True, intermediates_only=True)
    same_maps(network, maps, images())


@torch.no_grad()
def test_timm_vit_with_attention_pooling_and_rotary_positions(tmp_path):
    for name in ("test_vit3", "vit_small_patch16_dinov3"):
        torch.manual_seed(9)
        plain = timm.create_model(name, dynamic_img_size=True)
        trained(plain)
        network = loaded(
            {"name": "vit", "backbone": name, "width": 16, "layers": 1}, write(plain.state_dict(), tmp_path / "vit.pth")
        )
        inputs = normalised(images(), network)
        last = [len(plain.blocks) - 1]
        maps = plain.forward_intermediates(inputs, indices=last, norm=True, intermediates_only=True)
        same_maps(network, maps, images(), steps=(1,))


# ---- DINOv2

DINO = {"hidden_size": 384, "num_attention_heads": 6, "image_size": 518, "patch_size": 14}


def dino(registers):
    """transformers' DINOv2, and the network of the same architecture with its weights."""
    torch.manual_seed(10)
    if registers:
        made = transformers.Dinov2WithRegistersModel(transformers.Dinov2WithRegistersConfig(**DINO))
    else:
        made = transformers.Dinov2Model(transformers.Dinov2Config(**DINO))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.min() == parameter.max():
                parameter.normal_(std=0.1) if "bias" in name or "token" in name else parameter.uniform_(0.6, 1.4)
    return made.eval()


DINO_CONFIG = {
    False: {"name": "vit", "backbone": "vit_small_patch14_dinov2", "width": 16, "layers": 1},
    True: {"name": "vit", "backbone": "vit_small_patch14_reg4_dinov2", "width": 16, "layers": 1},
}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "registers"])
def dinos(request, tmp_path_factory):
    """A DINOv2 of transformers, and our network after reading it, at the image size where both agree on positions."""
    plain = dino(request.param)
    path = write(plain.state_dict(), tmp_path_factory.mktemp("dino") / "dino.safetensors")
    return request.param, plain, loaded(DINO_CONFIG[request.param], path)


@torch.no_grad()
def test_hugging_face_dinov2(dinos):
    registers, plain, network = dinos
    batch = images(1, 518, 518)
    tokens = plain(normalised(batch, network)).last_hidden_state[:, 5 if registers else 1 :]
    same_maps(network, [tokens.transpose(1, 2).unflatten(2, (37, 37))], batch, steps=(1,))


def old_dino_names(state):
    return replaced(
        state,
        [
            ("attention.q_proj", "attention.attention.query"),
            ("attention.k_proj", "attention.attention.key"),
            ("attention.v_proj", "attention.attention.value"),
            ("attention.o_proj", "attention.output.dense"),
        ],
    )


def prefixed_dino_names(state):
    prefix = "dinov2_with_registers." if "embeddings.register_tokens" in state else "dinov2."
    state = {prefix + key: value for key, value in state.items()}
    return state | {"classifier.weight": torch.zeros(3, 768), "classifier.bias": torch.zeros(3)}


def original_dino_names(state):
    """Return a state under the names of DINOv2's own release."""
    pairs = [
        ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
        ("embeddings.position_embeddings", "pos_embed"),
        ("embeddings.", ""),
        ("encoder.layer.", "blocks."),
        ("attention.o_proj", "attn.proj"),
        ("layernorm.", "norm."),
        ("layer_scale1.lambda1", "ls1.gamma"),
        ("layer_scale2.lambda1", "ls2.gamma"),
    ]
    state = replaced(state, pairs)
    for key in [key for key in state if ".attention.q_proj." in key]:
        three = [state.pop(key.replace(".q_proj.", f".{letter}_proj.")) for letter in "qkv"]
        state[key.replace(".attention.q_proj.", ".attn.qkv.")] = torch.cat(three)
    return state


@pytest.mark.parametrize(
    "names", [old_dino_names, prefixed_dino_names, original_dino_names], ids=["hub", "classifier", "first-release"]
)
def test_dinov2_under_other_names(dinos, names, tmp_path):
    registers, plain, network = dinos
    other = loaded(DINO_CONFIG[registers], write(names(plain.state_dict()), tmp_path / "dino.pth"))
    expected = network.backbone.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in other.backbone.state_dict().items())


@pytest.mark.parametrize("old", [False, True], ids=["present", "hub"])
@torch.no_grad()
def test_gated_dinov2(old, tmp_path):
    """The largest DINOv2 has gates; a small one stands for it, without the network around."""
    torch.manual_seed(13)
    config = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28}
    plain = transformers.Dinov2Model(transformers.Dinov2Config(**config, patch_size=14, use_swiglu_ffn=True)).eval()
    for parameter in plain.parameters():
        parameter.normal_(std=0.3)
    state = plain.state_dict()
    if old:
        for key in [key for key in state if ".mlp.gate_proj." in key]:
            gate, up = state.pop(key), state.pop(key.replace("gate_proj", "up_proj"))
            state[key.replace("gate_proj", "weights_in")] = torch.cat([gate, up])
            down = key.replace("gate_proj", "down_proj")
            state[down.replace("down_proj", "weights_out")] = state.pop(down)
    gated = timm.models.vision_transformer.VisionTransformer(
        img_size=28,
        patch_size=14,
        embed_dim=24,
        depth=2,
        num_heads=2,
        init_values=1.0,
        mlp_ratio=2 * 64 / 24,
        mlp_layer=timm.layers.SwiGLUPacked,
        act_layer=torch.nn.SiLU,
        num_classes=0,
    ).eval()
    names = timm.models.vision_transformer.checkpoint_filter_fn(vit_names(state), gated)
    gated.load_state_dict(names, strict=True)
    batch = images(1, 28, 28)
    expected = plain(batch).last_hidden_state
    assert expected.std() > 0.1
    torch.testing.assert_close(gated.forward_features(batch), expected, rtol=1e-4, atol=1e-4)


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
    """Runs when unpickled without care."""

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


def one_sentence(message, source):
    assert "\n" not in message
    assert message.endswith(".")
    assert not message.endswith("..")
    assert str(source) in message


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
    """Wherever a file is cut or a byte of it is wrong: weights or a sentence, never another error."""
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
    """A check of this file's own trap."""
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


# ---- downloads

OFFLINE = [URLError("[Errno -3] Temporary failure in name resolution"), OSError("cannot\nconnect.")]


def loader(config, monkeypatch, answer):
    """Let the library's own loader give an answer: an error to raise, or a function that makes a network."""

    def load(*args, **options):
        if isinstance(answer, Exception):
            raise answer
        return answer(*args, **options)

    if config["name"].startswith("deeplab"):
        monkeypatch.setattr(torchvision.models._api, "load_state_dict_from_url", load)
    elif config["name"] == "segformer":
        monkeypatch.setattr(transformers.SegformerModel, "from_pretrained", load)
    else:
        create = timm.create_model
        monkeypatch.setattr(timm, "create_model", lambda *a, **k: (load if k.get("pretrained") else create)(*a, **k))
    return make(config)


LIBRARIES = [
    MOBILENET,
    {"name": "deeplabv3plus", "backbone": "resnet50"},
    B0,
    {"name": "timm", "backbone": "test_resnet", "width": 16},
    {"name": "vit", "backbone": "test_vit", "width": 16},
]


@pytest.mark.parametrize("error", OFFLINE, ids=["URLError", "OSError"])
@pytest.mark.parametrize("config", LIBRARIES, ids=lambda config: config["name"])
def test_offline(config, error, monkeypatch):
    network = loader(config | {"weights": "imagenet"}, monkeypatch, error)
    with pytest.raises(
        UserError, match=r"Cannot download the weights of .*give a local file as model\.weights"
    ) as caught:
        network.load_pretrained()
    one_sentence(str(caught.value), type(error).__name__)
    assert "name resolution" in str(caught.value) or "cannot connect)" in str(caught.value)


@pytest.mark.parametrize("word", ["imagenet", "pretrained"])
@torch.no_grad()
def test_downloaded_torchvision(mobilenet, word, monkeypatch):
    asked = []
    network = loader(
        MOBILENET | {"weights": word}, monkeypatch, lambda url, **_: [asked.append(url), mobilenet.state_dict()][1]
    )
    network.classifier.grow(2)
    network.eval().load_pretrained()
    same_maps(network, mobilenet_maps(mobilenet, normalised(images(), network)), images(), DILATED)
    assert len(asked) == 1
    assert "mobilenet_v2" in asked[0]


def test_downloaded_segformer(segformer, monkeypatch):
    asked = []
    network = loader(
        B0 | {"weights": "imagenet"}, monkeypatch, lambda name, **_: [asked.append(name), segformer.segformer][1]
    )
    network.classifier.grow(2)
    network.eval().load_pretrained()
    same_segformer(network, segformer, decoder=False)
    assert asked == ["nvidia/mit-b0"]


@pytest.mark.parametrize("config", LIBRARIES[-2:], ids=["timm", "vit"])
def test_downloaded_timm(config, monkeypatch):
    create, sources = timm.create_model, []

    def trained_model(*args, pretrained, **options):
        assert args == (config["backbone"],)
        if not {"strict_img_size"} & set(options):
            sources.append(trained(create(*args, **options)))
            return sources[-1]
        return create(*args, **options)

    network = loader(config | {"weights": "imagenet"}, monkeypatch, trained_model)
    network.load_pretrained()
    assert len(sources) == 1
    expected = sources[0].state_dict()
    found = network.backbone.net.state_dict()
    assert found
    assert all(torch.equal(value, expected[key]) for key, value in found.items())


def test_names_timm_does_not_have():
    for name, wrong, words in (
        ("timm", "resnet_18", "timm has no model 'resnet_18'. Did you mean 'resnet"),
        ("vit", "vit_tiny_patch16", "timm has no model 'vit_tiny_patch16'. Did you mean 'vit_"),
        ("vit", "resnet18", "timm's resnet18 is no plain vision transformer"),
        ("vit", "xcit_nano_12_p16_224", "is no plain vision transformer"),
        ("vit", "vit_relpos_small_patch16_224", "takes images of certain sizes only"),
        ("timm", "mixer_s16_224", "takes images of certain sizes only"),
        ("timm", "coat_lite_tiny", "timm's coat_lite_tiny cannot be used here"),
    ):
        with pytest.raises(UserError, match=re.escape(words)) as caught:
            make({"name": name, "backbone": wrong})
        one_sentence(str(caught.value), wrong)
    with pytest.raises(UserError, match=r"model\.layers: vit_tiny_patch16_224 has 12 blocks, found 13\.") as caught:
        make({"name": "vit", "backbone": "vit_tiny_patch16_224", "layers": 13})
    one_sentence(str(caught.value), "vit_tiny_patch16_224")


def test_exported_weights_load_again(segformer, tmp_path):
    """What a network gives to a library it takes back."""
    network = loaded(B0, write(segformer.state_dict(), tmp_path / "a.pth"))
    path = write(network.library_state(), tmp_path / "b.safetensors")
    assert set(load_file(path)) == set(segformer.state_dict())
    again = loaded(B0, path)
    assert all(torch.equal(v, network.state_dict()[k]) for k, v in again.state_dict().items())


@torch.no_grad()
def test_positions_are_fitted_to_the_networks_grid(tmp_path):
    torch.manual_seed(12)
    plain = trained(timm.create_model("vit_tiny_patch16_224", img_size=96), side=96)
    path = write(plain.state_dict(), tmp_path / "small.pth")
    network = loaded({"name": "vit", "backbone": "vit_tiny_patch16_224", "width": 16}, path)
    assert network.backbone.net.pos_embed.shape == (1, 1 + 14 * 14, 192)
    grid = plain.pos_embed[:, 1:].transpose(1, 2).unflatten(2, (6, 6))
    fitted = F.interpolate(grid, (14, 14), mode="bicubic", antialias=True)
    torch.testing.assert_close(network.backbone.net.pos_embed[:, 1:], fitted.flatten(2).transpose(1, 2))


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
