"""The list of classes of an audit: ids, names and colours, from a text, JSON or YAML file or from Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from faircl.config.yaml_text import read_yaml, yaml_problem
from faircl.data.masks import Colour, ColourTable
from faircl.errors import UserError, did_you_mean, listed
from faircl.fairness.record import RecordedClass
from faircl.labels import IGNORE
from faircl.readers.folder import class_lines, parse_classes

ClassSource = str | Path | Sequence[str] | Mapping[int, str]
"""The path of a class list, names in the order of their ids, or names by id."""
MAX_ID = IGNORE - 1
"""The largest id of a class; the next value means ignore."""
FORMS = "one name per line, 'id name' lines, or a JSON or YAML list or mapping"
_NUMBERED = re.compile(r"(\d+)\s*[\s,:;]\s*(\S.*)")


@dataclass(frozen=True)
class ClassList:
    """The classes of an audit by id, in the order of the source; ids by colour where it has colours; its name."""

    names: dict[int, str]
    colours: dict[Colour, int] = field(default_factory=dict)
    source: str = "the class list"

    @property
    def colour_table(self) -> ColourTable | None:
        """Colour to id, for masks coded in colours."""
        return ColourTable(self.colours) if self.colours else None

    def find(self, wanted: int | str, what: str) -> int:
        """Return the id of a class by name or id; ``what`` it is wanted for is said in the error."""
        by_name = {name: id for id, name in self.names.items()}
        if isinstance(wanted, str) and wanted in by_name:
            return by_name[wanted]
        text = str(wanted)
        if text.isdecimal() and int(text) in self.names:
            return int(text)
        hint = did_you_mean(text, by_name)
        raise UserError(f"{self.source} has no class '{text}' for {what}.{hint} It has: {listed(list(by_name))}.")

    def ignored(self, wanted: Iterable[int | str]) -> frozenset[int]:
        """Return the values of label pixels that are not counted: numbers, or names of classes."""
        by_name = {name: id for id, name in self.names.items()}
        values = set()
        for one in wanted:
            if isinstance(one, str) and one in by_name:
                values.add(by_name[one])
            elif not isinstance(one, bool) and str(one).isdecimal() and int(one) <= IGNORE:
                values.add(int(one))
            else:
                raise UserError(
                    f"Found '{one}' to be ignored; expected a value from 0 to {IGNORE}, or the name of a class in "
                    f"{self.source}.{did_you_mean(str(one), by_name)}"
                )
        return frozenset(values)

    def recorded(self, ignored: frozenset[int], background: int | str | None) -> tuple[RecordedClass, ...]:
        """Return the classes that are counted; one of them may be the background."""
        behind = None if background is None else self.find(background, "the background")
        if behind in ignored:
            raise UserError(f"Class '{self.names[behind]}' is both ignored and the background; choose one of them.")
        kept = tuple(RecordedClass(id, name, 0, id == behind) for id, name in self.names.items() if id not in ignored)
        if not kept:
            raise UserError(f"All classes of {self.source} are ignored; leave at least one to be audited.")
        return kept


def read_class_list(source: ClassSource) -> ClassList:
    """Read a class list from a file, or take names in the order of their ids, or names by id."""
    if not isinstance(source, str | Path):
        return _from_tree(source if isinstance(source, Mapping) else list(source), "the class list")
    path = Path(source).expanduser()
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        raise UserError(f"The class list {path} {found}; give a file with {FORMS}.")
    if path.suffix.lower() in (".json", ".yaml", ".yml"):
        return _from_tree(_tree(path), str(path))
    lines = class_lines(path)
    numbered = [_NUMBERED.fullmatch(line) for line in lines]
    if all(numbered):
        by_id = _distinct(((int(match[1]), match[2]) for match in numbered if match), str(path))
    else:
        by_id = dict(enumerate(lines))
    names, colours = parse_classes(by_id, path)
    return _checked(dict(zip(by_id, names, strict=True)), colours, str(path))


def _tree(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8-sig")
        return json.loads(text) if path.suffix.lower() == ".json" else read_yaml(text)
    except yaml.YAMLError as error:
        raise UserError(f"Cannot read {path}: {yaml_problem(error)}; expected {FORMS}.") from None
    except (OSError, ValueError) as error:  # ValueError: no JSON, or no UTF-8
        found = " ".join(str(error).split())
        raise UserError(f"Cannot read {path}: {found}; expected {FORMS}.") from None


def _from_tree(tree: Any, source: str) -> ClassList:
    """Read a list of names, a mapping of ids to names or of names to ids, or entries with id, name and colour."""
    if isinstance(tree, Mapping):
        tree = tree.get("id2label", tree)  # the configuration of a Hugging Face model
    if isinstance(tree, Mapping):
        pairs = [(_id(key, source), value) if _is_id(key) else (_id(value, source), key) for key, value in tree.items()]
    elif isinstance(tree, list):
        pairs = [(_id(one.get("id", k), source) if isinstance(one, Mapping) else k, one) for k, one in enumerate(tree)]
    else:
        raise UserError(f"{source} holds a {type(tree).__name__}; expected {FORMS}.")
    if not pairs:
        raise UserError(f"{source} names no class; expected {FORMS}.")
    names: dict[int, str] = {}
    colours: dict[Colour, int] = {}
    for id, one in _distinct(pairs, source).items():
        about = one if isinstance(one, Mapping) else {"name": one}
        if not isinstance(about.get("name"), str) or not about["name"].strip():
            raise UserError(f"{source} gives id {id} the name {about.get('name')!r}; expected a text.")
        names[id] = about["name"].strip()
        if (colour := about.get("colour", about.get("color"))) is not None:
            rgb = _colour(colour, names[id], source)
            if rgb in colours:
                raise UserError(f"{source} gives colour {rgb} to '{names[colours[rgb]]}' and to '{names[id]}'.")
            colours[rgb] = id
    return _checked(names, colours, source)


def _is_id(value: Any) -> bool:
    return not isinstance(value, bool) and str(value).isdecimal()


def _id(value: Any, source: str) -> int:
    if not _is_id(value):
        raise UserError(f"{source} has {value!r} where the id of a class is expected; give a whole number from 0 on.")
    return int(value)


def _distinct(pairs: Iterable[tuple[int, Any]], source: str) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for id, value in pairs:
        if id in found:
            raise UserError(f"{source} gives id {id} twice; ids must differ.")
        found[id] = value
    return found


def _colour(value: Any, name: str, source: str) -> Colour:
    if isinstance(value, str) and re.fullmatch("#[0-9a-fA-F]{6}", value):
        value = list(bytes.fromhex(value[1:]))
    right = isinstance(value, Sequence) and len(value) == 3 and all(type(v) is int and 0 <= v <= 255 for v in value)
    if not right:
        raise UserError(f"{source} gives '{name}' the colour {value!r}; expected [red, green, blue] from 0 to 255.")
    return (value[0], value[1], value[2])


def _checked(names: dict[int, str], colours: dict[Colour, int], source: str) -> ClassList:
    first: dict[str, int] = {}
    for id, name in names.items():
        if id > MAX_ID:
            raise UserError(f"{source} gives '{name}' the id {id}; ids go from 0 to {MAX_ID}.")
        if first.setdefault(name, id) != id:
            raise UserError(f"{source} names '{name}' twice, as ids {first[name]} and {id}; names must differ.")
    return ClassList(names, colours, source)
