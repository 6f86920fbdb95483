"""Any timm backbone with feature maps, with an all-MLP decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from faircl.errors import UserError, did_you_mean
from faircl.hub import hub_or_cache
from faircl.models.mlp_decoder import MlpDecoder
from faircl.models.resize import at_least, same_size
from faircl.models.run_weights import load_run_step
from faircl.models.segmenter import Segmenter
from faircl.models.weights import State, WeightsConfig, initial_state, load_modules


class TimmConfig(WeightsConfig):
    """Hyper-parameters of a timm backbone with an all-MLP decoder."""

    name: str = "timm"
    backbone: str = Field("convnext_tiny", description="a timm model with feature maps, with or without a tag")
    width: int = Field(256, ge=8, description="channels of the embedding")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout before the classifier")


class TimmNetwork(Segmenter):
    """A timm backbone with an all-MLP decoder; images are normalised with timm's mean and std of that backbone."""

    def __init__(self, config: TimmConfig, backbone: nn.Module, widths: Sequence[int]) -> None:
        super().__init__(
            backbone,
            MlpDecoder(widths, config.width),
            embedding_width=config.width,
            stage_widths=widths,
            dropout=config.dropout,
            **image_statistics(config.backbone),
        )


class Timm(TimmNetwork):
    """A timm backbone whose feature maps at strides of 4 and more are fused by an all-MLP decoder."""

    Config = TimmConfig
    name = "timm"
    summary = "any timm backbone with feature maps (ConvNeXt, Swin, EfficientNet …) under an all-MLP decoder"

    backbone: FeatureMaps

    def __init__(self, config: TimmConfig) -> None:
        backbone = FeatureMaps(config.backbone)
        super().__init__(config, backbone, backbone.widths)
        self.config = config

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the blocks of every stage, or whole stages of networks that do not list their blocks.

        Networks whose feature maps timm collects by hooks have none: recomputing a block would call the hooks again.
        """
        net = self.backbone.net
        return iter(()) if type(net).__name__ == "FeatureHookNet" else _find_blocks(getattr(net, "model", net))

    def load_pretrained(self) -> None:
        """Load timm's weights, or a file with timm's keys."""
        name = self.config.backbone

        def download() -> State:
            with hub_or_cache():
                state: State = FeatureMaps(name, pretrained=True).net.state_dict()
            return state

        label = f"network '{self.name}' with {name}"
        if load_run_step(self, self.config.weights, label):
            return
        state = initial_state(self.config, f"timm's {name}", download, self._to_feature_keys)
        if state is not None:
            load_modules({"": self.backbone.net}, state, source=self.config.weights, label=label)

    def _to_feature_keys(self, state: State) -> State:
        """Rename keys of a whole model to those of its feature extractor; drop keys that only the classifier needs."""
        import timm

        with torch.device("meta"):
            whole = set(timm.create_model(self.config.backbone).state_dict())
        keys = {_flatten(key): key for key in self.backbone.net.state_dict()}
        return {keys.get(_flatten(k), k): v for k, v in state.items() if _flatten(k) in keys or k not in whole}


class FeatureMaps(nn.Module):
    """timm's feature extractor as a backbone.

    Shapes: image (B, 3, H, W) to maps (B, D_s, h_s, w_s) at strides of 4 and more.
    """

    def __init__(self, name: str, pretrained: bool = False) -> None:
        super().__init__()
        self.net: Any = create_timm_model(name, features_only=True, pretrained=pretrained)
        strides: list[int] = self.net.feature_info.reduction()
        self.patch, self.min_side = _find_size_divisor(self.net, name, strides), strides[-1]
        self.channels_last = str(getattr(self.net, "output_fmt", "")).endswith("NHWC")
        self.stage_indices = [index for index, stride in enumerate(strides) if stride >= 4]
        widths = self.net.feature_info.channels()
        self.widths = tuple(widths[index] for index in self.stage_indices)
        _unused_parameters_to_buffers(self)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the feature maps as (B, D_s, h_s, w_s); some timm networks return them channels last."""
        maps = self.net(resize_to_multiple(image, self.patch, self.min_side))
        selected = (maps[index] for index in self.stage_indices)
        return tuple(x.permute(0, 3, 1, 2) if self.channels_last else x for x in selected)


