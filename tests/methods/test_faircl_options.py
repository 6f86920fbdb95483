"""FairCL's options: what they set, and which are refused."""

import math
from dataclasses import replace

import pytest
from pydantic import ValidationError
from tiny_steps import Run

from faircl.methods.faircl import FairCL, FairCLConfig
from faircl.models.small import Small, SmallConfig


def test_margin_follows_the_width_and_features_the_options():
    assert Run().method.margin == pytest.approx(10 * math.sqrt(8 / 256))
    assert Run(scale_margin=False).method.margin == 10
    backbone = Run(embedding="backbone")
    assert backbone.method.bank.width == 24
    assert backbone.method.margin == pytest.approx(10 * math.sqrt(24 / 256))
    unit = Run(normalise=True, margin=1.5, scale_margin=False, period=1).begin(0)
    unit.iterate()
    assert unit.method.bank.queue[0, 0].norm().item() == pytest.approx(1, abs=1e-5)
    assert unit.method.bank.prototypes.norm(dim=1).max() <= 1 + 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {"normalise": True},
        {"normalise": True, "margin": 1.0},
        {"window": 4},
        {"clip": (0.0, 5.0)},
        {"clip": (5.0, 0.2)},
        {"reject": 1.0},
        {"period": 0},
        {"lambda_cons": -1},
        {"unlabelled": "nothing"},
        {"lamda_cons": 1},
        {"lambda_class": 1.001},
        {"cap_background": True},
        {"background_offset": -0.1},
        {"unlabelled": "soft", "reject": 0.1},
        {"windows": 0},
        {"soft_classes": 0},
        {"embedding": "backbone"},  # replayed features must be the classifier's input
        {"normalise": True, "margin": 1.0, "scale_margin": False},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValidationError):
        FairCLConfig(**options)


@pytest.mark.parametrize("fairness", ["adjust", "kl", "literal"])
def test_only_importance_bounds_lambda_class(fairness):
    assert FairCLConfig(fairness=fairness, lambda_class=10).lambda_class == 10
    assert FairCLConfig(fairness="importance", lambda_class=1).lambda_class == 1


def test_a_subclass_keeps_the_needs_it_declares():
    class Staged(FairCL):
        needs = replace(FairCL.needs, stages=True)

    model = Small(SmallConfig())
    assert Staged(FairCLConfig(), model).needs.stages
    assert not FairCL(FairCLConfig(), model).needs.stages
