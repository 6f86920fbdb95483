"""What 'faircl add-classes' was asked to do; kept with an unfinished version, so that it can be continued."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from faircl.errors import UserError, listed
from faircl.files import write_text
from faircl.runs.reading import read_json
from faircl.runs.versions import REQUEST


@dataclass(frozen=True)
class Request:
    """New data and how to learn from it.

    ``data`` and ``holdout`` are settings of readers. ``classes`` limits what is learned; ``then`` are classes that wait
    for a version of their own, since other images label them. ``same`` maps names of the data to names of the model.
    ``labelled`` maps patterns of image ids to the classes that these images label; others label all classes of the
    data. ``complete``: the masks label every class, old ones too, so that background is background. ``max_drop`` and
    ``max_class_drop`` bound what old classes may lose on the holdout, in points: their mean and each of them.
    """

    data: dict[str, Any]
    holdout: dict[str, Any] | None = None
    classes: tuple[str, ...] | None = None
    then: tuple[tuple[str, ...], ...] = ()
    same: dict[str, str] = field(default_factory=dict)
    labelled: dict[str, list[str]] = field(default_factory=dict)
    complete: bool = False
    max_drop: float = 3.0
    max_class_drop: float | None = None
    settings: tuple[str, ...] = ()

    def save(self, folder: Path) -> None:
        """Write the request into the folder of a version."""
        write_text(folder / REQUEST, json.dumps(asdict(self), indent=1, ensure_ascii=False))

    @classmethod
    def load(cls, folder: Path) -> Request:
        """Read the request of an unfinished version."""
        saved = read_json(folder / REQUEST)
        try:
            classes, then, settings = saved.pop("classes"), saved.pop("then"), saved.pop("settings")
            named = None if classes is None else tuple(classes)
            return cls(**saved, classes=named, then=tuple(map(tuple, then)), settings=tuple(settings))
        except (KeyError, TypeError) as error:
            raise UserError(f"Cannot read {folder / REQUEST}: {error}; the file is damaged.") from None

    def labelled_classes(self, id: str) -> list[str] | None:
        """Return the classes that an image labels, by the first pattern that matches its id; None: all of the data."""
        return next((names for pattern, names in self.labelled.items() if fnmatchcase(id, pattern)), None)


def class_groups(request: Request, names: list[str], ids: list[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Divide new classes into those that the same images label; return the classes and images of each group.

    Where an image does not say whether it shows a class, its unlabelled pixels teach nothing about that class: each
    group is learned at a step of its own, from the images that label it, the largest group of images first.
    """
    known = {id: request.labelled_classes(id) for id in ids}
    unknown = {name for listing in known.values() if listing is not None for name in listing}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        images = tuple(id for id in ids if (listing := known[id]) is None or name in listing)
        if not images:
            raise UserError(
                f"No image labels the new class '{name}' by the given lists of labelled classes, which name "
                f"{listed(sorted(unknown))}; name it for some images, or leave it out with --classes."
            )
        groups.setdefault(images, []).append(name)
    ordered = sorted(groups.items(), key=lambda item: -len(item[0]))
    return [(tuple(members), images) for images, members in ordered]
