"""DeepLabV3 and DeepLabV3+ on torchvision's backbones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from faircl.errors import UserError
from faircl.models.aspp import WIDTH, DeepLabHead, DeepLabPlusHead, MiBHead
from faircl.models.backbones import Backbone, BackboneName, Block, ResNet, make_backbone
from faircl.models.checkpoint_keys import to_torchvision_keys
from faircl.models.run_weights import load_run_step
from faircl.models.segmenter import Segmenter
from faircl.models.weights import WeightsConfig, initial_state, load_modules

Rate = Annotated[int, Field(ge=1)]
_IGNORED = re.compile(r"fc\.|features\.18\.|aux_classifier\.|classifier\.((0\.)?(weight|bias)|1\.|3\.|4\.)")
"""Keys of torchvision networks that have no counterpart here: classifiers and layers used by them only."""


class DeepLabV3PlusConfig(WeightsConfig):
    """Hyper-parameters of DeepLabV3+."""

    name: str = "deeplabv3plus"
    backbone: BackboneName = Field("resnet101", description="resnet50, resnet101, mobilenet_v2 or mobilenet_v3_large")
    stride: Literal[8, 16] = Field(16, description="output stride of the backbone")
    rates: tuple[Rate, Rate, Rate] | None = Field(
        None, description="dilation rates of ASPP; unset: 6, 12, 18 at stride 16 and twice that at stride 8"
    )
    width: int = Field(WIDTH, ge=8, description="channels of the decoder and the embedding; 64 is faster on a CPU")
    block: Block = Field(
        "v1.5", description="ResNet blocks with the stride on the 3×3 (v1.5) or on the first 1×1 (v1); as the weights"
    )

    @model_validator(mode="after")
    def _check_block_type(self) -> Self:
        if self.block == "v1" and self.backbone.startswith("mobilenet"):
            raise ValueError(f"block v1 is for ResNets only; leave model.block out with {self.backbone}")
        if self.stride == 8 and self.backbone == "mobilenet_v3_large":
            raise ValueError("mobilenet_v3_large has stride 16 only; leave model.stride out")
        return self

    def dilation_rates(self) -> Sequence[int]:
        """Return the dilation rates of ASPP, with the default for the output stride."""
        return self.rates or tuple(rate * 16 // self.stride for rate in (6, 12, 18))


class DeepLabV3Config(DeepLabV3PlusConfig):
    """Hyper-parameters of DeepLabV3."""

    name: str = "deeplabv3"
    head: Literal["torchvision", "mib"] = Field(
        "torchvision", description="torchvision's ASPP head, or the lighter one of MiB and PLOP"
    )


class _DeepLab(Segmenter):
    """Base of DeepLabV3 and DeepLabV3+: backbone, weights, blocks."""

    backbone: Backbone

    def __init__(self, config: DeepLabV3PlusConfig, decoder: nn.Module, backbone: Backbone) -> None:
        super().__init__(backbone, decoder, embedding_width=config.width, stage_widths=backbone.widths)
        self.config = config

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the backbone's blocks."""
        return self.backbone.blocks()

    def load_pretrained(self) -> None:
        """Load torchvision's ImageNet weights, or a file with weights of a backbone or of torchvision's DeepLabV3."""
        name = self.config.backbone
        label = f"network '{self.name}' with {name}"
        if load_run_step(self, self.config.weights, label):
            return
        state = initial_state(self.config, f"torchvision's {name}", lambda: _imagenet_state(name), to_torchvision_keys)
        if state is None:
            return
        has_prefix = any(key.startswith("backbone.") for key in state)
        modules: dict[str, nn.Module] = {"backbone.": self.backbone} if has_prefix else {"": self.backbone}
        decoder = {key for key in state if has_prefix and key.startswith("classifier.")}
        if decoder and isinstance(self.decoder, DeepLabHead):
            modules["classifier."] = self.decoder
        elif decoder:  # of a head that this network does not have
            state = {key: value for key, value in state.items() if key not in decoder}
        load_modules(modules, state, source=self.config.weights, label=label, ignored=_IGNORED)


class DeepLabV3(_DeepLab):
    """DeepLabV3 with torchvision's head or MiB's."""

    Config = DeepLabV3Config
    name = "deeplabv3"
    summary = "DeepLabV3 on ResNet-50, ResNet-101 or a MobileNet, stride 8 or 16"

    def __init__(self, config: DeepLabV3Config) -> None:
        backbone = make_backbone(config.backbone, config.stride, config.block)
        head = DeepLabHead if config.head == "torchvision" else MiBHead
        super().__init__(config, head(backbone.widths[-1], config.dilation_rates(), config.width), backbone)

    def export_state_dict(self) -> dict[str, Tensor]:
        """Return a state dict for ``torchvision.models.segmentation.deeplabv3_resnet101`` or ``…_resnet50``.

        Raises ``UserError`` if torchvision's network would compute something else: it has a ResNet of v1.5 blocks at
        stride 8, rates 12, 24 and 36, and a width of 256.
        """
        if not (isinstance(self.decoder, DeepLabHead) and isinstance(self.backbone, ResNet)):
            raise UserError(
                "torchvision has DeepLabV3 with its own head on ResNets only, so this network cannot be exported to it."
            )
        c = self.config
        if (c.stride, tuple(c.dilation_rates()), c.block, c.width) != (8, (12, 24, 36), "v1.5", WIDTH):
            raise UserError(
                f"torchvision's DeepLabV3 has stride 8, rates 12, 24, 36, v1.5 blocks and width {WIDTH}, found stride "
                f"{c.stride}, rates {', '.join(map(str, c.dilation_rates()))}, {c.block} and {c.width}; with these "
                "weights it would compute something else, so this network cannot be exported to it."
            )
        self.check_plain_classifier()
        weight, bias = self.classifier.weight_and_bias()
        state = {f"backbone.{key}": value for key, value in self.backbone.state_dict().items()}
        state |= {f"classifier.{key}": value for key, value in self.decoder.state_dict().items()}
        return state | {"classifier.4.weight": weight.detach()[:, :, None, None], "classifier.4.bias": bias.detach()}


class DeepLabV3Plus(_DeepLab):
    """DeepLabV3+: DeepLabV3 with a skip connection at stride 4."""

    Config = DeepLabV3PlusConfig
    name = "deeplabv3plus"
    summary = "DeepLabV3+: the same backbones, finer logits through a stride-4 skip"

    def __init__(self, config: DeepLabV3PlusConfig) -> None:
        backbone = make_backbone(config.backbone, config.stride, config.block)
        super().__init__(config, DeepLabPlusHead(backbone.widths, config.dilation_rates(), config.width), backbone)


def _imagenet_state(backbone: BackboneName) -> dict[str, Tensor]:
    from torchvision.models import get_model_weights

    state: dict[str, Tensor] = get_model_weights(backbone)["IMAGENET1K_V1"].get_state_dict(check_hash=True)
    return state
