"""Continual scenarios: class increments, image filters, label tables."""

from faircl.scenario.scenario import Scenario, Setting, Step, apply_table, build_scenario
from faircl.scenario.tasks import short_task, split_classes, step_sizes

__all__ = ["Scenario", "Setting", "Step", "apply_table", "build_scenario", "short_task", "split_classes", "step_sizes"]
