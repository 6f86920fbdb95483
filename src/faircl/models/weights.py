"""Initial weights of a network: none, a download by the network's library, or a local file.

Those of a run's step are in ``faircl.models.run_weights``.

Weights that cannot be read or do not fit the network raise ``UserError``.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors.torch import load_file
from torch import Tensor, nn

from faircl.effects import Effect
from faircl.errors import UserError
from faircl.hub import quiet_download
from faircl.models.segmenter import ModelConfig

State = dict[str, Tensor]

_FROM_LIBRARY = ("imagenet", "pretrained")
RESERVED = ("none", *_FROM_LIBRARY)
"""Values of ``weights`` that are not paths."""
_STATE_DICT_KEYS = ("state_dict", "model_state_dict", "model", "teacher", "net")
"""Keys under which checkpoints of training scripts store the state dict."""


class WeightsConfig(ModelConfig):
    """Hyper-parameters of a network that can load pretrained weights."""

    weights: Annotated[str, Effect.FIRST_STEP] = Field(
        "none",
        description="starting weights: none, imagenet or pretrained (downloaded by the network's library), a "
        ".safetensors or .pth file, or a run or one of its steps",
    )

    @property
    def from_library(self) -> bool:
        """Whether the network's library downloads the weights."""
        return self.weights in _FROM_LIBRARY


def initial_state(
    config: WeightsConfig,
    description: str,
    load_from_library: Callable[[], State],
    convert_keys: Callable[[State], State] = dict,
) -> State | None:
    """Return the configured weights with the network's own keys, or None if ``weights`` is "none".

    ``load_from_library`` downloads them; ``description`` names them in errors. ``convert_keys`` renames the keys of
    other libraries; errors that it raises are reported as damaged weights.
    """
    if config.weights == "none":
        return None
    state = download(description, load_from_library) if config.from_library else read_weights(config.weights)
    try:
        return convert_keys(state)
    except (ValueError, RuntimeError, LookupError) as error:
        raise UserError(f"The weights {config.weights} are damaged: {_first_sentence(error)}.") from None


def download(description: str, load: Callable[[], State]) -> State:
    """Download weights by a library; raise ``UserError`` if that fails, for example offline."""
    try:
        with quiet_download():  # some libraries print to stdout, which is for results
            return load()
    except Exception as error:  # libraries raise many different errors
        raise UserError(
            f"Cannot download the weights of {description} ({type(error).__name__}: {_first_sentence(error)}); check "
            "the connection, or give a local file as model.weights."
        ) from None


def read_weights(source: str) -> State:
    """Read tensors from a .safetensors file, or from a .pth file without executing code in it."""
    path = _find_file(source)
    try:
        loaded = load_file(path) if path.suffix == ".safetensors" else _read_pickle(path)
    except UserError:
        raise
    except Exception as error:  # damaged files raise many different errors
        raise UserError(
            f"Cannot read the weights {path}: {_first_sentence(error)}; the file is damaged or cut short."
        ) from None
    return _state_dict(loaded, path)


def _find_file(source: str) -> Path:
    path, found = Path(source), False
    with suppress(OSError, RuntimeError):  # too long names, home folders of unknown users
        path = path.expanduser()
        if path.is_dir():
            filenames = ("model.safetensors", "pytorch_model.bin")  # in a Hugging Face folder
            path = next((path / name for name in filenames if (path / name).is_file()), path / filenames[0])
        found = path.is_file()
    if not found:
        raise UserError(
            f"There are no weights at {path}; expected none, imagenet, pretrained, a .safetensors or .pth file, or a "
            "run or one of its steps as model.weights."
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


def _state_dict(loaded: Any, path: Path) -> State:
    """Return the tensors of a loaded file, which may be a training checkpoint or have the prefix ``module.``."""
    while isinstance(loaded, Mapping):
        inner = next((loaded[key] for key in _STATE_DICT_KEYS if isinstance(loaded.get(key), Mapping)), None)
        if inner is None:
            break
        loaded = inner
    if not isinstance(loaded, Mapping):
        raise UserError(f"The weights {path} are a {type(loaded).__name__}; expected names with tensors.")
    state = {str(key): value for key, value in loaded.items() if isinstance(value, Tensor)}
    if not state:
        raise UserError(f"The weights {path} hold no tensors; expected a state dict.")
    if all(key.startswith("module.") for key in state):  # saved from DistributedDataParallel
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return state


NOTHING = re.compile(r"(?!)")
"""Matches no key."""


def load_modules(
    modules: Mapping[str, nn.Module],
    state: State,
    *,
    source: str,
    label: str,
    ignored: re.Pattern[str] = NOTHING,
) -> None:
    """Load a state dict into modules; raise ``UserError`` with all missing, unexpected and misshapen keys.

    ``modules`` maps the prefix of its keys to every module. Keys whose start matches ``ignored`` need not be in the
    network. BatchNorm's ``num_batches_tracked``, which old files lack, may be missing.
    """
    expected = {prefix + key: value for prefix, module in modules.items() for key, value in module.state_dict().items()}
    missing = [key for key in expected if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in expected and not ignored.match(key)]
    shapes = [
        f"{key} (found {_shape(state[key])}, expected {_shape(value)})"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    problems = [("missing", missing), ("unexpected", unexpected), ("of another shape", shapes)]
    if any(keys for _, keys in problems):
        found = "; ".join(f"{len(keys)} {problem}: {_first_two(keys)}" for problem, keys in problems if keys)
        raise UserError(
            f"The weights {source} do not fit {label}: {found}; give the weights of that network, or set the network "
            "they belong to."
        )
    non_finite = [key for key in expected if key in state and not state[key].isfinite().all()]
    if non_finite:
        raise UserError(f"The weights {source} are not finite: {_first_two(non_finite)}.")
    for prefix, module in modules.items():
        current = module.state_dict()
        module.load_state_dict({key: state.get(prefix + key, value) for key, value in current.items()})


def _first_two(keys: list[str]) -> str:
    return ", ".join(keys[:2]) + (", …" if len(keys) > 2 else "")


def _shape(value: Tensor) -> str:
    return "×".join(map(str, value.shape)) or "a number"


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of an error's message, with its type if the message is very short."""
    text = " ".join(str(error).split()).partition(". ")[0][:160].rstrip(" .;:")
    return text if len(text) > 4 else f"{type(error).__name__} {text}".strip()
