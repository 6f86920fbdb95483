"""Gradient norms of classes against the gradient of softmax cross-entropy, derived by hand."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import faircl
from faircl.deploy.gradient_norms import class_norms
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.losses import importance_weights
from faircl.losses.cross_entropy import upsampled_cross_entropy
from faircl.scenario.division import find_splits


def by_hand(logits, labels, weight):
    """Σ over the pixels of every class of w_y · ‖softmax(z) − onehot(y)‖, in plain loops."""
    sums = [0.0] * len(weight)
    for b, row, column in np.ndindex(labels.shape):
        y = int(labels[b, row, column])
        if y == IGNORE:
            continue
        z = [float(v) for v in logits[b, :, row, column]]
        total = sum(math.exp(v) for v in z)
        error = [math.exp(v) / total - (c == y) for c, v in enumerate(z)]
        sums[y] += weight[y] * math.sqrt(sum(v * v for v in error))
    return sums


def test_softmax_gradient_by_hand():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 4, 5, 6, generator=generator)
    labels = torch.randint(0, 3, (2, 5, 6), generator=generator)  # class 3 has no pixel
    labels[0, :2] = IGNORE
    weight = torch.tensor([0.5, 1.0, 3.0, 2.0])
    pixels, plain, fair = class_norms(
        logits, labels, 4, upsampled_cross_entropy, lambda z, y: upsampled_cross_entropy(z, y, class_weight=weight)
    )
    assert pixels.tolist() == [int((labels == c).sum()) for c in range(4)]
    assert plain.tolist() == pytest.approx(by_hand(logits, labels, [1] * 4), rel=1e-5)
    assert fair.tolist() == pytest.approx(by_hand(logits, labels, weight.tolist()), rel=1e-5)


def test_a_run_against_the_weights_of_its_distribution(tiny_run):
    """FairCL's importance weights scale every pixel's gradient, so that shares follow from them alone."""
    config = tiny_run.config()
    assert config.method.fairness == "importance"
    found = faircl.gradient_norms(tiny_run.path, images=6, reporter=faircl.SilentReporter())
    assert (found.step, found.images) == (1, 6)
    for name in ("pixel_share", "without_term", "with_term"):
        assert sum(getattr(c, name) for c in found.classes) == pytest.approx(100)
    state = load_file(tiny_run.step_path(1) / "method.safetensors")
    share = next(value for key, value in state.items() if key.endswith("distribution.share"))
    weight = 1 + config.method.lambda_class * (
        importance_weights(share / share.sum(), config.method.gamma, config.method.clip) - 1
    )
    channel = {id: k for k, id in enumerate(tiny_run.load_scenario().channel_ids)}
    expected = np.array([c.without_term * float(weight[channel[c.id]]) for c in found.classes])
    assert [c.with_term for c in found.classes] == pytest.approx(100 * expected / expected.sum(), rel=1e-4)


def test_pixels_are_those_of_the_chosen_images(tiny_run):
    scenario = tiny_run.load_scenario()
    data = tiny_run.config().data.open()
    split = find_splits(tiny_run.config().data, scenario.protocol).train
    found = faircl.gradient_norms(tiny_run.path, step=0, images=10_000, reporter=faircl.SilentReporter())
    assert found.images == len(scenario.steps[0].images)
    masks = [data.read(split, id).mask for id in scenario.steps[0].images]
    for c in found.classes[1:]:  # background holds later classes too
        assert c.pixels == sum(int((mask == c.id).sum()) for mask in masks)


@pytest.mark.parametrize("settings", [["method.fairness=adjust"], ["method.fairness=kl"]])
@pytest.mark.slow
def test_other_readings_change_the_shares(settings, tiny_train, tmp_path):
    run = tiny_train(tmp_path / "run", *settings)
    found = faircl.gradient_norms(run.path, step=0, images=4, reporter=faircl.SilentReporter())
    assert any(c.with_term != pytest.approx(c.without_term, abs=1e-6) for c in found.classes)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["plain", "weighted", "logit_adjustment"])
@pytest.mark.parametrize("method", ["finetune", "lwf-mc", "ssul", "ewf"])
def test_other_methods(method, loss, tiny_train, tmp_path):
    if method in ("lwf-mc", "ssul") and loss == "logit_adjustment":
        pytest.skip("needs a softmax")
    run = tiny_train(tmp_path / "run", f"method={{name: {method}}}", f"balance.loss={loss}")
    found = faircl.gradient_norms(run.path, images=4, reporter=faircl.SilentReporter())
    same = all(c.with_term == pytest.approx(c.without_term, abs=1e-4) for c in found.classes)
    assert same == (loss == "plain")


def test_the_command(cli, tiny_run):
    shown = cli("gradients", tiny_run.path, "--images", 2, "--json")
    assert shown.code == 0, shown.err
    classes = json.loads(shown.out)["classes"]
    assert {"id", "name", "pixels", "pixel_share", "without_term", "with_term"} <= set(classes[0])
    table = cli("gradients", tiny_run.path, "--step", 0, "--images", 2, "--format", "csv")
    assert table.code == 0, table.err
    assert table.out.splitlines()[0].startswith("class,")


def test_mistakes(cli, tiny_run):
    assert "no step 7" in cli("gradients", tiny_run.path, "--step", 7).err
    assert "no step -3; counted from its last, steps go back to -2" in cli("gradients", tiny_run.path, "--step", -3).err
    assert "At least one image" in cli("gradients", tiny_run.path, "--images", 0).err
    assert cli("gradients", "nowhere").code == 2
    with pytest.raises(UserError, match="--root is for folder data"):
        faircl.gradient_norms(tiny_run.path, root="elsewhere", reporter=faircl.SilentReporter())
