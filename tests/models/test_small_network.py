"""The small network under the Segmenter contract."""

from collections import Counter

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import nn

from faircl.models.segmenter import IMAGENET_MEAN, IMAGENET_STD
from faircl.models.small import Small, SmallConfig
from faircl.registry import MODELS


def small(*heads, seed=0, **config):
    torch.manual_seed(seed)
    made = Small(SmallConfig(**({"width": 8, "embedding": 6} | config)))
    for size in heads:
        made.classifier.grow(size)
    with torch.no_grad():
        for parameter in made.classifier.parameters():
            parameter.normal_()
    return made


def images(height=24, width=32, batch=2, seed=0):
    return torch.rand((batch, 3, height, width), generator=torch.Generator().manual_seed(seed))


def test_registered():
    assert MODELS.get("small") is Small
    assert MODELS.parse_config({"name": "small", "width": 12}) == SmallConfig(width=12)


@pytest.mark.parametrize(("height", "width"), [(24, 32), (23, 31), (17, 40), (33, 25), (1, 1)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_shapes_at_odd_sizes(height, width, norm):
    model = small(3, 2, norm=norm).eval()
    out = model(images(height, width))

    def halved(times):
        h, w = height, width
        for _ in range(times):
            h, w = (h + 1) // 2, (w + 1) // 2
        return h, w

    assert out.logits.shape == (2, 5, *halved(2))
    assert out.embedding.shape == (2, 6, *halved(2))
    assert [tuple(s.shape) for s in out.stages] == [(2, 8 * k, *halved(k)) for k in (1, 2, 3)]
    assert model.stage_widths == (8, 16, 24)
    assert model.embedding_width == 6
    assert out.attentions is None
    assert out.logits.isfinite().all()


def test_logits_are_the_classified_embedding():
    model = small(3, 2).eval()
    out = model(images())
    weight = torch.cat([head.weight for head in model.classifier.heads])[:, :, 0, 0]
    bias = torch.cat([head.bias for head in model.classifier.heads])
    expected = torch.einsum("bdhw,kd->bkhw", out.embedding, weight) + bias[:, None, None]
    torch.testing.assert_close(out.logits, expected, rtol=1e-4, atol=1e-5)


def test_embedding_is_tapped_before_dropout():
    model = small(3, dropout=0.5, norm="group").train()
    torch.manual_seed(0)
    first, second = model(images()), model(images())
    assert torch.equal(first.embedding, second.embedding)
    assert not torch.equal(first.logits, second.logits)
    model.eval()
    assert torch.equal(model(images()).logits, model(images()).logits)
    assert torch.equal(model(images()).embedding, first.embedding)


def test_image_is_normalised_inside():
    model = small(2).eval()
    flat = torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1).expand(1, 3, 16, 16)
    seen = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(flat)
    model(flat + torch.tensor(IMAGENET_STD).view(1, 3, 1, 1))
    torch.testing.assert_close(seen[0], torch.zeros(1, 3, 16, 16))
    torch.testing.assert_close(seen[1], torch.ones(1, 3, 16, 16))


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("heads", [(4,), (2, 1, 3)])
def test_parts_cover_every_parameter_once(norm, heads):
    model = small(*heads, norm=norm)
    parts = list(model.parameter_groups())
    assert sorted(id(p) for _, p in parts) == sorted(id(p) for p in model.parameters())
    named = {id(p): part for part, p in parts}
    for name, parameter in model.named_parameters():
        owner = name.split(".")[0]
        if owner == "classifier":
            owner = "new_classifier" if f"heads.{len(heads) - 1}." in name else "old_classifier"
        assert named[id(parameter)] == owner
    counts = Counter(part for part, _ in parts)
    assert counts["new_classifier"] == 2
    assert counts["old_classifier"] == 2 * (len(heads) - 1)


def test_group_norm_has_no_batch_statistics():
    model = small(2, norm="group").train()
    assert not any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    assert any(isinstance(m, nn.GroupNorm) for m in model.modules())
    both = model(images())
    alone = model(images()[:1])
    torch.testing.assert_close(both.logits[:1], alone.logits, rtol=1e-4, atol=1e-5)


def test_batch_norm_mixes_the_batch_in_training_only():
    model = small(2)
    model.eval()
    torch.testing.assert_close(model(images()).logits[:1], model(images()[:1]).logits, rtol=1e-4, atol=1e-5)
    model.train()
    assert (model(images()).logits[:1] - model(images()[:1]).logits).abs().max() > 1e-3


def test_state_round_trip_after_growing(tmp_path):
    model = small(3, 2).train()
    model(images())  # moves the running statistics
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = small(3, 2, seed=7)
    assert not torch.equal(other.eval()(images()).logits, model.eval()(images()).logits)
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other.eval()(images()).logits, model.eval()(images()).logits)
    with pytest.raises(RuntimeError, match="heads"):
        small(5).load_state_dict(model.state_dict())


def test_asking_for_attentions_is_an_error():
    with pytest.raises(ValueError, match=r"small.*attentions"):
        small(2)(images(), attentions=True)


def test_gradients_reach_every_parameter():
    model = small(2, 2).train()
    model(images()).logits.square().mean().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert missing == []


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_every_width_the_configuration_takes_can_be_built(norm):
    for width in (4, 8, 12, 20, 44):
        assert small(2, width=width, norm=norm).eval()(images()).logits.shape[1] == 2
    for width in (0, 2, 6, 25):
        with pytest.raises(ValidationError, match="width"):
            SmallConfig(width=width, norm=norm)
