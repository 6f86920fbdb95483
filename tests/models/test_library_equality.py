"""Networks against the libraries they are made of: same size, same weights, same numbers."""

import pytest
import torch
import torchvision
from grids import grid
from network_tester import close, enliven, images, lively, make
from torch import nn
from torch.nn import functional as F
from torchvision.models import segmentation
from transformers import SegformerConfig, SegformerForSemanticSegmentation

from faircl.errors import UserError


def normalised(batch, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)):
    return torchvision.transforms.functional.normalize(batch, mean, std)


# ---- numbers of parameters


def parameters(classes, **config):
    with torch.device("meta"):
        network = make(config)
        network.classifier.grow(classes)
    return sum(p.numel() for p in network.parameters())


def test_number_of_parameters_of_deeplabv3():
    assert parameters(151, name="deeplabv3") == 58_664_407
    assert parameters(151, name="deeplabv3", head="mib") == 58_074_071
    assert parameters(151, name="deeplabv3", stride=8, block="v1") == 58_664_407


def test_number_of_parameters_of_segformer():
    assert parameters(151, name="segformer") == 47_338_583
    whole = parameters(7, name="segformer", variant="b2") - 7 * 769
    own = sum(768 * (width + 1) for width in (64, 128, 320, 512)) + 4 * 768 * 768 + 2 * 768
    bare = sum(256 * (width + 1) for width in (64, 128, 320, 512)) + 4 * 256 * 256 + 256
    assert parameters(7, name="segformer", variant="b2", decoder="bare") == whole - own + bare + 7 * 257


@pytest.mark.parametrize(
    ("backbone", "body", "first", "last"),
    [
        ("resnet50", 25_557_032 - 2_049_000, 256, 2048),
        ("resnet101", 44_549_160 - 2_049_000, 256, 2048),
        ("mobilenet_v2", 3_504_872 - 1_281_000 - (320 * 1280 + 2 * 1280), 24, 320),
    ],
)
def test_number_of_parameters_of_deeplabv3plus(backbone, body, first, last):
    norm = 2 * 256
    aspp = 2 * (last * 256 + norm) + 3 * (9 * last * 256 + norm) + 5 * 256 * 256 + norm
    skip = first * 48 + 2 * 48
    mix = 9 * (256 + 48) * 256 + norm + 9 * 256 * 256 + norm
    assert parameters(19, name="deeplabv3plus", backbone=backbone) == body + aspp + skip + mix + 19 * 257


# ---- DeepLabV3 and torchvision


@grid("backbone", ["resnet50", "resnet101"])
@torch.no_grad()
def test_deeplabv3_is_torchvisions(backbone):
    network = lively({"name": "deeplabv3", "backbone": backbone, "stride": 8}, 4, 3)
    plain = getattr(segmentation, f"deeplabv3_{backbone}")(weights=None, weights_backbone=None, num_classes=7).eval()
    plain.load_state_dict(network.export_state_dict(), strict=True)
    batch = images(2, 65, 97)
    out, expected = network(batch), plain(normalised(batch))["out"]
    close(F.interpolate(out.logits, (65, 97), mode="bilinear", align_corners=False), expected)
    close(out.stages[-1], plain.backbone(normalised(batch))["out"])


@grid("aux", [False, True], quick=lambda aux: aux)
@torch.no_grad()
def test_torchvisions_deeplabv3_loads_and_comes_back(aux, tmp_path):
    torch.manual_seed(3)
    plain = segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=7, aux_loss=aux)
    enliven(plain)
    torch.save(plain.state_dict(), tmp_path / "deeplab.pth")
    network = make(
        {"name": "deeplabv3", "backbone": "resnet50", "stride": 8, "weights": str(tmp_path / "deeplab.pth")}
    ).eval()
    network.load_pretrained()
    head = network.classifier.grow(7)
    features = plain.backbone(normalised(images()))["out"]
    close(network(images()).embedding, nn.Sequential(*list(plain.classifier)[:4])(features))

    head.load_state_dict(plain.classifier[4].state_dict())
    state, expected = network.export_state_dict(), plain.state_dict()
    assert list(state) == [key for key in expected if not key.startswith("aux")]
    assert all(torch.equal(value, expected[key]) for key, value in state.items())


