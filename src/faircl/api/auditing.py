"""Audits: of masks that any model has made, of any torch model, and of a run's own evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from faircl.api.audit_result import AuditResult, open_evaluation
from faircl.api.opening import RunSource, folder_path
from faircl.auditing.class_list import ClassSource, read_class_list
from faircl.auditing.groups_file import Rows, read_groups
from faircl.auditing.limits import Limits, check_drops, check_limits, read_limits
from faircl.auditing.mask_record import Counted, MaskSettings, count_arrays, count_files
from faircl.auditing.pairing import pair_files
from faircl.errors import UserError
from faircl.fairness.audit import audit_record
from faircl.fairness.difference import paired_difference
from faircl.fairness.record import EvaluationRecord
from faircl.progress import Reporter, SilentReporter

if TYPE_CHECKING:
    import torch

Ignored = int | str | Sequence[int | str]
GivenLimits = Limits | Mapping[str, Any] | None
Earlier = RunSource | AuditResult | None
"""An earlier audit: its folder, its evaluation.npz or the result itself; or a run."""


def audit(
    labels: str | Path | Iterable[Any],
    predictions: str | Path | Iterable[Any],
    classes: ClassSource,
    *,
    groups: str | Path | Rows | None = None,
    ignore: Ignored = 255,
    background: int | str | None = None,
    limits: GivenLimits = None,
    before: Earlier = None,
    ids: Sequence[str] | None = None,
    endings: tuple[str, str] = ("", ""),
    common: bool = False,
    resize: bool = False,
    reporter: Reporter | None = None,
) -> AuditResult:
    """Audit masks that any model has made, against their labels.

    ``labels`` and ``predictions`` are two folders of mask files, paired by their names (`docs/audit.md`), or two
    iterables of class ids (H, W); ``ids`` then names the images. ``classes`` is a file, a list of names in the order
    of their ids, or names by id. Label pixels that ``ignore`` lists, by value or class name, are not counted.
    ``limits`` is a mapping such as ``{"max_std": 20, "min_class_iou": {"rider": 30}, "max_drop": 2}``, the last one
    against the audit ``before``; ``result.broken`` lists those that do not hold.
    """
    wanted = _wanted(limits, before)
    listed = read_class_list(classes)
    settings = _settings(ignore, background, resize)
    if isinstance(labels, str | Path) and isinstance(predictions, str | Path):
        if ids is not None:
            raise UserError("Names of images (ids) were given with folders, whose files name them; leave them out.")
        pairs = pair_files(Path(labels), Path(predictions), endings=endings, common=common)
        counted = count_files(pairs, listed, settings, reporter or SilentReporter())
    elif isinstance(labels, str | Path) or isinstance(predictions, str | Path):
        raise UserError("Labels and predictions must both be folders or both be masks; found one of each.")
    else:
        counted = count_arrays(labels, predictions, listed, settings, ids or ())
    return _result(counted, groups, wanted)


def audit_model(
    model: Callable[..., Any],
    loader: Iterable[Any],
    classes: ClassSource,
    *,
    device: str | torch.device | None = None,
    groups: str | Path | Rows | None = None,
    ignore: Ignored = 255,
    background: int | str | None = None,
    limits: GivenLimits = None,
    before: Earlier = None,
    ids: Sequence[str] | None = None,
    reporter: Reporter | None = None,
) -> AuditResult:
    """Audit any torch model on a loader of batches (images, masks), calibration included.

    The model gives logits (B, C, h, w), or an output with ``logits`` or ``out``; smaller ones are upsampled to the
    masks (B, H, W). Channel k is the k-th class. ``device`` is by default that of the model. All else is as in
    `audit`.
    """
    from faircl.deploy.model_record import count_model
    from faircl.devices import torch_device

    wanted = _wanted(limits, before)
    listed = read_class_list(classes)
    settings = _settings(ignore, background, resize=False)
    first = next(iter(model.parameters()), None) if hasattr(model, "parameters") else None
    place = torch_device(device or ("cpu" if first is None else first.device))
    counted = count_model(model, loader, listed, settings, place, reporter or SilentReporter(), ids or ())
    return _result(counted, groups, wanted)


def audit_run(
    run: RunSource,
    step: int | None = None,
    *,
    groups: str | Path | Rows | None = None,
    limits: GivenLimits = None,
    before: Earlier = None,
) -> AuditResult:
    """Audit a run of faircl after a step, by default the last, from its saved evaluation; no network runs.

    ``run`` may also be the folder of an earlier audit. All else is as in `audit`.
    """
    wanted = _wanted(limits, before)
    folder = folder_path(run)
    record = open_evaluation(folder, step)
    counted = Counted(record, (), {"images": len(record.images), "run": folder.name, "step": record.step})
    return _result(counted, groups, wanted)


class _Wanted(NamedTuple):
    limits: Limits
    earlier: EvaluationRecord | None


def _wanted(limits: GivenLimits, before: Earlier) -> _Wanted:
    """Check the limits and read the earlier audit, before anything is counted."""
    wanted = read_limits(limits)
    if wanted.max_drop is not None and before is None:
        raise UserError("The limit max_drop needs an earlier audit to compare with; give one with --before.")
    if before is None or isinstance(before, AuditResult):
        return _Wanted(wanted, None if before is None else before.record)
    return _Wanted(wanted, open_evaluation(folder_path(before)))


def _result(counted: Counted, groups: str | Path | Rows | None, wanted: _Wanted) -> AuditResult:
    record, notes, lineage = counted
    table = None if groups is None else read_groups(groups, record.images)
    found = audit_record(record, groups=None if table is None else table.values)
    checks = [*check_limits(found, wanted.limits)]
    difference = None if wanted.earlier is None else paired_difference(wanted.earlier, record)
    if difference is not None and wanted.limits.max_drop is not None:
        checks += check_drops(difference, wanted.limits.max_drop)
    more = (*(() if table is None else table.notes), *_renamed(wanted.earlier, record))
    return AuditResult(found, record, tuple(checks), difference, (*notes, *more), lineage)


def _renamed(earlier: EvaluationRecord | None, record: EvaluationRecord) -> list[str]:
    """Say which classes had another name in the earlier audit; classes are compared by id."""
    names = {} if earlier is None else {one.id: one.name for one in earlier.classes}
    return [
        f"id {one.id} is '{one.name}' here and '{names[one.id]}' in the earlier audit; classes are compared by id"
        for one in record.classes
        if names.get(one.id, one.name) != one.name
    ]


def _settings(ignore: Ignored, background: int | str | None, resize: bool) -> MaskSettings:
    values = (ignore,) if isinstance(ignore, int | str) else tuple(ignore)
    return MaskSettings(values, background, resize)
