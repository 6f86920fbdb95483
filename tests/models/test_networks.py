"""The network tests of ``network_tester`` for every network."""

import pytest
import torch
from compiler_tester import CompiledTrainingTester, CompilerTester
from network_tester import (
    AttentionTester,
    Case,
    NetworkTester,
    images,
    lively,
)

CASES = {
    "small": Case({"name": "small", "width": 8, "embedding": 6, "dropout": 0.1}, stride=4, blocks=2),
    "small-group": Case({"name": "small", "width": 8, "norm": "group"}, stride=4, blocks=2),
    "deeplabv3-resnet50": Case({"name": "deeplabv3", "backbone": "resnet50"}, stride=16, blocks=16, pooled=True),
    "deeplabv3-resnet101-stride8": Case(
        {"name": "deeplabv3", "backbone": "resnet101", "stride": 8}, stride=8, blocks=33, pooled=True
    ),
    "deeplabv3-mobilenet": Case({"name": "deeplabv3", "backbone": "mobilenet_v2"}, stride=16, blocks=17, pooled=True),
    "deeplabv3-mobilenetv3": Case(
        {"name": "deeplabv3", "backbone": "mobilenet_v3_large"}, stride=16, blocks=15, pooled=True
    ),
    "deeplabv3-mobilenet-stride8": Case(
        {"name": "deeplabv3", "backbone": "mobilenet_v2", "stride": 8}, stride=8, blocks=17, pooled=True
    ),
    "deeplabv3-mib-v1": Case(
        {"name": "deeplabv3", "backbone": "resnet50", "head": "mib", "block": "v1"}, stride=16, blocks=16, pooled=True
    ),
    "deeplabv3-mib-narrow": Case(
        {"name": "deeplabv3", "backbone": "mobilenet_v2", "head": "mib", "width": 12}, stride=16, blocks=17, pooled=True
    ),
    "deeplabv3plus-resnet50-stride8": Case(
        {"name": "deeplabv3plus", "backbone": "resnet50", "stride": 8}, stride=4, blocks=16, pooled=True
    ),
    "deeplabv3plus-mobilenet": Case(
        {"name": "deeplabv3plus", "backbone": "mobilenet_v2"}, stride=4, blocks=17, pooled=True
    ),
    "deeplabv3plus-narrow": Case(
        {"name": "deeplabv3plus", "backbone": "mobilenet_v2", "width": 12}, stride=4, blocks=17, pooled=True
    ),
    "segformer-b0": Case({"name": "segformer", "variant": "b0"}, stride=4, attentions=8, blocks=8),
    "segformer-b2-bare": Case(
        {"name": "segformer", "variant": "b2", "decoder": "bare"}, stride=4, attentions=16, blocks=16
    ),
    "timm-resnet18": Case({"name": "timm", "backbone": "resnet18", "width": 32}, stride=4, blocks=8),
    "timm-convnext": Case({"name": "timm", "backbone": "convnext_atto", "width": 32}, stride=4, blocks=12),
    "timm-swin": Case({"name": "timm", "backbone": "swin_tiny_patch4_window7_224", "width": 32}, stride=4, blocks=12),
    "timm-regnet": Case({"name": "timm", "backbone": "regnetx_002", "width": 32}, stride=4, blocks=4),
    "timm-mobilenetv3": Case({"name": "timm", "backbone": "mobilenetv3_small_100", "width": 32}, stride=4, blocks=11),
    "timm-hrnet": Case({"name": "timm", "backbone": "hrnet_w18_small", "width": 32}, stride=4, multiple=32, blocks=8),
    "vit-tiny": Case(
        {"name": "vit", "backbone": "vit_tiny_patch16_224", "width": 32}, stride=16, attentions=12, blocks=12
    ),
    "vit-dinov2": Case({"name": "vit", "width": 32, "layers": 2}, stride=14, attentions=12, blocks=12),
    "vit-dinov3": Case(
        {"name": "vit", "backbone": "vit_small_patch16_dinov3", "width": 32}, stride=16, attentions=12, blocks=12
    ),
    "vit-registers-pooled": Case(
        {"name": "vit", "backbone": "vit_wee_patch16_reg1_gap_256", "width": 32, "layers": 3},
        stride=16,
        attentions=14,
        blocks=14,
    ),
}
QUICK = {"small", "deeplabv3-mobilenet", "deeplabv3plus-mobilenet", "segformer-b0", "timm-convnext", "vit-tiny"}
"""Tested in every run; the others in the long one."""
COMPILED = {"small", "deeplabv3plus-mobilenet", "segformer-b0", "timm-convnext", "vit-tiny"}
"""Trained compiled, one network of each kind."""


def cases(quick, choose=lambda case: True):
    """Return a fixture of the chosen cases; those that are not quick are slow."""
    chosen = {name: case for name, case in CASES.items() if choose(case)}
    marked = [pytest.param(case, marks=[] if name in quick else [pytest.mark.slow]) for name, case in chosen.items()]
    return pytest.fixture(scope="class", params=marked, ids=chosen)(lambda self, request: request.param)


class TestNetworks(NetworkTester):
    case = cases(QUICK)


class TestAttentions(AttentionTester):
    case = cases(QUICK, lambda case: case.attentions)


class TestCompilers(CompilerTester):
    case = cases({"small"})


class TestCompiledTraining(CompiledTrainingTester):
    case = cases({"small"}, lambda case: case in [CASES[name] for name in COMPILED])


@pytest.mark.slow
@torch.no_grad()
def test_inductor():
    network = lively(CASES["small"].config, 3)
    torch._dynamo.reset()
    logits = torch.compile(network)(images()).logits
    torch._dynamo.reset()
    torch.testing.assert_close(logits, network(images()).logits, rtol=1e-4, atol=1e-4)
