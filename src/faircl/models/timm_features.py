"""Any timm backbone that gives feature maps, under a light decoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from faircl.errors import UserError, did_you_mean
from faircl.models.mlp_decoder import MlpDecoder
from faircl.models.segmenter import Segmenter
from faircl.models.weights import State, WeightsConfig, load_parts, starting_weights


class TimmConfig(WeightsConfig):
    """Hyper-parameters of a timm backbone with a light decoder."""

    name: str = "timm"
    backbone: str = Field("convnext_tiny", description="a timm model with feature maps, with or without a tag")
    width: int = Field(256, ge=8, description="channels of the embedding")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout before the classifier")


class LightNetwork(Segmenter):
    """A timm backbone, normalised as timm says for its name, under an all-MLP decoder."""

    def __init__(self, config: TimmConfig, backbone: nn.Module, widths: Sequence[int]) -> None:
        super().__init__(
            backbone,
            MlpDecoder(widths, config.width),
            embedding_width=config.width,
            stage_widths=widths,
            dropout=config.dropout,
            **statistics(config.backbone),
        )


class Timm(LightNetwork):
    """The backbone's feature maps from stride 4 on, fused by an all-MLP decoder."""

    Config = TimmConfig
    name = "timm"
    summary = "any timm backbone with feature maps (ConvNeXt, Swin, EfficientNet …) under an all-MLP decoder"

    backbone: FeatureMaps

    def __init__(self, config: TimmConfig) -> None:
        backbone = FeatureMaps(config.backbone)
        super().__init__(config, backbone, backbone.widths)
        self.config = config

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the blocks of every stage, or the whole stage where timm does not list them.

        None where timm collects maps by hooks within blocks: a second pass would collect them again, out of order.
        """
        net = self.backbone.net
        return iter(()) if type(net).__name__ == "FeatureHookNet" else _blocks(getattr(net, "model", net))

    def load_pretrained(self) -> None:
        """Load timm's weights, or a file with timm's names."""
        name = self.config.backbone

        def library() -> State:
            state: State = FeatureMaps(name, pretrained=True).net.state_dict()
            return state

        state = starting_weights(self.config, f"timm's {name}", library, self._feature_names)
        if state is not None:
            nothing = re.compile(r"(?!)")
            label = f"network '{self.name}' with {name}"
            load_parts({"": self.backbone.net}, state, source=self.config.weights, label=label, ignored=nothing)

    def _feature_names(self, state: State) -> State:
        """Rename a whole model's weights to those of its feature maps; drop what leads to the classifier alone."""
        import timm

        with torch.device("meta"):
            whole = set(timm.create_model(self.config.backbone).state_dict())
        ours = {_flattened(key): key for key in self.backbone.net.state_dict()}
        return {ours.get(_flattened(k), k): v for k, v in state.items() if _flattened(k) in ours or k not in whole}


class FeatureMaps(nn.Module):
    """timm's feature extraction: image (B, 3, H, W) to maps (B, D_s, h_s, w_s) at strides of 4 and more."""

    def __init__(self, name: str, pretrained: bool = False) -> None:
        super().__init__()
        self.net: Any = create(name, features_only=True, pretrained=pretrained)
        strides: list[int] = self.net.feature_info.reduction()
        self.patch, self.least = _patch(self.net, name, strides), strides[-1]
        self.channels_last = str(getattr(self.net, "output_fmt", "")).endswith("NHWC")
        self.chosen = [index for index, stride in enumerate(strides) if stride >= 4]
        widths = self.net.feature_info.channels()
        self.widths = tuple(widths[index] for index in self.chosen)
        _settle_unused(self)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """Return the feature maps, channels first whatever the network's own order."""
        maps = self.net(whole_patches(image, self.patch, self.least))
        chosen = (maps[index] for index in self.chosen)
        return tuple(x.permute(0, 3, 1, 2) if self.channels_last else x for x in chosen)


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, nn.Sequential | nn.ModuleList) or hasattr(child, "blocks"):
            yield from _blocks(child)
        elif any(True for part in child.children() for _ in part.parameters()):
            yield child


@torch.enable_grad()
def _settle_unused(maps: FeatureMaps) -> None:
    """Turn parameters that no map depends on into buffers: several processes wait for every parameter's gradient."""
    training = maps.training
    found = maps.eval()(torch.zeros(1, 3, 2 * maps.least, 2 * maps.least))
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


def _patch(net: nn.Module, name: str, strides: list[int]) -> tuple[int, int]:
    """Return what image sides must be a multiple of: the first stride for most networks, the last for some."""
    error: UserError | None = None
    training = net.training
    net.eval()
    for stride in (strides[0], strides[-1]):
        side = stride * (64 // stride | 1)
        try:
            check_free_size(net, name, side, side + 2 * stride)
        except UserError as problem:
            error = problem
            continue
        net.train(training)
        return stride, stride
    assert error is not None
    raise error


@torch.no_grad()
def check_free_size(run: Callable[[Tensor], Any], name: str, height: int, width: int) -> None:
    """Refuse a timm model that takes no image of a size that is not its own."""
    try:
        run(torch.zeros(1, 3, height, width))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise UserError(
            f"timm's {name} takes images of certain sizes only: {' '.join(str(error).split()).rstrip('.')}."
        ) from None


def whole_patches(image: Tensor, patch: tuple[int, int], least: int = 1) -> Tensor:
    """Resize an image to the nearest multiples of a patch, so that maps at its stride cover exactly the image.

    No side becomes smaller than ``least``, a network's coarsest stride, below which it would run out of pixels.
    """
    sides = zip(image.shape[-2:], patch, strict=True)
    size = tuple(max(-(-least // patch), round(side / patch), 1) * patch for side, patch in sides)
    if size == tuple(image.shape[-2:]):
        return image
    return F.interpolate(image, size, mode="bilinear", align_corners=False)


def create(name: str, **options: Any) -> Any:
    """Make a timm model that takes images of any size where it can; an unknown name is a sentence."""
    import timm

    if not timm.is_model(name):
        near = did_you_mean(name, timm.list_models())
        raise UserError(f"timm has no model '{name}'.{near} 'timm.list_models()' lists them all.")
    error: Exception | None = None
    # Transformers with fixed positions or windows have a switch for other sizes; its name differs.
    for free_size in ({"strict_img_size": False}, {"dynamic_img_size": True}, {}):
        try:
            return timm.create_model(name, **options, **free_size)
        except TypeError as problem:
            error = problem
        except (RuntimeError, AttributeError, ValueError) as problem:
            error = problem
            break
    if options.get("pretrained"):
        raise error or RuntimeError("timm made no model")
    raise UserError(f"timm's {name} cannot be used here: {' '.join(str(error).split()).rstrip('.')}.")


def statistics(name: str) -> dict[str, Any]:
    """Return the mean and standard deviation of images that a timm model was trained with."""
    import timm

    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise UserError(f"timm's {name} cannot be used here: {' '.join(str(error).split()).rstrip('.')}.") from None
    return {} if config is None else {"mean": config.mean, "std": config.std}


def _flattened(key: str) -> str:
    """Feature extraction flattens ``stages.0.blocks`` to ``stages_0.blocks`` and wraps others in ``model``."""
    return key.removeprefix("model.").replace(".", "_")
