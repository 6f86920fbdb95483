"""Starting weights: none, the library's own download, or a local file; what does not fit is said in one sentence."""

from __future__ import annotations

import pickle
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor, nn

from faircl.effects import Effect
from faircl.errors import UserError
from faircl.models.segmenter import ModelConfig

State = dict[str, Tensor]

_LIBRARY = ("imagenet", "pretrained")
_WRAPPERS = ("state_dict", "model_state_dict", "model", "teacher", "net")
"""Names under which training scripts keep the weights beside optimisers and counters."""


class WeightsConfig(ModelConfig):
    """Hyper-parameters of a network that can start from trained weights."""

    weights: Annotated[str, Effect.FIRST_STEP] = Field(
        "none",
        description="starting weights: none, imagenet or pretrained (downloaded by the network's library), or a "
        ".safetensors or .pth file",
    )

    @property
    def from_library(self) -> bool:
        """Whether the network's library downloads the weights."""
        return self.weights in _LIBRARY


def starting_weights(
    config: WeightsConfig, what: str, library: Callable[[], State], names: Callable[[State], State] = dict
) -> State | None:
    """Return the weights that a network starts from under its own names, or None where it starts from none.

    ``library`` downloads ``what``; ``names`` translates other libraries' names, and may stumble over damaged weights.
    """
    if config.weights == "none":
        return None
    state = download(what, library) if config.from_library else read_weights(config.weights)
    try:
        return names(state)
    except (ValueError, RuntimeError, LookupError) as error:
        raise UserError(f"The weights {config.weights} are damaged: {_short(error)}.") from None


def download(what: str, load: Callable[[], State]) -> State:
    """Let a library fetch weights; being offline is a sentence, not a traceback."""
    try:
        with redirect_stdout(sys.stderr):  # some libraries announce a download where results belong
            return load()
    except Exception as error:  # every library fails to download in its own way
        raise UserError(
            f"Cannot download the weights of {what} ({type(error).__name__}: {_short(error)}); check the connection, "
            "or give a local file as model.weights."
        ) from None


def read_weights(source: str) -> State:
    """Read tensors from a .safetensors file, or from a .pth one without running any code in it."""
    path = _find(source)
    try:
        loaded = load_file(path) if path.suffix == ".safetensors" else _read_pickle(path)
    except UserError:
        raise
    except Exception as error:  # damage shows in many ways
        raise UserError(f"Cannot read the weights {path}: {_short(error)}; the file is damaged or cut short.") from None
    return _tensors(loaded, path)


def _find(source: str) -> Path:
    path, found = Path(source), False
    with suppress(OSError, RuntimeError):  # names too long, homes of nobody
        path = path.expanduser()
        if path.is_dir():
            names = ("model.safetensors", "pytorch_model.bin")  # of a Hugging Face folder
            path = next((path / name for name in names if (path / name).is_file()), path / names[0])
        found = path.is_file()
    if not found:
        raise UserError(
            f"There are no weights at {path}; expected none, imagenet, pretrained, or a .safetensors or .pth file as "
            "model.weights."
        )
    return path


def _read_pickle(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Weights only load failed" not in str(error) or "Unsupported operand" in str(error):
            raise ValueError("torch did not write it") from None
        raise UserError(
            f"The weights {path} hold more than tensors, and none of it was run; save the state dict alone, or as "
            ".safetensors."
        ) from None


def _tensors(loaded: Any, path: Path) -> State:
    """Return the tensors of a loaded file, unwrapped from a training script's checkpoint and from ``module.``."""
    while isinstance(loaded, Mapping):
        inner = next((loaded[key] for key in _WRAPPERS if isinstance(loaded.get(key), Mapping)), None)
        if inner is None:
            break
        loaded = inner
    if not isinstance(loaded, Mapping):
        raise UserError(f"The weights {path} are a {type(loaded).__name__}; expected names with tensors.")
    state = {str(key): value for key, value in loaded.items() if isinstance(value, Tensor)}
    if not state:
        raise UserError(f"The weights {path} hold no tensors; expected a state dict.")
    if all(key.startswith("module.") for key in state):  # as DistributedDataParallel saves
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return state


def load_parts(
    parts: Mapping[str, nn.Module], state: State, *, source: str, label: str, ignored: re.Pattern[str]
) -> None:
    """Load a state whose keys carry a prefix per module; every difference is reported in one sentence.

    ``ignored`` matches the start of keys that a file may have and the network need not. BatchNorm's batch counters,
    which old files lack, may be missing.
    """
    expected = {prefix + key: value for prefix, part in parts.items() for key, value in part.state_dict().items()}
    missing = [key for key in expected if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in expected and not ignored.match(key)]
    shapes = [
        f"{key} (found {_shape(state[key])}, expected {_shape(value)})"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    problems = [("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)]
    if any(keys for _, keys in problems):
        found = "; ".join(f"{len(keys)} {what}: {_some(keys)}" for what, keys in problems if keys)
        raise UserError(
            f"The weights {source} do not fit {label}: {found}; give the weights of that network, or set the network "
            "they belong to."
        )
    broken = [key for key in expected if key in state and not state[key].isfinite().all()]
    if broken:
        raise UserError(f"The weights {source} are not finite: {_some(broken)}.")
    for prefix, part in parts.items():
        present = part.state_dict()
        part.load_state_dict({key: state.get(prefix + key, value) for key, value in present.items()})


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:2]) + (", …" if len(keys) > 2 else "")


def _shape(value: Tensor) -> str:
    return "×".join(map(str, value.shape)) or "a number"


def _short(error: Exception) -> str:
    """Return an error's first sentence, or its kind where that says nothing."""
    text = " ".join(str(error).split()).partition(". ")[0][:160].rstrip(" .;:")
    return text if len(text) > 4 else f"{type(error).__name__} {text}".strip()
