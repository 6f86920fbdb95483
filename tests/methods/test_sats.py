"""SATS on SegFormer B0: its terms by hand, its steps, its state, and the networks it refuses."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny_steps import Run, World, through_disk

from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.losses import upsampled_cross_entropy
from faircl.losses.attention_transfer import attention_transfer
from faircl.losses.distillation import distillation, unbiased_distillation
from faircl.methods.entropy_labels import kept_share
from faircl.methods.feature_grid import to_stride, valid_pixels
from faircl.methods.plop import PLOPConfig
from faircl.methods.sats import SATS, SATSConfig
from faircl.methods.state import load_method_state
from faircl.models.segformer import SegFormer, SegFormerConfig
from faircl.registry import METHODS, MODELS

both_worlds = pytest.mark.parametrize("background", [True, False], ids=["background", "none"])
SCALE = 3  # 72×72 images: SegFormer's reduced keys are a single one at 24×24, and attention to it is always 1


class Larger(World):
    def __init__(self, background=True, seed=0):
        super().__init__(background, seed)
        self.truth, self.void, self.image = (
            x.repeat_interleave(SCALE, -1).repeat_interleave(SCALE, -2) for x in (self.truth, self.void, self.image)
        )


class Domains(Larger):
    """Two steps that label every class; the second adds none."""

    def __init__(self, background=True):
        super().__init__(background)
        self.channels = [self.channels[1]] * 2

    def labels(self, step):
        return self.truth.masked_fill(self.void, IGNORE)

    def context(self, step, model):
        return replace(super().context(step, model), domain=step > 0, scan=None)


class AttentiveRun(Run):
    """The tiny steps with a network that has attentions, asked for as the engine asks."""

    def __init__(self, world=None, **options):
        self.world = world or Larger()
        torch.manual_seed(0)
        self.model = SegFormer(SegFormerConfig(variant="b0", drop_path=0, dropout=0))
        config = METHODS.parse_config({"name": "sats", **options})
        self.method = METHODS.get(config.name)(config, self.model)
        self.teacher = self.context = self.optimizer = None
        self.step, self.iteration = -1, 0

    def outputs(self, batch):
        out = self.model(batch.image, attentions=True)
        with torch.no_grad():
            return out, None if self.teacher is None else self.teacher(batch.image, attentions=True)

    def forward(self, batch=None):
        batch = batch or self.batch()
        out, old = self.outputs(batch)
        with torch.no_grad():
            targets = self.method.targets(batch, out, old)
        return batch, out, targets, self.method.losses(batch, out, old, targets)


def by_hand(r, batch, out, old, targets):
    """Attention transfer at SegFormer B0's four last blocks, blocks two by two."""
    first = int(r.world.background)
    stages = []
    for k, stage in zip((1, 3, 5, 7), out.stages, strict=True):
        labels = to_stride(targets, stage.shape[-2:]).flatten(1)
        stages.append(attention_transfer(out.attentions[k], old.attentions[k], labels, first, r.world.channels[1]))
    return sum(stages) / 4


@both_worlds
def test_terms_by_hand(background):
    r = AttentiveRun(Larger(background), distill=3, attention=5, threshold=0.9).to_step_one(2)
    r.iterate(1)
    batch, out, targets, terms = r.forward()
    _, old = r.outputs(batch)
    assert list(terms) == ["seg", "distill", "attention"]
    old_classes = (targets >= r.world.first) & (targets < r.world.channels[0])
    assert old_classes.any(), "pseudo labels must be among those that attention is kept for"
    share = kept_share(targets, batch.labels == r.world.unlabelled)[:, None, None].expand(targets.shape)
    torch.testing.assert_close(terms["seg"], upsampled_cross_entropy(out.logits, targets, pixel_weight=share))
    distil = unbiased_distillation if background else distillation
    valid = valid_pixels(batch, out.logits.shape[-2:])
    torch.testing.assert_close(terms["distill"], 3 * distil(out.logits, old.logits, valid))
    assert terms["attention"] > 0
    torch.testing.assert_close(terms["attention"], 5 * by_hand(r, batch, out, old, targets))


@both_worlds
def test_three_tiny_iterations_of_two_steps(background):
    r = AttentiveRun(Larger(background))
    for step in (0, 1):
        r.begin(step, lr=1e-3)
        for _ in range(3):
            batch, out, targets, terms = r.forward()
            assert list(terms) == (["seg", "distill", "attention"] if step else ["seg"])
            assert all(value.shape == () and value.isfinite() for value in terms.values())
            torch.stack(list(terms.values())).sum().backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in r.model.parameters())
            r.update(batch, out, targets)
        r.end()
    assert list(r.method.parameters()) == []
    assert all(p.grad is None for p in r.teacher.parameters())


def test_attention_reaches_the_backbone_alone():
    r = AttentiveRun().to_step_one(1)
    r.iterate(1)
    r.forward()[-1]["attention"].backward()
    assert any(p.grad is not None and p.grad.any() for p in r.model.backbone.parameters())
    assert all(p.grad is None or not p.grad.any() for p in r.model.decoder.parameters())


def test_nothing_has_moved_at_first():
    r = AttentiveRun().to_step_one(1)
    r.model.eval()
    assert r.forward()[-1]["attention"].item() < 1e-6


