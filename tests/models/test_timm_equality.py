"""Networks around timm's backbones against timm: same maps, same attention."""

import timm
import torch
from grids import grid
from network_tester import close, images, lively
from torch.nn import functional as F
from torchvision.transforms.functional import normalize


@grid(
    ("name", "chosen"),
    [
        ("resnet18", slice(1, None)),
        ("convnext_atto", slice(None)),
        ("swin_tiny_patch4_window7_224", slice(None)),
        ("hrnet_w18_small", slice(1, None)),
    ],
    quick=2,
)
@torch.no_grad()
def test_feature_maps_are_timms(name, chosen):
    network = lively({"name": "timm", "backbone": name, "width": 16}, 2)
    options = {"strict_img_size": False} if name.startswith("swin") else {}
    plain = timm.create_model(name, features_only=True, **options).eval()
    plain.load_state_dict(network.backbone.net.state_dict(), strict=True)
    mean, std = timm.get_pretrained_cfg(name).mean, timm.get_pretrained_cfg(name).std
    expected = plain(normalize(images(2, 64, 96), mean, std))[chosen]
    stages = network(images(2, 64, 96)).stages
    for found, other in zip(stages, expected, strict=True):
        close(found, other.permute(0, 3, 1, 2) if name.startswith("swin") else other)
    assert [64 // stage.shape[2] for stage in stages] == [4, 8, 16, 32]


@grid(
    ("name", "layers", "depths"),
    [
        ("vit_tiny_patch16_224", 4, [2, 5, 8, 11]),
        ("vit_tiny_patch16_224", 5, [1, 3, 6, 8, 11]),
        ("vit_small_patch14_dinov2", 1, [11]),
        ("vit_small_patch14_reg4_dinov2", 2, [5, 11]),
        ("vit_small_patch16_dinov3", 3, [3, 7, 11]),
    ],
)
@torch.no_grad()
def test_vit_maps_are_timms(name, layers, depths):
    network = lively({"name": "vit", "backbone": name, "layers": layers, "width": 16}, 2)
    plain = timm.create_model(name, num_classes=0, dynamic_img_size=True).eval()
    plain.load_state_dict(network.backbone.net.state_dict(), strict=True)
    patch = network.backbone.patch[0]
    config = timm.get_pretrained_cfg(name)
    batch = images(2, 3 * patch, 5 * patch)
    inputs = normalize(batch, config.mean, config.std)
    expected = plain.forward_intermediates(inputs, indices=depths, norm=True, intermediates_only=True)
    stages = network(batch).stages
    for found, other in zip(stages, expected, strict=True):
        close(found, other)
    tokens = plain.forward_features(inputs)[:, plain.num_prefix_tokens :]
    close(stages[-1], tokens.transpose(1, 2).unflatten(2, (3, 5)))

    # Other sizes are resized to the nearest whole number of patches.
    odd = images(1, 3 * patch + 5, 5 * patch - 5)
    whole = F.interpolate(normalize(odd, config.mean, config.std), (3 * patch, 5 * patch), mode="bilinear")
    for found, other in zip(
        network(odd).stages,
        plain.forward_intermediates(whole, indices=depths, norm=True, intermediates_only=True),
        strict=True,
    ):
        close(found, other)


def test_vit_attends_to_class_and_register_tokens_first():
    network = lively({"name": "vit", "backbone": "vit_small_patch14_reg4_dinov2", "width": 16}, 2)
    attention = network(images(1, 42, 56), attentions=True).attentions[0]
    assert attention.shape == (1, 6, 1 + 4 + 3 * 4, 1 + 4 + 3 * 4)