def _find_blocks(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.Sequential | nn.ModuleList) or hasattr(child, "blocks"):
            yield from _find_blocks(child)
        elif any(True for part in child.children() for _ in part.parameters()):
            yield child


@torch.enable_grad()
def _unused_parameters_to_buffers(maps: FeatureMaps) -> None:
    """Turn parameters without influence on the maps into buffers: distributed training expects all gradients."""
    training = maps.training
    found = maps.eval()(torch.zeros(1, 3, 2 * maps.min_side, 2 * maps.min_side))
    names = [name for name, _ in maps.named_parameters()]
    sums = torch.stack([x.float().sum() for x in found]).sum()
    gradients = torch.autograd.grad(sums, list(maps.parameters()), allow_unused=True)
    for name in (name for name, gradient in zip(names, gradients, strict=True) if gradient is None):
        owner, _, leaf = name.rpartition(".")
        module = maps.get_submodule(owner)
        value = getattr(module, leaf).detach()
        delattr(module, leaf)
        module.register_buffer(leaf, value)
    maps.train(training)


def _find_size_divisor(net: nn.Module, name: str, strides: list[int]) -> tuple[int, int]:
    """Return the divisor of valid image heights and widths: the first stride or, for some networks, the last."""
    error: UserError | None = None
    training = net.training
    net.eval()
    for stride in (strides[0], strides[-1]):
        side = stride * (64 // stride | 1)
        try:
            check_accepts_size(net, name, side, side + 2 * stride)
        except UserError as problem:
            error = problem
            continue
        net.train(training)
        return stride, stride
    assert error is not None
    raise error


@torch.no_grad()
def check_accepts_size(forward: Callable[[Tensor], Any], name: str, height: int, width: int) -> None:
    """Raise ``UserError`` if a timm model does not accept images of this size."""
    try:
        forward(torch.zeros(1, 3, height, width))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise UserError(
            f"timm's {name} takes images of certain sizes only: {' '.join(str(error).split()).rstrip('.')}."
        ) from None


def resize_to_multiple(image: Tensor, patch: tuple[int, int], min_side: int = 1) -> Tensor:
    """Resize images (B, 3, H, W) so that height and width are multiples of a patch, and at least ``min_side``.

    Feature maps at the stride of the patch then cover the image exactly. ``min_side`` is the network's coarsest stride.
    """
    sides = zip(image.shape[-2:], patch, strict=True)
    size = tuple(
        at_least(_round_half_even(side, patch), max(-(-min_side // patch), 1)) * patch for side, patch in sides
    )
    if same_size(image, size):
        return image
    return F.interpolate(image, size, mode="bilinear", align_corners=False)


def _round_half_even(side: int, patch: int) -> int:
    """Return round(side / patch) by integer operations, which can be exported."""
    return (2 * side + patch - 1 + side // patch % 2) // (2 * patch)


def create_timm_model(name: str, **options: Any) -> Any:
    """Create a timm model that accepts any image size if possible; raise ``UserError`` for an unknown name."""
    import timm

    if not timm.is_model(name):
        near = did_you_mean(name, timm.list_models())
        raise UserError(f"timm has no model '{name}'.{near} 'timm.list_models()' lists them all.")
    error: Exception | None = None
    # Transformers with fixed positions or windows have an option for other sizes, under different names.
    for free_size in ({"strict_img_size": False}, {"dynamic_img_size": True}, {}):
        try:
            return timm.create_model(name, **options, **free_size)
        except TypeError as problem:
            error = problem
        except (RuntimeError, AttributeError, ValueError) as problem:
            error = problem
            break
    if options.get("pretrained"):
        raise error or RuntimeError("timm returned no model")
    raise UserError(f"timm's {name} cannot be used here: {' '.join(str(error).split()).rstrip('.')}.")


def image_statistics(name: str) -> dict[str, Any]:
    """Return the mean and standard deviation that a timm model expects images to be normalised with."""
    import timm

    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise UserError(f"timm's {name} cannot be used here: {' '.join(str(error).split()).rstrip('.')}.") from None
    return {} if config is None else {"mean": config.mean, "std": config.std}


def _flatten(key: str) -> str:
    """Return a key that is the same for a model and its feature extractor, which renames or prefixes modules."""
    return key.removeprefix("model.").replace(".", "_")