def test_networks_torchvision_does_not_have():
    for config in (
        {"name": "deeplabv3", "backbone": "mobilenet_v2"},
        {"name": "deeplabv3", "backbone": "resnet50", "head": "mib"},
        {"name": "deeplabv3", "backbone": "resnet50"},
        {"name": "deeplabv3", "backbone": "resnet50", "stride": 8, "block": "v1"},
        {"name": "deeplabv3", "backbone": "resnet50", "stride": 8, "rates": [6, 12, 18]},
        {"name": "deeplabv3", "backbone": "resnet50", "stride": 8, "width": 64},
        {"name": "deeplabv3plus", "backbone": "mobilenet_v2"},
        {"name": "segformer", "variant": "b0", "decoder": "bare"},
        {"name": "small"},
    ):
        with torch.device("meta"):
            network = make(config)
            network.classifier.grow(2)
        with pytest.raises(UserError, match=r"^[^\n]+\.$"):
            network.export_state_dict()


# ---- backbones


def resnet_stages(body, image):
    x = body.maxpool(body.relu(body.bn1(body.conv1(image))))
    stages = []
    for layer in (body.layer1, body.layer2, body.layer3, body.layer4):
        x = layer(x)
        stages.append(x)
    return stages


@pytest.fixture(scope="module")
def dilated_resnets():
    return {stride: lively({"name": "deeplabv3", "backbone": "resnet50", "stride": stride}, 2) for stride in (8, 16)}


@pytest.mark.parametrize(("stride", "dilated"), [(16, [False, False, True]), (8, [False, True, True])])
@torch.no_grad()
def test_resnet_is_torchvisions_dilated_one(dilated_resnets, stride, dilated):
    network = dilated_resnets[stride]
    body = torchvision.models.resnet50(weights=None, replace_stride_with_dilation=dilated).eval()
    missing = body.load_state_dict(network.backbone.state_dict(), strict=False)
    assert missing.missing_keys == ["fc.weight", "fc.bias"]
    assert missing.unexpected_keys == []
    for found, expected in zip(network(images()).stages, resnet_stages(body, normalised(images())), strict=True):
        close(found, expected)


