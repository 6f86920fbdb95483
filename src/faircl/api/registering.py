"""What can be chosen by name, and adding to it from a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faircl.errors import UserError
from faircl.registry import METHODS, MODELS, READERS

if TYPE_CHECKING:
    from faircl.methods.base import Method
    from faircl.models.segmenter import Segmenter


def list_methods() -> list[str]:
    """Return the names of the methods: built in, from installed packages and registered."""
    return METHODS.names()


def list_networks() -> list[str]:
    """Return the names of the networks."""
    return MODELS.names()


def list_readers() -> list[str]:
    """Return the names of the readers, one per kind of data set."""
    return READERS.names()


def list_recipes() -> list[str]:
    """Return the names of the packaged configurations."""
    from faircl.config.recipes import recipe_names

    return recipe_names()


def register_method(name: str, cls: type[Method]) -> None:
    """Let configurations of this process choose a method by name: ``settings={"method": name}``.

    The command line and other processes do not know it; an entry point of the group ``faircl.methods`` makes it known
    everywhere.
    """
    from faircl.methods.base import Method, MethodConfig

    _check_class("method", name, cls, Method, MethodConfig, ("summary", "paper"))
    if cls.losses is Method.losses:
        raise UserError(f"The method '{name}' cannot be registered: {cls.__name__} has no losses of its own.")
    METHODS.register(name, cls)


def register_network(name: str, cls: type[Segmenter]) -> None:
    """Let configurations of this process choose a network by name: ``settings={"model": name}``."""
    from faircl.models.segmenter import ModelConfig, Segmenter

    _check_class("network", name, cls, Segmenter, ModelConfig, ("summary",))
    MODELS.register(name, cls)


def register_reader(name: str, cls: type) -> None:
    """Let configurations of this process choose a reader by name: ``settings={"data": name}``.

    ``cls`` needs ``summary``, a sentence, and ``Config``, a subclass of `ReaderConfig` with its own ``open``.
    """
    from faircl.readers.base import ReaderConfig

    _check_class("reader", name, cls, object, ReaderConfig, ("summary",))
    if cls.Config.open is ReaderConfig.open:  # type: ignore[attr-defined]
        raise UserError(f"The reader '{name}' cannot be registered: {cls.__name__}.Config has no open of its own.")
    READERS.register(name, cls)


def _check_class(kind: str, name: str, cls: Any, base: type, config: type, texts: tuple[str, ...]) -> None:
    """Refuse a class that lacks what a configuration or a listing would ask it for."""
    wrong = f"The {kind} '{name}' cannot be registered:"
    if not isinstance(cls, type):
        raise UserError(f"{wrong} expected a class, found {cls!r}.")
    if not issubclass(cls, base):
        raise UserError(f"{wrong} {cls.__name__} is not a subclass of faircl.{base.__name__}.")
    own = getattr(cls, "Config", None)
    if not (isinstance(own, type) and issubclass(own, config)):
        raise UserError(f"{wrong} {cls.__name__}.Config must be a subclass of faircl.{config.__name__}.")
    for text in texts:
        if not isinstance(getattr(cls, text, None), str):
            raise UserError(f'{wrong} {cls.__name__} has no {text}; add a sentence, as in {text} = "…".')
    if base is not object and getattr(cls, "name", None) != name:
        raise UserError(f"{wrong} {cls.__name__}.name is {getattr(cls, 'name', None)!r}; set it to '{name}'.")
