"""The state of a method: tensors and plain numbers, saved and loaded together.

Tensors are buffers. Numbers are attributes that a module lists in ``saved_numbers``: they stay on the host, so that
reading one never waits for a device.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

Number = int | float | bool


class MethodState(NamedTuple):
    """Buffers and numbers of a method and of the modules in it, by dotted name."""

    tensors: dict[str, Tensor]
    numbers: dict[str, Number]


def method_state(method: nn.Module) -> MethodState:
    """Return the state; tensors share memory with the method."""
    numbers = {name: getattr(owner, attribute) for name, owner, attribute in _numbers(method)}
    return MethodState(method.state_dict(), numbers)


def load_method_state(method: nn.Module, state: MethodState) -> None:
    """Load a state, whatever the shapes of its tensors: they grow with the classes.

    Raises ValueError where names or the types of numbers are not those of the method.
    """
    owners = {name: (owner, attribute) for name, owner, attribute in _numbers(method)}
    _check_names("tensors", set(method.state_dict()), set(state.tensors))
    _check_names("numbers", set(owners), set(state.numbers))
    for name, value in state.numbers.items():
        owner, attribute = owners[name]
        expected = type(getattr(owner, attribute))
        if type(value) is not expected:
            raise ValueError(f"number '{name}' must be of type {expected.__name__}, found {value!r}")
        setattr(owner, attribute, value)
    for name, tensor in state.tensors.items():
        path, _, attribute = name.rpartition(".")
        method.get_submodule(path).register_buffer(attribute, tensor.clone())


def _numbers(method: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """Dotted name, owner and attribute of every saved number."""
    return [
        (f"{path}.{attribute}" if path else attribute, module, attribute)
        for path, module in method.named_modules()
        for attribute in getattr(module, "saved_numbers", ())
    ]


def _check_names(kind: str, expected: set[str], found: set[str]) -> None:
    if expected != found:
        missing, extra = sorted(expected - found), sorted(found - expected)
        raise ValueError(f"{kind} of the method state do not fit: missing {missing}, unexpected {extra}")
