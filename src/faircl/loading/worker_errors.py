"""Errors of data loader workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from faircl.errors import UserError

T = TypeVar("T")


def unwrap_user_errors(items: Iterable[T]) -> Iterator[T]:
    """Yield the items of a data loader; strip the worker's traceback that torch adds to the text of a UserError."""
    try:
        yield from items
    except UserError as error:
        sentence = str(error).rpartition(f"{UserError.__module__}.{UserError.__name__}: ")[2]
        raise UserError(sentence.strip()) from None
