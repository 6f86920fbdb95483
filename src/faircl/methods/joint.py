"""Joint training: all classes at once with all labels. The reference without forgetting."""

from __future__ import annotations

from faircl.methods.base import Needs
from faircl.methods.finetune import FineTune, FineTuneConfig


class JointConfig(FineTuneConfig):
    """Hyper-parameters of joint training."""

    name: str = "joint"


class Joint(FineTune):
    """Cross-entropy on all labels of all steps in a single step."""

    Config = JointConfig
    name = "joint"
    summary = "all classes in one step with all labels; what continual methods are measured against"
    paper = "the row without forgetting of every table (offline)"
    needs = Needs("all labels of all steps")
    joint = True
