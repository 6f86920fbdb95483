"""Whether the soft labels of the steps to come fit into host memory; asked before training."""

from __future__ import annotations

from faircl.distributed import local_world_size
from faircl.engine.plan import Plan
from faircl.engine.step_inputs import step_iterations
from faircl.errors import UserError
from faircl.loading.decoded_cache import GB, free_memory
from faircl.methods.base import Method


def check_soft_memory(plan: Plan, method: Method, cells: int, first_step: int) -> None:
    """Raise a UserError if the soft labels of a later step, from ``first_step`` on, exceed the free memory.

    ``cells`` are those of a training window at network stride. Every process on this machine holds all soft labels.
    """
    if plan.scenario.by_domain or plan.scenario.setting == "sequential":
        return  # no class is hidden
    per_update = plan.config.train.batch * plan.config.optim.accumulate
    needed = 0
    for step in range(max(first_step, 1), len(plan.scenario.steps)):
        images = len(plan.scenario.steps[step].images) + len(plan.memories[step].images)
        needed = max(needed, method.soft_label_bytes(images, step_iterations(plan, step) * per_update, cells))
    processes, free = local_world_size(), free_memory()
    if processes * needed > free:
        by = f", for {processes} processes" if processes > 1 else ""
        raise UserError(
            f"The soft labels of a step need about {processes * needed / GB:.1f} GB of memory{by}, and {free / GB:.1f} "
            "GB are free on this machine; lower method.windows or method.soft_classes, or start fewer processes."
        )
