"""What a run is about to do, in a few lines: data, classes, network, method, device, number of updates."""

from __future__ import annotations

import torch

from faircl.config.describe import method_words
from faircl.distributed import world_size
from faircl.engine.plan import Plan
from faircl.engine.step_inputs import step_iterations
from faircl.models.segmenter import Segmenter
from faircl.scenario import short_task


def header(plan: Plan, model: Segmenter, device: torch.device, resumed: tuple[int, int] | None = None) -> str:
    """Return the lines that are printed before the first step to be trained: a name and what it is.

    ``resumed`` is the step that a run is resumed at, and how many of its updates are done.
    """
    config = plan.config
    rows = [
        ("data", _data(plan)),
        ("classes", _classes(plan)),
        ("network", f"{config.model.name}, {_parameters(plan, model)}"),
        ("method", method_words(config.model_dump(mode="json"))),
        ("device", f"{_device(device)}, precision {config.train.precision}"),
        ("updates", _updates(plan)),
    ]
    if resumed is not None:
        step, done = resumed
        where = f"after update {done:,}" if done else "from its first update"
        rows.append(("resumed", f"at step {step} {where}; {step} of {len(plan.scenario.steps)} steps are done"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def _data(plan: Plan) -> str:
    config, steps = plan.config.data, plan.scenario.steps
    train = {id for step in steps for id in step.images}
    test = {id for step in steps for id in step.test_images}
    root = getattr(config, "root", None)
    validation = "" if plan.validation is None else f", {len(plan.validation.index.ids):,} validation"
    images = f"{len(train):,} training{validation} and {len(test):,} test images"
    evaluated = ", evaluated on the validation images" if plan.config.eval.images == "validation" else ""
    return f"{config.name}{f' {root}' if root else ''}, {images}{evaluated}"


def _classes(plan: Plan) -> str:
    scenario = plan.scenario
    number = scenario.channels(len(scenario.steps) - 1) - int(scenario.background)
    how = f"protocol {scenario.protocol}" if scenario.by_domain else scenario.setting
    return (
        f"{number}{' and background' if scenario.background else ', no background'}; task "
        f"{short_task(scenario.task)}, {how}, {_counted(len(scenario.steps), 'step')}"
    )


def _parameters(plan: Plan, model: Segmenter) -> str:
    """Count the parameters with the classifier of the last step, and those that have a learning rate at some step."""
    missing = plan.scenario.channels(len(plan.scenario.steps) - 1) - model.classifier.classes
    counts = {"new_classifier": missing * (model.classifier.width + 1)}
    for part, parameter in model.parameter_groups():
        counts[part] = counts.get(part, 0) + parameter.numel()
    rates = [plan.config.optim.part_rates(step) for step in range(len(plan.scenario.steps))]
    trained = sum(count for part, count in counts.items() if any(getattr(one, part) > 0 for one in rates))
    number = sum(counts.values())
    return f"{number:,} parameters, {'all' if trained == number else f'{trained:,} of them'} trainable"


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        name = f"CPU with {_counted(torch.get_num_threads(), 'thread')}"
    return name if world_size() == 1 else f"{world_size()} processes, each on {name}"


def _updates(plan: Plan) -> str:
    c, accumulate = plan.config.train, plan.config.optim.accumulate
    first, *later = (step_iterations(plan, step) for step in range(len(plan.scenario.steps)))
    if first == 0:  # a step that adds classes to a model
        return f"{sum(later):,}; batch {c.batch}, {c.later_epochs or c.epochs:g} epochs"
    text = f"{first:,} at step 0"
    if later:
        least, most = min(later), max(later)
        each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        text += f", {each} at {'step 1' if len(later) == 1 else f'each of {len(later)} later steps'}"
        text += f", {first + sum(later):,} in all"
    batch = f"batch {c.batch}{f' × {accumulate}' if accumulate > 1 else ''}"
    epochs = f"{c.epochs:g} epoch{'' if c.epochs == 1 else 's'}"
    if later and c.later_epochs not in (None, c.epochs):
        epochs += f", then {c.later_epochs:g}"
    return f"{text}; {batch}, {epochs}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
