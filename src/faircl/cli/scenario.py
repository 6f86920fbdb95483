"""``faircl scenario``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

import faircl
from faircl.api.opening import data_settings
from faircl.cli.opened import Data, DataSet, Root
from faircl.cli.output import Format, Json, Output, print_json
from faircl.tables import Column, Styled, Table, Value

if TYPE_CHECKING:
    from faircl.scenario import Scenario, Splits

app = typer.Typer(help="Look at continual scenarios.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Look at continual scenarios."""


@app.command()
def show(
    data: Data,
    root: Root = None,
    task: Annotated[str, typer.Option("--task", "-t", help="15-1, 100-50, 11-5, 6-2-3, offline …")] = "offline",
    setting: Annotated[
        str | None, typer.Option(help="overlapped (the default), disjoint or sequential.", show_default=False)
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="classes, or by domain: clean (split once) or plop (as published).", show_default=False),
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="random:SEED, or '\\[name, name, …]': order of classes or domains.")
    ] = None,
    convention: Annotated[str, typer.Option(help="Test images as scored by full, plop or mib.")] = "full",
    joint: Annotated[bool, typer.Option("--joint", help="As joint training sees it: one step.")] = False,
    overrides: DataSet = None,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Use what was counted before.")] = True,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Show what every step of a scenario holds: classes or domains, images, test images, leaks, and digests.

    Needs masks and lists only; images may be elsewhere. Leaked: share of the test images that a step up to then has
    trained on. Hidden: share of the training pixels whose class the step does not label.

    [bold]Examples[/bold]

    faircl scenario show --data voc --root /data/VOCdevkit --task 15-1

    faircl scenario show --data cityscapes --root /data/cityscapes --task 11-5 --protocol plop

    faircl scenario show --data folder --root /data/mine --task 6-5 --setting disjoint --order random:1 --json

    faircl scenario show --data scenes --task 6-4
    """
    import yaml

    from faircl.config.yaml_text import read_yaml
    from faircl.errors import UserError
    from faircl.scenario.division import find_splits

    try:
        wanted = {"task": _list_or_name(read_yaml(task), task), "setting": setting, "protocol": protocol}
        wanted["order"] = None if order is None else _list_or_name(read_yaml(order), order)
    except yaml.YAMLError:
        raise UserError(
            "Cannot read --task or --order: expected a name, or lists as in '[[sky, road], [car]]'."
        ) from None
    reader, _ = data_settings(data, root, wanted, overrides)
    scenario = faircl.open_scenario(
        data, root, **wanted, convention=convention, joint=joint, settings=overrides, cache=cache
    )
    about = {"data": reader.name, "convention": convention, "joint": joint}
    if as_json:
        print_json(about | scenario_json(scenario, find_splits(reader, scenario.protocol)))
        return
    output = Output(form)
    output.table(_table(scenario, reader.name, convention))
    for line in _notes(scenario, find_splits(reader, scenario.protocol)):
        output.text(line)


def scenario_json(scenario: Scenario, splits: Splits) -> dict[str, Any]:
    """Return a scenario as scripts want it: numbers of images, not their names."""
    every = [i for step in scenario.steps for i in step.classes]
    return {
        "task": scenario.task,
        "setting": None if scenario.by_domain else scenario.setting,
        "protocol": scenario.protocol,
        "train": splits.train,
        "test": splits.test,
        "validation": splits.validation,
        "validation_images": len(scenario.validation),
        "background": scenario.background,
        "background_absent": scenario.background_absent,
        "steps": [
            {
                # A domain step trains all classes again.
                "classes": every if scenario.by_domain else list(step.classes),
                "names": [scenario.classes.names[i] for i in (every if scenario.by_domain else step.classes)],
                "new_classes": len(step.classes),
                "domains": list(step.domains),
                "images": len(step.images),
                "test_images": len(step.test_images),
                "leaked": step.leaked,
                "hidden": step.hidden,
                "sha256": step.sha256,
            }
            for step in scenario.steps
        ],
        "sha256": scenario.sha256,
    }


def _list_or_name(value: Any, text: str) -> Any:
    """Return a list that was given as YAML; anything else is a name as it was written ("6-5" may look like a date)."""
    return value if isinstance(value, list) else text


def _table(scenario: Scenario, data: str, convention: str) -> Table:
    from faircl.scenario import short_task

    what = f"protocol {scenario.protocol}" if scenario.by_domain else scenario.setting
    columns = [
        Column("step"),
        Column("domains" if scenario.by_domain else "classes"),
        Column("images"),
        Column("test images"),
        Column("hidden", 1, kind="percent"),
        Column("leaked", 1, kind="percent"),
        Column("sha256", wrap=False),
    ]
    rows: list[list[Value]] = []
    for t, step in enumerate(scenario.steps):
        names = step.domains or tuple(scenario.classes.names[i] for i in step.classes)
        leaked = Styled(step.leaked, "bold red" if step.leaked else "")
        rows.append([t, _some(names), len(step.images), len(step.test_images), step.hidden, leaked, step.sha256[:12]])
    title = f"{data}, task {short_task(scenario.task)}, {what}, convention {convention}"
    return Table(columns, rows, title=title, boxed=True)


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:6])
    return f"{len(names)}: {shown}, …" if len(names) > 6 else shown


def _notes(scenario: Scenario, splits: Splits) -> list[str]:
    lines = [f"sha256 {scenario.sha256}"]
    if scenario.validation:
        parts = (splits.validation or "").split("+")
        if splits.validation == splits.train:
            left_out = ", left out of training at every step"
        elif set(splits.train.split("+")) <= set(parts):
            left_out = f", those of {splits.train} left out of training at every step"
        else:
            left_out = ""
        of = f"split {splits.validation}" if len(parts) == 1 else f"splits {' and '.join(parts)}"
        lines.append(f"validation: {len(scenario.validation)} images of {of}{left_out}.")
    if scenario.background_absent:
        lines.append("note: no test image shows background, so it is scored at no step.")
    if worst := max(step.leaked for step in scenario.steps):
        lines.append(
            f"warning: up to {worst:.1%} of a step's test images have been trained on; scores on them are too good."
        )
    return lines
