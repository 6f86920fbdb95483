"""Balanced losses under methods: what they count, what they change, and who may not have them."""

import pytest
import torch
from grids import grid
from tiny_steps import Run, World

from faircl.config.run import parse_config
from faircl.config.schema import BalanceConfig
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.losses import importance_weights, logit_offset, upsampled_cross_entropy
from faircl.methods.balance import SOFTMAX_ONLY, Balance
from faircl.methods.state import load_method_state, method_state
from faircl.registry import METHODS

LOSSES = ("weighted", "class_balanced", "focal", "balanced_softmax", "logit_adjustment", "seesaw", "tilted")
SIGMOIDS = {name for name in METHODS.builtin if METHODS.get(name).needs.sigmoid}
FITTING = [
    (name, loss)
    for name in METHODS.builtin
    for loss in LOSSES
    if not METHODS.get(name).needs.attentions and not (name in SIGMOIDS and loss in SOFTMAX_ONLY)
]


def balanced(run, loss, **options):
    run.method.set_balance(Balance(BalanceConfig(loss=loss, **options)))
    return run


def part(method):
    (found,) = [module for module in method.modules() if isinstance(module, Balance)]
    return found


@grid(("name", "loss"), FITTING, quick=lambda case: case[0] == "faircl" or case[1] in ("weighted", "tilted"))
def test_every_method_trains_with_every_loss_that_fits(name, loss):
    run = balanced(Run(name=name), loss)
    run.begin(0) if run.method.joint else run.to_step_one(2)
    history = run.iterate(2)
    assert part(run.method).used
    assert all(torch.tensor(list(terms.values())).isfinite().all() for terms in history)


@pytest.mark.parametrize("loss", ["weighted", "class_balanced", "focal", "logit_adjustment", "seesaw"])
def test_neutral_options_leave_the_loss_as_it_was(loss):
    neutral = {"power": 0, "beta": 0, "gamma": 0, "tau": 0, "mitigation": 0, "compensation": 0}
    plain = Run(name="mib").to_step_one(2).iterate(2)
    found = balanced(Run(name="mib"), loss, **neutral).to_step_one(2).iterate(2)
    for one, other in zip(plain, found, strict=True):
        assert other == pytest.approx(one, rel=1e-5)


def test_counts_are_of_the_step_that_labelled_a_class():
    world = World()
    run = balanced(Run(world, name="finetune"), "weighted").begin(0)
    first = world.context(0, run.model)
    balance = part(run.method)
    assert balance.share.tolist() == pytest.approx((first.label_pixels / first.pixels).tolist())
    old = balance.share.clone(), balance.images.clone()
    run.end().begin(1)
    second = world.context(1, run.model)
    assert second.label_pixels[1:3].tolist() == [0, 0]  # the second step hides them …
    assert torch.equal(balance.share[1:3], old[0][1:3])  # … so they keep what the first step showed
    assert torch.equal(balance.images[1:3], old[1][1:3])
    assert float(balance.share[0]) == pytest.approx(int(second.label_pixels[0]) / second.pixels)
    assert balance.share[3:].tolist() == pytest.approx((second.label_pixels[3:] / second.pixels).tolist())
    assert balance.images[3:].tolist() == second.label_images[3:].tolist()


def test_domain_steps_are_counted_together():
    run = balanced(Run(name="finetune"), "weighted").begin(0)
    balance, context = part(run.method), run.context
    context.domain, context.step = True, 1
    context.old_classes = context.classes
    context.label_pixels, context.pixels = torch.tensor([0, 30, 70]), 100
    before, n = balance.share.clone(), balance.pixels
    balance.begin_step(context)
    expected = (before * n + torch.tensor([0, 30, 70])) / (n + 100)
    assert balance.share.tolist() == pytest.approx(expected.tolist())
    assert balance.pixels == n + 100


