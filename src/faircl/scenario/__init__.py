"""Continual scenarios: steps of classes or domains, their images and label tables, evaluation conventions."""

from faircl.labels import apply_table
from faircl.scenario.class_steps import build_scenario
from faircl.scenario.conventions import CONVENTIONS, FULL, Convention
from faircl.scenario.division import Splits
from faircl.scenario.from_config import IndexedScenario, make_scenario
from faircl.scenario.scenario import Protocol, Scenario, Setting, Step
from faircl.scenario.tasks import short_task, split_classes, step_sizes
from faircl.scenario.validation import Validation

__all__ = [
    "CONVENTIONS",
    "FULL",
    "Convention",
    "IndexedScenario",
    "Protocol",
    "Scenario",
    "Setting",
    "Splits",
    "Step",
    "Validation",
    "apply_table",
    "build_scenario",
    "make_scenario",
    "short_task",
    "split_classes",
    "step_sizes",
]