def test_ignore_everywhere_is_finite():
    r = AttentiveRun().to_step_one(1)
    batch = r.batch()
    batch = batch._replace(labels=torch.full_like(batch.labels, IGNORE))
    _, _, targets, terms = r.forward(batch)
    assert (targets == IGNORE).all()
    assert [value.item() for value in terms.values()] == [0, 0, 0]
    sum(terms.values()).backward()
    assert all(p.grad.isfinite().all() for p in r.model.parameters() if p.grad is not None)


@both_worlds
def test_domain_steps_have_true_labels_and_plain_distillation(background):
    r = AttentiveRun(Domains(background)).begin(0)
    r.iterate(1)
    r.end().begin(1).iterate(1)
    batch, out, targets, terms = r.forward()
    _, old = r.outputs(batch)
    assert torch.equal(targets, batch.labels)
    assert terms["seg"].item() == upsampled_cross_entropy(out.logits, targets).item()
    valid = valid_pixels(batch, out.logits.shape[-2:])
    torch.testing.assert_close(terms["distill"], 20 * distillation(out.logits, old.logits, valid))
    assert terms["attention"] > 0
    torch.testing.assert_close(terms["attention"], 20 * by_hand(r, batch, out, old, targets))


def test_a_weight_of_zero_switches_its_term_off():
    r = AttentiveRun(distill=0).to_step_one(1)
    assert list(r.forward()[-1]) == ["seg", "attention"]
    r = AttentiveRun(attention=0).to_step_one(1)
    assert list(r.forward()[-1]) == ["seg", "distill"]
    r = AttentiveRun(Domains(), distill=0, attention=0).begin(0).end().begin(1)
    assert r.teacher is None


@pytest.mark.parametrize("step", [0, 1])
def test_state_round_trip(step, tmp_path):
    r = AttentiveRun()
    r = r.begin(0) if step == 0 else r.to_step_one(1)
    r.iterate(1)
    fresh = AttentiveRun()
    load_method_state(fresh.method, through_disk(r.method, tmp_path))
    fresh.model, fresh.teacher = copy.deepcopy(r.model), r.teacher
    fresh.step, fresh.context = step, r.context
    wanted, got = r.forward()[-1], fresh.forward()[-1]
    assert {k: v.item() for k, v in wanted.items()} == {k: v.item() for k, v in got.items()}
    if step == 0:
        histories = [x.end().begin(1).iterate(2) for x in (r, fresh)]
        assert histories[0] == histories[1]


def test_defaults_and_key():
    config = SATSConfig()
    assert (config.distill, config.attention, config.init) == (20, 20, "background")
    assert (config.threshold, config.doubt) == (PLOPConfig().threshold, "normalised")
    assert AttentiveRun(doubt="published").method.plop.config.doubt == "published"
    runs = [AttentiveRun(), AttentiveRun(distill=1, attention=1, threshold=0.5)]
    assert [r.method.step0_key() for r in runs] == [{"method": {"name": "sats"}}] * 2
    assert all(SATSConfig.model_fields[name].description for name in ("distill", "attention", "threshold"))


@pytest.mark.parametrize("name", ["small", "deeplabv3"])
def test_networks_without_attentions_are_refused(name):
    network = MODELS.get(name)(MODELS.get(name).Config())
    with pytest.raises(UserError, match=f"network '{name}' has none; set model.name to segformer"):
        SATS(SATSConfig(), network)


def vit(backbone):
    return MODELS.get("vit")(MODELS.parse_config({"name": "vit", "backbone": backbone, "width": 16, "layers": 2}))


def test_class_tokens_are_refused_in_words():
    with pytest.raises(UserError, match=r"network 'vit' 25 queries are the pixels of none .* \(4x6\); set model.name"):
        SATS(SATSConfig(), vit("vit_tiny_patch16_224"))


def test_a_transformer_without_class_tokens_fits():
    model = vit("vit_medium_patch16_gap_240")
    r = AttentiveRun()
    r.model, r.method = model, SATS(SATSConfig(), model)
    r.to_step_one(1).iterate(1)
    batch, out, targets, terms = r.forward()
    _, old = r.outputs(batch)
    labels = to_stride(targets, out.stages[0].shape[-2:]).flatten(1)
    wanted = attention_transfer(out.attentions[-1], old.attentions[-1], labels, 1, r.world.channels[1])
    assert wanted > 0
    torch.testing.assert_close(terms["attention"], 20 * wanted)


def test_trains_through_the_engine(tiny_train, tmp_path):
    run = tiny_train(
        tmp_path / "run",
        "method=sats",
        "model={name: segformer, variant: b0}",
        "data.size=64",
        "train.crop=64",
        "train.epochs=0.4",
        "train.later_epochs=0.4",
    )
    assert run.finished_steps() == 2
    terms = [record["terms"] for record in run.records("train") if record["step"] == 1]
    assert terms
    assert all(list(t) == ["seg", "distill", "attention"] for t in terms)


def test_the_engine_says_which_network_fits(tiny_train, tmp_path):
    with pytest.raises(UserError, match="network 'small' has none"):
        tiny_train(tmp_path / "run", "method=sats")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_inside_a_wrapper(tiny_train, tmp_path):
    run = tiny_train(
        tmp_path / "run",
        "method={name: ewf, method: sats}",
        "model={name: segformer, variant: b0}",
        "train.epochs=0.4",
        "train.later_epochs=0.4",
    )
    assert run.finished_steps() == 2
