"""Adding classes to a trained model, and the versions that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faircl.api.configuring import Settings, as_overrides
from faircl.api.opening import DataSource, RunSource, folder_path
from faircl.errors import UserError

if TYPE_CHECKING:
    from faircl.progress import Reporter
    from faircl.runs.versions import Version

MAX_DROP = 3.0
"""Points of IoU that old classes may lose on average, unless told otherwise."""


def add_classes(
    run: RunSource,
    data: DataSource | None = None,
    root: str | Path | None = None,
    *,
    out: str | Path | None = None,
    holdout: DataSource | None = None,
    classes: Sequence[str] | None = None,
    same: Mapping[str, str] | None = None,
    labelled: Mapping[str, Sequence[str]] | None = None,
    complete: bool = False,
    max_drop: float = MAX_DROP,
    max_class_drop: float | None = None,
    settings: Settings = None,
    resume: bool = False,
    reporter: Reporter | None = None,
) -> Version:
    """Teach a model the classes of new data that it does not know, and return the new version of its run.

    ``data`` is a folder with images/train, masks/train and classes.txt, or the name of another reader with its
    ``root``; nothing of the old data is needed. New classes are those of a name that the model does not know, or
    those of them that ``classes`` lists; ``same`` says that a name of the data is one of the model's classes under
    another name. Pixels that the masks do not label may show anything that the model knows, unless the masks are
    ``complete``; ``labelled`` maps patterns of image ids to the classes that these images label at all.

    With ``holdout``, images (its split test) whose masks label old classes, the version is rejected if old classes lose
    more than ``max_drop`` points of IoU on average, or one of them more than ``max_class_drop``: it is kept beside the
    accepted ones and not used. Without it the agreement with the model before is reported, and nothing is rejected.

    The version is added to the run, whose other files stay as they are; with ``out`` to a copy of the run. ``settings``
    changes training, as in ``{"train.later_epochs": 10}``. ``resume`` continues a version that was interrupted.
    """
    from faircl.deploy.adding.request import Request
    from faircl.deploy.reader_settings import reader_settings
    from faircl.files import check_new_folder
    from faircl.progress import ConsoleReporter
    from faircl.runs.versions import VersionChain

    folder = folder_path(run)
    VersionChain.open(folder)
    request = None
    if resume:
        given = (data, root, out, holdout, classes, same, labelled, complete, settings, max_class_drop)
        if any(given) or max_drop != MAX_DROP:
            raise UserError("An interrupted addition is continued as it was begun; with resume give the run alone.")
    elif data is None:
        raise UserError("No new data is given; name a folder of images and masks with --data.")
    else:
        if out is not None:
            check_new_folder(Path(out))
        _check_limits(max_drop, max_class_drop, holdout is not None)
        request = Request(
            data=reader_settings(data, root),
            holdout=None if holdout is None else _holdout_settings(holdout, data, root),
            classes=None if classes is None else tuple(classes),
            same=dict(same or {}),
            labelled={pattern: list(names) for pattern, names in (labelled or {}).items()},
            complete=complete,
            max_drop=max_drop,
            max_class_drop=max_class_drop,
            settings=tuple(as_overrides(settings)),
        )
    from faircl.deploy.adding.add import add_classes as add

    return add(folder, request, reporter or ConsoleReporter(), None if out is None else Path(out), resume)[-1]


def versions(run: RunSource) -> list[Version]:
    """Return the finished versions of a run, rejected ones too; version 0, the run as it was trained, is none of them.

    `load` takes the newest accepted one.
    """
    from faircl.runs.versions import VersionChain

    return VersionChain.open(folder_path(run)).finished()


def undo(run: RunSource) -> int:
    """Remove the newest version of a run, finished or not, and return its number; the others are as before it.

    A UserError, and nothing is removed, if the network of the version that is in use then is missing or damaged.
    """
    from faircl.runs.versions import VersionChain

    chain = VersionChain.open(folder_path(run))
    with chain.locked():
        newest = chain.next() - 1
        if newest == 0:
            raise UserError(f"{chain.run} has no version to undo: it is as it was trained.")
        chain.check_undo(newest)
        chain.remove(newest)
    return newest


def _holdout_settings(holdout: DataSource, data: DataSource, root: str | Path | None) -> dict[str, Any]:
    """Return the reader of the holdout: its own, or that of the new data with another root."""
    from faircl.deploy.reader_settings import reader_settings

    if root is not None and isinstance(holdout, str | Path):
        return {"name": str(data), "root": str(holdout)}
    return reader_settings(holdout)


def _check_limits(max_drop: float, max_class_drop: float | None, holdout: bool) -> None:
    for name, limit in (("max_drop", max_drop), ("max_class_drop", max_class_drop)):
        if limit is not None and not limit >= 0:
            raise UserError(f"{name} is {limit}; expected points of IoU, 0 or more.")
    if not holdout and (max_drop != MAX_DROP or max_class_drop is not None):
        raise UserError("A limit on what old classes may lose is checked on held-out images; give some with --holdout.")
