"""Settings of a method, a network or a reader as ``faircl methods NAME`` and its like print them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from faircl.tables import Column, Table

_BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
_KINDS = {bool: "true, false", int: "whole number", float: "number", str: "text", Path: "path"}


def settings_json(config: type[BaseModel]) -> list[dict[str, Any]]:
    """Return name, default, choices, values and description of every setting of a part, as plain values.

    ``choices`` lists the values of a setting that has a fixed set of them, ``values`` says in words what it may be.
    """
    return [
        {
            "name": key,
            "default": _plain(field.get_default(call_default_factory=True)),
            "choices": _choices(field.annotation) or None,
            "values": _values(field.annotation, field.metadata),
            "description": field.description or "",
        }
        for key, field in config.model_fields.items()
        if key != "name"
    ]


def settings_table(settings: Sequence[dict[str, Any]], prefix: str = "") -> Table:
    """Return settings in their JSON form as a table; ``prefix`` is put before their names."""
    columns = [Column("setting", wrap=False), Column("default"), Column("values"), Column("description")]
    rows = [[prefix + one["name"], _text(one["default"]), one["values"], one["description"]] for one in settings]
    return Table(columns, rows)


def _values(annotation: Any, metadata: Sequence[Any] = (), plural: str = "") -> str:
    """Return what a setting may be, in words: its choices, or its kind and bounds; ``plural`` is put behind a kind."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(args[0], annotation.__metadata__, plural)
    if origin is Literal:
        return ", ".join(map(str, args))
    if origin in (Union, UnionType):
        return " or ".join(_values(arg, metadata) for arg in args if arg is not NoneType)
    if origin is tuple and Ellipsis not in args:
        return f"{len(args)} {_values(args[0], metadata, 's')}"
    if origin in (list, tuple):
        return f"list of {_values(args[0], metadata)}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "settings of its own"
    kind = _KINDS.get(annotation, getattr(annotation, "__name__", str(annotation)))
    return kind + plural + _bounds(metadata)


def _bounds(metadata: Sequence[Any]) -> str:
    """Return the bounds among the marks of a declaration, as in `` ≥ 0, < 1``."""
    # A Field() inside Annotated holds its own marks.
    marks = [one for mark in metadata for one in (mark.metadata if isinstance(mark, FieldInfo) else (mark,))]
    found = [f"{sign} {getattr(mark, key):g}" for mark in marks for key, sign in _BOUNDS.items() if hasattr(mark, key)]
    return f" {', '.join(found)}" if found else ""


def _choices(annotation: Any) -> list[Any]:
    if annotation is bool:
        return [True, False]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        inner = [arg for arg in get_args(annotation) if arg is not NoneType]
        return _choices(inner[0]) if len(inner) == 1 else []
    return []


def _plain(value: Any) -> Any:
    """Return a setting's default as JSON has it."""
    if isinstance(value, BaseModel):  # a method inside another
        return value.model_dump(mode="json")
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _text(default: Any) -> str | None:
    return None if default is None else str(default)
