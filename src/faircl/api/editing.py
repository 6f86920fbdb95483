"""Renaming, merging and dropping classes of a trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from faircl.api.opening import RunSource, folder_path
from faircl.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from faircl.deploy.editing.class_edits import ClassEdit
    from faircl.deploy.matching import Known
    from faircl.progress import Reporter
    from faircl.runs.versions import Version


def rename_classes(
    run: RunSource, names: Mapping[str, str], out: str | Path | None = None, *, reporter: Reporter | None = None
) -> Version:
    """Give classes of a model other names, ``{old: new}``, and return the new version of its run.

    Ids and predictions stay. No two classes may have one name; two may exchange theirs. The version is added to the
    run, whose other files stay as they are; with ``out`` to a copy of the run.
    """
    from faircl.deploy.editing.class_edits import rename

    return _edit(run, partial(rename, names=dict(names)), out, reporter)


def merge_classes(
    run: RunSource, names: Sequence[str], into: str, out: str | Path | None = None, *, reporter: Reporter | None = None
) -> Version:
    """Make one class of several and return the new version of the run; its probability is the sum of theirs.

    The class is called ``into``. It keeps the id of the background if that is one of them; otherwise of the class that
    is called so already, or else of the first; the other ids are not used again. The version is added to the run; with
    ``out`` to a copy of it.
    """
    from faircl.deploy.editing.class_edits import merge

    return _edit(run, partial(merge, names=_list(names), into=into), out, reporter)


def drop_classes(
    run: RunSource, names: Sequence[str], out: str | Path | None = None, *, reporter: Reporter | None = None
) -> Version:
    """Take classes away from a model and return the new version of its run; a pixel then goes to the next likeliest.

    The ids are not used again. The version is added to the run; with ``out`` to a copy of it.
    """
    from faircl.deploy.editing.class_edits import drop

    return _edit(run, partial(drop, names=_list(names)), out, reporter)


def _edit(
    run: RunSource, plan: Callable[[Known], ClassEdit], out: str | Path | None, reporter: Reporter | None
) -> Version:
    """Check the mistakes that need no torch, then make the version."""
    from faircl.deploy.editing.class_list import current_classes
    from faircl.files import check_new_folder
    from faircl.progress import ConsoleReporter
    from faircl.runs.versions import VersionChain

    folder, target = folder_path(run), None if out is None else Path(out)
    if target is not None:
        check_new_folder(target)
    plan(current_classes(VersionChain.open(folder)))
    from faircl.deploy.editing.edit import edit_classes

    return edit_classes(folder, plan, reporter or ConsoleReporter(), target)


def _list(names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise UserError(f"Classes are given as a list of names, such as ['{names}']; found the text '{names}'.")
    return list(names)
