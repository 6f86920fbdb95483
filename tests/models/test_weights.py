"""Weight files with the keys of other libraries: features equal those of the library's network."""

import pytest
import timm
import torch
import torchvision
import transformers
from grids import grid
from network_tester import images, make
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from torchvision.models import segmentation
from weight_sources import (
    B0,
    DILATED,
    DINO_CONFIG,
    MOBILENET,
    RESNET,
    hub_names,
    loaded,
    mit_names,
    mobilenet_maps,
    normalised,
    replaced,
    resnet_maps,
    same_maps,
    same_segformer,
    trained,
    write,
)

from faircl.errors import UserError
from faircl.models.checkpoint_keys import to_timm_vit_keys

# ---- ResNet and MobileNetV2


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
def test_torchvision_mobilenet_v3(tmp_path):
    torch.manual_seed(3)
    config = {"name": "deeplabv3", "backbone": "mobilenet_v3_large", "rates": [12, 24, 36]}
    whole = trained(segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4))
    network = loaded(config, write(whole.state_dict(), tmp_path / "deeplab.pth"))
    x = whole.backbone(normalised(images(), network))["out"]
    torch.testing.assert_close(network(images()).stages[-1], x, rtol=1e-4, atol=1e-4)
    for layer in list(whole.classifier)[:-1]:
        x = layer(x)
    torch.testing.assert_close(network(images()).embedding, x, rtol=1e-4, atol=1e-4)
    classification = trained(torchvision.models.mobilenet_v3_large(weights=None, dilated=True))
    network = loaded(config, write(classification.state_dict(), tmp_path / "imagenet.pth"))
    expected = classification.features(normalised(images(), network))
    torch.testing.assert_close(network(images()).stages[-1], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="stride 16 only"):
        make(config | {"stride": 8})


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


@grid("whole", [True, False], ids=["classifier", "body"])
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


@pytest.mark.parametrize("file", ["weights.pth", "weights.safetensors"])
@pytest.mark.parametrize("names", [dict, hub_names], ids=["present", "hub"])
def test_segformer_for_segmentation(segformer, names, file, tmp_path):
    state = names(segformer.state_dict())
    assert ("segformer.encoder.block.2.1.attention.self.sr.weight" in state) == (names is hub_names)
    same_segformer(loaded(B0, write(state, tmp_path / file)), segformer)


def test_hub_names_are_those_transformers_reads(segformer, tmp_path):
    """transformers can read the keys that the renaming of this file gives."""
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


@grid("name", ["convnext_atto", "test_resnet", "swin_tiny_patch4_window7_224", "hrnet_w18_small"], quick=2)
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


@grid("names", [old_dino_names, prefixed_dino_names, original_dino_names], ids=["hub", "classifier", "first-release"])
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
    names = timm.models.vision_transformer.checkpoint_filter_fn(to_timm_vit_keys(state), gated)
    gated.load_state_dict(names, strict=True)
    batch = images(1, 28, 28)
    expected = plain(batch).last_hidden_state
    assert expected.std() > 0.1
    torch.testing.assert_close(gated.forward_features(batch), expected, rtol=1e-4, atol=1e-4)


def test_exported_weights_load_again(segformer, tmp_path):
    """Exported weights can be loaded again."""
    network = loaded(B0, write(segformer.state_dict(), tmp_path / "a.pth"))
    path = write(network.export_state_dict(), tmp_path / "b.safetensors")
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