def test_weights_and_offsets_are_what_their_formulas_say():
    run = balanced(Run(name="finetune"), "weighted", power=0.5).begin(0)
    batch, out, targets, terms = run.forward()
    share = part(run.method).share
    weight = importance_weights(share / share.sum(), 0.5, (0.1, 10.0)).float()
    expected = upsampled_cross_entropy(out.logits, targets, class_weight=weight)
    assert terms["seg"].item() == pytest.approx(expected.item(), rel=1e-5)
    run.method.set_balance(Balance(BalanceConfig(loss="logit_adjustment", tau=0.7)))
    run.method.balance.begin_step(run.context)
    offset = logit_offset(share / share.sum(), 0.7).float()
    expected = upsampled_cross_entropy(out.logits, targets, offset=offset)
    assert run.method.losses(batch, out, None, targets)["seg"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_balanced_softmax_is_logit_adjustment_of_strength_one():
    found = [
        balanced(Run(name="finetune"), loss, **options).begin(0).iterate(3)
        for loss, options in (("balanced_softmax", {"tau": 9.0}), ("logit_adjustment", {"tau": 1.0}))
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("background", [True, False])
def test_a_channel_that_is_no_class_weighs_what_background_does(background):
    balance = Balance(BalanceConfig(loss="weighted"))
    run = Run(World(background), name="finetune").begin(0)
    balance.begin_step(run.context)
    classes = run.context.classes
    logits, target = torch.randn(1, classes + 1, 2, 2), torch.tensor([[[classes, IGNORE], [classes, classes]]])
    weight = importance_weights(balance.share / balance.share.sum(), 1.0, (0.1, 10.0))[0] if background else 1.0
    expected = float(weight) * float(upsampled_cross_entropy(logits, target))
    assert float(balance.cross_entropy(logits, target)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["mib", "{name: ewf, method: plop}"])
def test_counts_are_saved_with_the_method(name):
    config = METHODS.parse_config({"name": "ewf", "method": "plop"} if "ewf" in name else name)
    runs = [balanced(Run(**config.model_dump()), "weighted") for _ in range(2)]
    runs[0].to_step_one(1)
    load_method_state(runs[1].method, method_state(runs[0].method))
    assert torch.equal(part(runs[1].method).share, part(runs[0].method).share)
    assert len(part(runs[1].method).share) == 5


# Through the engine


@pytest.mark.parametrize("loss", SOFTMAX_ONLY)
def test_sigmoids_refuse_softmax_losses(loss, tiny_train, tmp_path):
    with pytest.raises(UserError, match="one sigmoid per class"):
        tiny_train(tmp_path / "run", "method=lwf-mc", f"balance.loss={loss}")
    assert not (tmp_path / "run").exists()


def test_the_method_inside_is_named(tiny_train, tmp_path):
    with pytest.raises(UserError, match="method 'ewf around lwf-mc' trains one sigmoid"):
        tiny_train(tmp_path / "run", "method={name: ewf, method: lwf-mc}", "balance.loss=seesaw")
    with pytest.raises(UserError, match="Method 'awt around ssul-m' trains on images of earlier steps"):
        tiny_train(tmp_path / "run", "method={name: awt, method: ssul-m}")


def test_a_method_with_a_loss_of_its_own_is_told(tiny_train, tmp_path, monkeypatch):
    from faircl.methods.finetune import FineTune

    own = lambda self, batch, out, old, targets: {"seg": upsampled_cross_entropy(out.logits, targets)}  # noqa: E731
    monkeypatch.setattr(FineTune, "losses", own)
    with pytest.raises(UserError, match=r"segmentation loss of its own"):
        tiny_train(tmp_path / "run", "method=finetune", "balance.loss=focal")


def test_a_method_that_begins_a_step_by_itself_is_told(tiny_train, tmp_path, monkeypatch):
    from faircl.methods.finetune import FineTune

    begin = lambda self, context: context.model.classifier.grow(context.classes - context.old_classes)  # noqa: E731
    monkeypatch.setattr(FineTune, "begin_step", begin, raising=False)
    with pytest.raises(UserError, match=r"has not counted its classes"):
        tiny_train(tmp_path / "run", "method=finetune", "balance.loss=weighted")


@pytest.mark.slow
def test_training_changes_and_resumes_bit_for_bit(tiny_train, silent, tmp_path):
    options = ("method=mib", "balance.loss=weighted", "balance.sampling=rare", "balance.temperature=0.3")
    whole = tiny_train(tmp_path / "whole", *options)
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "parts", *options, reporter=silent("step 1 train"))
    parts = tiny_train(tmp_path / "parts", *options, resume=True)
    plain = tiny_train(tmp_path / "plain", "method=mib")
    files = [run.step_path(1) / "model.safetensors" for run in (whole, parts, plain)]
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()


@pytest.mark.parametrize("bad", ["balance.loss=focl", "balance.clip=[3, 1]", "memory.share=1.0", "memory.images=-1"])
def test_bad_settings_are_named(bad):
    from faircl.config.run import load_config

    with pytest.raises(UserError, match=bad.partition("=")[0].replace(".", r"\.")):
        load_config("demo", [bad])
    assert parse_config({"data": "scenes", "model": "small", "method": "mib"}).balance.loss == "plain"
