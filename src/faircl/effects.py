"""What a setting does to a run: a mark on its declaration, as in ``workers: Annotated[int, Effect.NONE]``."""

from __future__ import annotations

from enum import Enum, auto

from pydantic.fields import FieldInfo


class Effect(Enum):
    """What changes in a run with another value of a setting; settings without a mark change what is trained."""

    NONE = auto()
    """Nothing: places, speed, memory, logging."""
    ROUNDING = auto()
    """Rounding errors."""
    PRESENCE = auto()
    """Nothing, as long as it stays set, or unset: the path of files that may be moved."""
    FIRST_STEP = auto()
    """The first step; later steps do not read it."""
    EVALUATION = auto()
    """How networks are evaluated, not how they are trained."""
    REPEAT = auto()
    """All random draws: the run is a repeat of the same experiment."""


def effect_of(field: FieldInfo) -> Effect | None:
    """Return the mark of a setting, if it has one."""
    return next((mark for mark in field.metadata if isinstance(mark, Effect)), None)
