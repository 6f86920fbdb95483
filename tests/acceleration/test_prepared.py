"""The copy for inference: equal to the network, which does not change; one with other results is not used."""

import pytest
import torch
from grids import grid
from network_tester import images, lively
from torch import nn

from faircl.acceleration import prepared as module
from faircl.acceleration.mlp_decoder import FixedMlpDecoder, fix_weights
from faircl.acceleration.prepared import prepared
from faircl.acceleration.relative_error import relative_error
from faircl.models.mlp_decoder import MlpDecoder
from faircl.models.segmenter import Segmenter

CONFIGS = {
    "small": {"name": "small", "width": 8, "dropout": 0.1},
    "deeplabv3-mobilenet": {"name": "deeplabv3", "backbone": "mobilenet_v2"},
    "deeplabv3plus-mobilenet": {"name": "deeplabv3plus", "backbone": "mobilenet_v2"},
    "segformer-b0": {"name": "segformer", "variant": "b0"},
    "timm-resnet18": {"name": "timm", "backbone": "resnet18", "width": 32},
    "vit-tiny": {"name": "vit", "backbone": "vit_tiny_patch16_224", "width": 32},
    "small-group": {"name": "small", "width": 8, "norm": "group"},
    "deeplabv3-resnet50": {"name": "deeplabv3", "backbone": "resnet50"},
    "deeplabv3-mobilenetv3": {"name": "deeplabv3", "backbone": "mobilenet_v3_large"},
    "deeplabv3-mib": {"name": "deeplabv3", "backbone": "resnet50", "head": "mib", "block": "v1"},
    "segformer-b2-bare": {"name": "segformer", "variant": "b2", "decoder": "bare"},
    "timm-convnext": {"name": "timm", "backbone": "convnext_atto", "width": 32},
    "timm-hrnet": {"name": "timm", "backbone": "hrnet_w18_small", "width": 32},
}


@torch.no_grad()
@grid("name", CONFIGS, quick=6)
def test_the_copy_is_the_network_and_the_network_stays(name):
    network = lively(CONFIGS[name], 3, 2)
    network.backbone.train()  # a mode that is left as it is
    before = {key: value.clone() for key, value in network.state_dict().items()}
    modes = [part.training for part in network.modules()]
    made = prepared(network, half=False)
    assert [part.training for part in network.modules()] == modes
    assert not any(part.training for part in made.modules())
    assert type(made.decoder) is (FixedMlpDecoder if type(network.decoder) is MlpDecoder else type(network.decoder))

    batch = images(2, 96, 128)
    found, expected = made(batch), network.eval()(batch)
    for one, other in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4 * float(other.abs().max()))
    assert (found.logits.argmax(1) == expected.logits.argmax(1)).float().mean() >= 0.9999
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("name", ["small", "deeplabv3-mobilenet", "segformer-b0"])
def test_half_precision_casts_nothing_but_the_weights_of_products(name):
    network = lively(CONFIGS[name], 3, 2)
    made = prepared(network, half=True)
    types = {type(part): value.dtype for part in made.modules() for value in part.parameters(recurse=False)}
    assert types[nn.Conv2d] == torch.float32  # the classifier's, whose weights are read and not called
    assert made.classifier.heads[0].weight is network.classifier.heads[0].weight
    halved = [part for part in made.backbone.modules() if type(part) in (nn.Conv2d, nn.Linear)]
    assert {value.dtype for part in halved for value in part.parameters()} == {torch.float16}
    if name == "segformer-b0":
        assert {weight.dtype for weight in made.decoder.fixed[0]} == {torch.float16}
        assert types[nn.LayerNorm] == torch.float32
    assert {value.dtype for value in network.state_dict().values() if value.is_floating_point()} == {torch.float32}
    batch = images(2, 96, 128)
    exact = module._outputs(network, batch, False)
    apart, usual = (relative_error(module._outputs(one, batch, True), exact) for one in (made, network))
    assert 0 < apart < 1.5 * usual


def test_what_is_not_replaced_is_shared():
    network = lively(CONFIGS["segformer-b0"], 3)
    made = prepared(network, half=False)
    own = {id(value) for value in (*network.parameters(), *network.buffers())}
    assert all(id(value) in own for value in (*made.parameters(), *made.buffers()))


class Strided(nn.Module):
    """A backbone of one convolution, and a decoder that passes its map on."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 4, 1)

    def forward(self, image):
        return (self.conv(image),)


class Last(nn.Module):
    def forward(self, stages):
        return stages[-1]


def simple():
    torch.manual_seed(0)
    network = Segmenter(Strided(), Last(), embedding_width=8, stage_widths=(8,))
    network.classifier.grow(3)
    nn.init.normal_(network.classifier.heads[0].weight)
    return network.eval()


@torch.no_grad()
def test_a_copy_with_other_results_is_not_used(monkeypatch):
    network = simple()
    assert prepared(network, half=True).backbone.conv.weight.dtype == torch.float16
    monkeypatch.setattr(module, "_to_half", lambda modules: [part.weight.data.zero_() for part in _fresh(modules)])
    made = prepared(network, half=True)
    torch.testing.assert_close(made(images()).logits, network(images()).logits, rtol=1e-4, atol=1e-4)


def _fresh(modules):
    """Give convolutions weights of their own, so that a test may spoil them."""
    for part in modules:
        if isinstance(part, nn.Conv2d):
            part.weight = nn.Parameter(part.weight.clone())
            yield part


def test_a_network_that_fails_on_the_trial_image_runs_as_it_is():
    network = simple()
    forward = network.backbone.forward

    def particular(image):
        if image.shape[-1] == module.SIDE:
            raise ValueError("another size, please")
        return forward(image)

    network.backbone.forward = particular
    made = prepared(network, half=True)
    assert made.backbone.conv.weight.dtype == torch.float32
    made(images(1, 96, 96))


@torch.no_grad()
def test_a_decoder_without_statistics_stays_as_it_is():
    decoder = MlpDecoder((4, 8), 6)
    fix_weights(decoder.train(), torch.float32)
    assert type(decoder) is MlpDecoder
    fix_weights(decoder.eval(), torch.float32)
    assert type(decoder) is FixedMlpDecoder
