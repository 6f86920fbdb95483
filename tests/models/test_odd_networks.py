"""Unusual networks of timm, and images smaller than a network's stride."""

import pytest
import torch
from network_tester import make

from faircl.models.timm_backbone import _round_half_even


@pytest.mark.parametrize("backbone", ["xcit_nano_12_p16_224", "naflexvit_base_patch16_gap"])
def test_parameters_that_no_map_depends_on_become_buffers(backbone):
    network = make({"name": "timm", "backbone": backbone})
    network.classifier.grow(2)
    network.train()(torch.rand(2, 3, 32, 32)).logits.square().sum().backward()
    assert [name for name, value in network.named_parameters() if value.grad is None] == []
    whole = sum(value.numel() for value in (*network.backbone.parameters(), *network.backbone.buffers()))
    assert whole > sum(value.numel() for value in network.backbone.parameters())


def test_a_backbone_that_collects_maps_by_hooks_has_no_blocks_to_compute_twice():
    assert list(make({"name": "timm", "backbone": "xception41"}).blocks()) == []


@pytest.mark.parametrize(
    "config",
    [
        {"name": "segformer", "variant": "b0"},
        {"name": "timm", "backbone": "convnext_atto"},
        {"name": "timm", "backbone": "hrnet_w18_small"},
        {"name": "vit", "backbone": "vit_tiny_patch16_224"},
        {"name": "deeplabv3", "backbone": "mobilenet_v2"},
        {"name": "small"},
    ],
    ids=lambda config: config.get("backbone", config["name"]),
)
@pytest.mark.parametrize("size", [(1, 1), (7, 20), (20, 130)])
@torch.no_grad()
def test_images_smaller_than_the_stride(config, size):
    network = make(config)
    network.classifier.grow(2)
    logits = network.eval()(torch.rand(1, 3, *size)).logits
    assert logits.isfinite().all()
    assert min(logits.shape[-2:]) >= 1


def test_sides_are_rounded_as_python_rounds():
    """Half-way cases go to the even multiple, by integers alone, so that an export can compute them."""
    for patch in (1, 2, 7, 14, 16, 32):
        for side in range(1, 200):
            assert _round_half_even(side, patch) == round(side / patch)
