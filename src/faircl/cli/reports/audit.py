"""``faircl audit``: how a model treats every class, from its masks or from the evaluation of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import faircl
from faircl.cli.output import Format, Json, Output, print_json
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.api.audit_result import AuditResult

_MASKS, _LIMITS = "Masks", "Limits: exit code 1 when one is broken"
Folder = Path | None
Points = str | None


def audit(
    run: Annotated[
        Folder, typer.Argument(metavar="RUN", help="A run of faircl, or an earlier audit, instead of masks.")
    ] = None,
    labels: Annotated[Folder, typer.Option(help="Folder of label masks.", rich_help_panel=_MASKS)] = None,
    predictions: Annotated[
        Folder, typer.Option(help="Folder of predicted masks with the same names.", rich_help_panel=_MASKS)
    ] = None,
    classes: Annotated[
        Folder,
        typer.Option(help="Classes: a name per line, 'id name' lines, JSON or YAML.", rich_help_panel=_MASKS),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="VALUE", help="Label pixels not to count: a value or class; 255.", rich_help_panel=_MASKS),
    ] = None,
    background: Annotated[
        str | None, typer.Option(metavar="CLASS", help="The background class, if any.", rich_help_panel=_MASKS)
    ] = None,
    labels_ending: Annotated[
        str, typer.Option(help="How names of labels end, e.g. _gtFine_labelTrainIds.", rich_help_panel=_MASKS)
    ] = "",
    predictions_ending: Annotated[str, typer.Option(help="How names of predictions end.", rich_help_panel=_MASKS)] = "",
    common: Annotated[
        bool, typer.Option("--common", help="Leave out labels without a prediction.", rich_help_panel=_MASKS)
    ] = False,
    resize: Annotated[
        bool,
        typer.Option("--resize", help="Bring predictions to the label's size, nearest pixel.", rich_help_panel=_MASKS),
    ] = False,
    step: Annotated[int | None, typer.Option(help="With RUN: after this step; otherwise -1, the last.")] = None,
    groups: Annotated[Folder, typer.Option(metavar="FILE", help="CSV or JSON: city, camera, … of every image.")] = None,
    before: Annotated[Folder, typer.Option(metavar="EARLIER", help="An earlier audit or run to compare with.")] = None,
    max_std: Annotated[
        Points, typer.Option(metavar="POINTS", help="Most STD of class IoUs, in points.", rich_help_panel=_LIMITS)
    ] = None,
    max_gap: Annotated[
        Points,
        typer.Option(metavar="POINTS", help="Most points between best and worst class.", rich_help_panel=_LIMITS),
    ] = None,
    min_miou: Annotated[
        Points, typer.Option(metavar="PERCENT", help="Least mean IoU: 60.", rich_help_panel=_LIMITS)
    ] = None,
    min_class_iou: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]IOU", help="Least IoU of every class, or of one.", rich_help_panel=_LIMITS),
    ] = None,
    max_drop: Annotated[
        Points,
        typer.Option(
            metavar="POINTS", help="Most that the mean or a class lost since --before.", rich_help_panel=_LIMITS
        ),
    ] = None,
    out: Annotated[
        Folder, typer.Option("--out", "-o", help="Also write audit.json, evaluation.npz, report.html here.")
    ] = None,
    form: Format = "terminal",
    as_json: Json = False,
) -> None:
    """Audit the masks of any model, or a run: every class, how far apart they are, and how sure that is.

    Exit code 1 when a limit is broken, 2 for a mistake. A loss since --before breaks --max-drop when its whole 95 %
    interval lies above the limit; other limits look at the point estimate.

    [bold]Examples[/bold]

    faircl audit --labels val/masks --predictions out/masks --classes classes.txt

    faircl audit --labels val --predictions out --classes names.json --groups cities.csv --out audit

    faircl audit --labels val --predictions out --classes classes.txt --min-class-iou 20 --max-std 25

    faircl audit runs/street --before runs/earlier --max-drop 2 --json
    """
    from faircl.api.audit_result import check_audit_folder
    from faircl.auditing.limits import Limits, parse_class_limits
    from faircl.progress import ConsoleReporter

    given = {"max_std": max_std, "max_gap": max_gap, "min_miou": min_miou, "max_drop": max_drop}
    numbers = {name: _number(name, text) for name, text in given.items()}
    limits = Limits(**numbers, **parse_class_limits(min_class_iou or []))
    if out is not None:
        check_audit_folder(out)
    shared: dict[str, Any] = {"groups": groups, "limits": limits, "before": before}
    masks: dict[str, Any] = {"--labels": labels, "--predictions": predictions, "--classes": classes}
    counting = {"--ignore": ignore, "--background": background, "--common": common, "--resize": resize}
    counting |= {"--labels-ending": labels_ending, "--predictions-ending": predictions_ending}
    _check_source(run, masks, counting, step)
    if run is not None:
        result = faircl.audit_run(run, step, **shared)
    else:
        result = faircl.audit(
            *masks.values(),
            ignore=255 if ignore is None else ignore,
            background=background,
            endings=(labels_ending, predictions_ending),
            common=common,
            resize=resize,
            reporter=ConsoleReporter(),
            **shared,
        )
    after = f", after step {result.record.step}" if run is not None and (run / "steps").is_dir() else ""
    name = f"Audit of {run or predictions}{after}"
    if out is not None:
        result.save(out, name)
    if as_json:
        print_json(result.to_json())
    else:
        _print(result, name, Output(form), out)
    for check in result.broken:
        print(f"faircl: limit broken: {' '.join(check.text.split())}.", file=sys.stderr)
    if result.broken:
        raise typer.Exit(1)


def _number(limit: str, text: str | None) -> Any:
    from faircl.auditing.limits import parse_limit

    try:
        return None if text is None else parse_limit(text)
    except ValueError:
        raise UserError(f"Found --{limit.replace('_', '-')} {text}; expected a number such as 20.") from None


def _check_source(run: Path | None, masks: dict[str, Any], counting: dict[str, Any], step: int | None) -> None:
    given = [name for name, path in masks.items() if path is not None]
    missing = [name for name in masks if name not in given]
    if run is not None and given:
        raise UserError(f"Found both the run {run} and {' and '.join(given)}; give a run or masks.")
    if run is not None and (unused := [name for name, value in counting.items() if value]):
        raise UserError(
            f"Found {' and '.join(unused)} for the run {run}, whose pixels are counted already; leave it out."
        )
    if run is None and missing:
        what = f"Without {' and '.join(missing)} masks cannot be audited" if given else "There is nothing to audit"
        raise UserError(f"{what}; give --labels, --predictions and --classes, or the folder of a run.")
    if run is None and step is not None:
        raise UserError(f"Found --step {step} for masks, which have no steps; leave it out.")


def _print(result: AuditResult, name: str, output: Output, out: Path | None) -> None:
    from faircl.report import audit_tables as tables

    output.table(tables.headline_table(result.audit, name))
    output.table(tables.class_table(result.audit))
    for table in tables.group_tables(result.audit):
        output.table(table)
    if result.difference is not None:
        output.table(tables.difference_table(result.difference))
    for note in result.notes:
        output.text(f"note: {note}")
    if result.limits and not result.broken:
        output.text(f"all limits hold: {'; '.join(check.text for check in result.limits)}")
    if out is not None:
        output.text(f"written to {out}")
