"""Short descriptions of settings, and the settings in which two runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def method_words(config: Mapping[str, Any]) -> str:
    """Return a run's method with wrappers, balancing and memory: "ewf around mib, seesaw, 20 images kept"."""
    method = config.get("method")
    names = []
    while isinstance(method, dict) and isinstance(method.get("name"), str):
        names.append(method["name"])
        method = method.get("method")
    if isinstance(method, str):
        names.append(method)
    balance, memory = (_mapping(config.get(section)) for section in ("balance", "memory"))
    beside = [balance["loss"]] if balance.get("loss", "plain") != "plain" else []
    beside += ["rare-class sampling"] if balance.get("sampling", "uniform") == "rare" else []
    beside += [f"{memory['images']} images kept"] if memory.get("images") else []
    return ", ".join([" around ".join(names) or "unnamed method", *beside])


def differences(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the keys, as in ``optim.lr``, at which two trees differ."""
    found = []
    for key in {**one, **other}:
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            found += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(prefix + key)
    return found


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
