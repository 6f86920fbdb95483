"""Weights downloaded by libraries, and the errors of failed downloads."""

import re
from urllib.error import URLError

import pytest
import timm
import torch
import torchvision
import transformers
from network_tester import images, make
from weight_sources import (
    B0,
    DILATED,
    MOBILENET,
    mobilenet_maps,
    normalised,
    one_sentence,
    same_maps,
    same_segformer,
    trained,
)

from faircl.errors import UserError

OFFLINE = [URLError("[Errno -3] Temporary failure in name resolution"), OSError("cannot\nconnect.")]


def loader(config, monkeypatch, answer):
    """Replace the library's loader by an error to raise, or by a function that makes a network."""

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
    monkeypatch.setattr("faircl.hub._unreachable", lambda: None)  # the hub answers, and then the download fails
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