@pytest.mark.parametrize(("stride", "steps"), [(16, [1, 1, 1, 2]), (8, [1, 1, 2, 4])])
@torch.no_grad()
def test_dilated_resnet_sees_what_the_strided_one_sees(dilated_resnets, stride, steps):
    """Dilation instead of stride computes the strided network's features, and those of the pixels between."""
    network = dilated_resnets[stride]
    body = torchvision.models.resnet50(weights=None).eval()
    body.load_state_dict(network.backbone.state_dict(), strict=False)
    expected = resnet_stages(body, normalised(images(1, 65, 97)))
    for found, plain, step in zip(network(images(1, 65, 97)).stages, expected, steps, strict=True):
        assert [(side + step - 1) // step for side in found.shape[-2:]] == list(plain.shape[-2:])
        close(found[:, :, ::step, ::step], plain, 1e-4)


@pytest.mark.parametrize(("stride", "steps"), [(16, [1, 1, 1, 2]), (8, [1, 1, 2, 4])])
@torch.no_grad()
def test_dilated_mobilenet_sees_what_the_strided_one_sees(stride, steps):
    network = lively({"name": "deeplabv3", "backbone": "mobilenet_v2", "stride": stride}, 2)
    body = torchvision.models.mobilenet_v2(weights=None).eval()
    missing = body.load_state_dict(network.backbone.state_dict(), strict=False)
    assert missing.unexpected_keys == []
    assert all(key.startswith(("features.18.", "classifier.")) for key in missing.missing_keys)
    x, expected = normalised(images(1, 65, 97)), []
    for index, layer in enumerate(body.features[:18]):
        x = layer(x)
        if index in (3, 6, 13, 17):
            expected.append(x)
    stages = network(images(1, 65, 97)).stages
    assert [stage.shape[1] for stage in stages] == [24, 32, 96, 320]
    for found, plain, step in zip(stages, expected, steps, strict=True):
        assert [(side + step - 1) // step for side in found.shape[-2:]] == list(plain.shape[-2:])
        close(found[:, :, ::step, ::step], plain, 1e-4)


MOBILENET_RATES = {16: {14: 1, 15: 2, 16: 2, 17: 2}, 8: dict.fromkeys(range(8, 15), 2) | {7: 1, 15: 4, 16: 4, 17: 4}}


@pytest.mark.parametrize("stride", [8, 16])
@torch.no_grad()
def test_mobilenet_dilated_by_hand(stride):
    network = lively({"name": "deeplabv3plus", "backbone": "mobilenet_v2", "stride": stride}, 2)
    body = torchvision.models.mobilenet_v2(weights=None).eval()
    body.load_state_dict(network.backbone.state_dict(), strict=False)
    for index, rate in MOBILENET_RATES[stride].items():
        depthwise = body.features[index].conv[1][0]
        assert depthwise.kernel_size == (3, 3)
        assert depthwise.stride == ((2, 2) if index in (7, 14) else (1, 1))
        depthwise.stride, depthwise.dilation, depthwise.padding = (1, 1), (rate, rate), (rate, rate)
    close(network(images()).stages[-1], body.features[:18](normalised(images())))


@grid("stride", [8, 16], quick=lambda stride: stride == 16)
@torch.no_grad()
def test_v1_blocks_stride_on_their_first_convolution(stride):
    network = lively({"name": "deeplabv3", "backbone": "resnet50", "stride": stride, "block": "v1", "head": "mib"}, 2)
    body = network.backbone
    strided = {"layer2.0.conv1", "layer2.0.downsample.0"}
    strided |= {"layer3.0.conv1", "layer3.0.downsample.0"} if stride == 16 else set()
    convolutions = {name: module for name, module in body.named_modules() if isinstance(module, nn.Conv2d)}
    assert {name for name, conv in convolutions.items() if conv.stride != (1, 1)} == strided | {"conv1"}
    plain = torchvision.models.resnet50(weights=None, replace_stride_with_dilation=[False, stride == 8, True])
    for name, module in plain.named_modules():
        if name in convolutions:
            assert convolutions[name].dilation == module.dilation
            assert convolutions[name].padding == module.padding

    # The first block of the second layer, written out.
    first, x = body.layer2[0], torch.rand(2, 256, 9, 12)
    thin = first.bn1(F.conv2d(x, first.conv1.weight)[:, :, ::2, ::2]).relu()
    middle = first.bn2(F.conv2d(thin, first.conv2.weight, padding=1)).relu()
    shortcut = first.downsample[1](F.conv2d(x[:, :, ::2, ::2], first.downsample[0].weight))
    close(first(x), (first.bn3(F.conv2d(middle, first.conv3.weight)) + shortcut).relu())

    other = lively({"name": "deeplabv3", "backbone": "resnet50", "stride": stride, "head": "mib"}, 2)
    other.load_state_dict(network.state_dict())
    assert [s.shape for s in other(images()).stages] == [s.shape for s in network(images()).stages]
    assert not torch.allclose(other(images()).stages[1], network(images()).stages[1], atol=0.01)


@torch.no_grad()
def test_mib_head_written_out():
    network = lively({"name": "deeplabv3", "backbone": "mobilenet_v2", "head": "mib"}, 2)
    head, out = network.decoder, network(images(2, 96, 96))
    x, state = out.stages[-1], network.decoder.state_dict()
    rates = (0, 6, 12, 18)
    parts = [
        F.conv2d(x, state[f"branches.{i}.weight"], padding=rate, dilation=max(rate, 1)) for i, rate in enumerate(rates)
    ]
    local = F.leaky_relu(head.branch_norm(torch.cat(parts, 1)), 0.01)
    pooled = F.conv2d(F.adaptive_avg_pool2d(x, 1), state["pool.weight"])
    pooled = F.conv2d(F.leaky_relu(head.pool_norm(pooled), 0.01), state["pool_reduce.weight"])
    mixed = F.conv2d(local, state["reduce.weight"]) + pooled
    close(out.embedding, F.leaky_relu(head.norm(mixed), 0.01))
    assert [key.split(".")[0] for key in state if key.endswith("weight")] == (
        ["branches"] * 4 + ["branch_norm", "reduce", "pool", "pool_norm", "pool_reduce", "norm"]
    )


@torch.no_grad()
def test_deeplabv3plus_head_written_out():
    network = lively({"name": "deeplabv3plus", "backbone": "mobilenet_v2"}, 2)
    out, head = network(images(2, 65, 97)), network.decoder
    aspp = segmentation.deeplabv3.ASPP(320, [6, 12, 18]).eval()
    aspp.load_state_dict(head.aspp.state_dict())
    fine = head.skip(out.stages[0])
    assert fine.shape[1] == 48
    coarse = F.interpolate(aspp(out.stages[-1]), fine.shape[-2:], mode="bilinear", align_corners=False)
    close(out.embedding, head.mix[1](head.mix[0](torch.cat([coarse, fine], 1))))


def test_rates_follow_the_stride():
    for config, expected in (({}, [6, 12, 18]), ({"stride": 8}, [12, 24, 36]), ({"rates": [2, 3, 5]}, [2, 3, 5])):
        for name, aspp in (("deeplabv3", lambda d: d[0]), ("deeplabv3plus", lambda d: d.aspp)):
            with torch.device("meta"):
                network = make({"name": name, "backbone": "mobilenet_v2"} | config)
            found = [conv[0].dilation[0] for conv in list(aspp(network.decoder).convs)[1:4]]
            assert found == expected


# ---- SegFormer and transformers

SEGFORMER = {
    "b0": {"depths": [2, 2, 2, 2], "hidden_sizes": [32, 64, 160, 256], "decoder_hidden_size": 256},
    "b3": {"depths": [3, 4, 18, 3], "hidden_sizes": [64, 128, 320, 512], "decoder_hidden_size": 768},
}


def plain_segformer(variant, classes=5, seed=4):
    torch.manual_seed(seed)
    config = SegformerConfig(**SEGFORMER[variant], num_labels=classes)
    return SegformerForSemanticSegmentation(config).eval()


def same_segformer(network, plain, batch):
    expected = plain(normalised(batch), output_hidden_states=True)
    out = network.eval()(batch)
    for stage, hidden in zip(out.stages, expected.hidden_states, strict=True):
        close(stage, hidden)
    return out, expected.logits


@pytest.mark.parametrize(("variant", "size"), [("b0", (64, 64)), ("b0", (65, 97)), ("b3", (47, 65))])
@torch.no_grad()
def test_segformer_is_transformers(variant, size):
    network = lively({"name": "segformer", "variant": variant}, 2, 3)
    plain = plain_segformer(variant)
    plain.load_state_dict(network.export_state_dict(), strict=True)
    out, logits = same_segformer(network, plain, images(2, *size))
    close(out.logits, logits)


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
@torch.no_grad()
def test_transformers_segformer_loads_and_comes_back(folder, tmp_path):
    plain = plain_segformer("b0")
    for parameter in plain.parameters():
        if parameter.min() == parameter.max():
            parameter.uniform_(0.5, 1.5)
    norm = plain.decode_head.batch_norm
    norm.running_mean.normal_(std=0.1)
    norm.running_var.uniform_(0.5, 2)
    if folder:
        plain.save_pretrained(tmp_path)
        assert (tmp_path / "model.safetensors").exists()
    else:
        torch.save(plain.state_dict(), tmp_path / "segformer.pth")
    source = tmp_path if folder else tmp_path / "segformer.pth"
    network = make({"name": "segformer", "variant": "b0", "weights": str(source)})
    network.load_pretrained()
    head = network.classifier.grow(5)
    head.load_state_dict(plain.decode_head.classifier.state_dict())
    out, logits = same_segformer(network, plain, images(2, 65, 97))
    close(out.logits, logits)
    state, expected = network.export_state_dict(), plain.state_dict()
    assert sorted(state) == sorted(expected)
    assert all(torch.equal(value, expected[key]) for key, value in state.items())


@torch.no_grad()
def test_segformer_attentions_are_transformers():
    network = lively({"name": "segformer", "variant": "b0"}, 5)
    plain = plain_segformer("b0")
    plain.load_state_dict(network.export_state_dict())
    plain.set_attn_implementation("eager")
    expected = plain(normalised(images()), output_attentions=True).attentions
    found = network(images(), attentions=True).attentions
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@torch.no_grad()
def test_bare_decoder_written_out():
    """The decoder of FairCL's released code: projections, repeated pixels, one convolution with a bias."""
    network = lively({"name": "segformer", "variant": "b0", "decoder": "bare"}, 3)
    out, state = network(images(2, 64, 96)), network.decoder.state_dict()
    projected = [
        F.interpolate(F.conv2d(x, state[f"projections.{i}.weight"], state[f"projections.{i}.bias"]), scale_factor=2**i)
        for i, x in enumerate(out.stages)
    ]
    close(out.embedding, F.conv2d(torch.cat(projected[::-1], 1), state["fuse.weight"], state["fuse.bias"]))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in network.modules())
    assert out.embedding.min() < 0
