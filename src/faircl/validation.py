"""Validation errors of pydantic as one sentence that names the setting."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from faircl.errors import did_you_mean, listed


class InvalidSettings(ValueError):
    """A mistake in settings that a validator of other settings has parsed; ``explain`` adds the outer place."""

    def __init__(self, error: ValidationError, model: type[BaseModel]) -> None:
        super().__init__(explain(error, model).removesuffix("."))
        self.error, self.model = error, model


def explain(error: ValidationError, model: type[BaseModel], place: Sequence[str] = ()) -> str:
    """Return the first mistake as a sentence.

    ``model`` is the class that was validated, ``place`` the keys under which its settings stand: with ``("optim",)``
    a mistake in ``lr`` is one in ``optim.lr``. An unknown key gets the closest known one.
    """
    first = error.errors(include_url=False)[0]
    path = first["loc"]
    where = (*place, *(str(part) for part in path))
    inner = first.get("ctx", {}).get("error")
    if isinstance(inner, InvalidSettings):
        return explain(inner.error, inner.model, where)
    if first["type"] == "extra_forbidden":
        known, key = _known_keys(model, path[:-1]), where[-1]
        section = f" in {'.'.join(where[:-1])}" if where[:-1] else ""
        return f"Unknown setting '{key}'{section}.{did_you_mean(key, known)} Known: {listed(known)}."
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("model_type", "model_attributes_type", "dict_type"):
        key = next(iter(_known_keys(model, path)), "key")
        message = f"expected settings of its own, as in {'.'.join(where)}.{key}=…"
    found = "" if first["type"] in ("missing", "value_error") else f", found {first['input']!r}"
    depth, field = _deepest_field(model, path)
    if field is not None and len(path) > depth and isinstance(path[depth], str):
        # A union: pydantic complains about its first member alone, and adds that member's name to the place.
        where, message = where[: len(place) + depth], f"expected {field.description}"
    return f"Setting {'.'.join(where) or 'file'}: {message[0].lower() + message[1:]}{found}."


def _known_keys(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    for part in path:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def _deepest_field(model: type[BaseModel], path: Sequence[int | str]) -> tuple[int, FieldInfo | None]:
    """Follow a path as far as it names settings; return how many parts that are, and the last setting."""
    field = None
    for depth, part in enumerate(path):
        found = model.model_fields.get(str(part))
        if found is None:
            return depth, field
        field = found
        if not (isinstance(found.annotation, type) and issubclass(found.annotation, BaseModel)):
            return depth + 1, field
        model = found.annotation
    return len(path), field
