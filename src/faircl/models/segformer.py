"""SegFormer B0 to B5 on transformers' encoder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from faircl.errors import UserError
from faircl.models.checkpointing import remembered
from faircl.models.mlp_decoder import MlpDecoder
from faircl.models.resize import resize
from faircl.models.segmenter import Segmenter
from faircl.models.stochastic_depth import replace_stochastic_depth
from faircl.models.weight_names import segformer_library_names, segformer_names
from faircl.models.weights import State, WeightsConfig, load_parts, starting_weights

Variant = Literal["b0", "b1", "b2", "b3", "b4", "b5"]
BARE_WIDTH = 256
_IGNORED = re.compile(r"classifier\.|decode_head\.classifier\.|head\.")


class _Size(NamedTuple):
    depths: tuple[int, int, int, int]
    widths: tuple[int, int, int, int]
    decoder: int


_SMALL, _LARGE = (32, 64, 160, 256), (64, 128, 320, 512)
SIZES: dict[str, _Size] = {
    "b0": _Size((2, 2, 2, 2), _SMALL, 256),
    "b1": _Size((2, 2, 2, 2), _LARGE, 256),
    "b2": _Size((3, 4, 6, 3), _LARGE, 768),
    "b3": _Size((3, 4, 18, 3), _LARGE, 768),
    "b4": _Size((3, 8, 27, 3), _LARGE, 768),
    "b5": _Size((3, 6, 40, 3), _LARGE, 768),
}


class SegFormerConfig(WeightsConfig):
    """Hyper-parameters of SegFormer."""

    name: str = "segformer"
    variant: Variant = Field("b3", description="size, b0 to b5")
    decoder: Literal["mlp", "bare"] = Field(
        "mlp",
        description="SegFormer's own decoder, or the 256-wide one without norm and activation of FairCL's released "
        "code (with variant b2)",
    )
    drop_path: float = Field(0.1, ge=0, lt=1, description="stochastic depth of the last block")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout before the classifier; the bare decoder has none")


class SegFormer(Segmenter):
    """Mix transformer with an all-MLP decoder at stride 4."""

    Config = SegFormerConfig
    name = "segformer"
    summary = "SegFormer B0 to B5 at stride 4, 256- or 768-wide embedding; has attentions"
    has_attentions = True

    backbone: MixTransformer
    decoder: MlpDecoder

    def __init__(self, config: SegFormerConfig) -> None:
        size, bare = SIZES[config.variant], config.decoder == "bare"
        width = BARE_WIDTH if bare else size.decoder
        super().__init__(
            MixTransformer(size, config.drop_path),
            MlpDecoder(size.widths, width, bare),
            embedding_width=width,
            stage_widths=size.widths,
            dropout=0.0 if bare else config.dropout,
        )
        self.config = config

    def features(self, image: Tensor, attentions: bool) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """Return the four stages and, if asked for, the attention of every block."""
        return self.backbone(image, attentions)  # type: ignore[no-any-return]

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the transformer blocks."""
        return self.backbone.blocks()

    def load_pretrained(self) -> None:
        """Load the encoder, or the whole network where the file has a decoder that fits ours."""
        variant = self.config.variant
        state = starting_weights(self.config, f"nvidia/mit-{variant}", lambda: _imagenet(variant), segformer_names)
        if state is None:
            return
        parts: dict[str, nn.Module] = {"": self.backbone}
        if self.decoder.bare:
            state = {key: value for key, value in state.items() if not key.startswith("decoder.")}
        elif "decoder.fuse.weight" in state:
            parts["decoder."] = self.decoder
        label = f"network '{self.name}' {variant}"
        load_parts(parts, state, source=self.config.weights, label=label, ignored=_IGNORED)

    def library_state(self) -> State:
        """Return the weights as transformers' ``SegformerForSemanticSegmentation`` loads them."""
        if self.decoder.bare:
            raise UserError("transformers' SegFormer has no bare decoder; there is nothing to export to.")
        self.check_plain_classifier()
        weight, bias = self.classifier.weight_and_bias()
        state = {f"segformer.{key}": value for key, value in self.backbone.state_dict().items()}
        state |= segformer_library_names(self.decoder.state_dict())
        head = {"weight": weight.detach()[:, :, None, None], "bias": bias.detach()}
        return state | {f"decode_head.classifier.{key}": value for key, value in head.items()}


class MixTransformer(nn.Module):
    """transformers' SegFormer encoder as a backbone.

    Shapes: image (B, 3, H, W) to four stages at strides 4, 8, 16 and 32; attentions (B, heads, queries, keys) of
    every block. The fused attention has no weights to show, so asking for them takes the plain one. Sides below the
    coarsest stride, where a reduced key would have no pixel, are stretched to it.
    """

    def __init__(self, size: _Size, drop_path: float) -> None:
        super().__init__()
        from transformers import SegformerConfig, SegformerModel

        config = SegformerConfig(
            depths=list(size.depths), hidden_sizes=list(size.widths), drop_path_rate=drop_path, num_labels=1
        )
        self.stages: Any = SegformerModel(config).stages
        for stage in self.stages:
            stage.reshape = False  # see _to_map
        replace_stochastic_depth(self.blocks())

    def forward(self, image: Tensor, attentions: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """Return stages and attentions."""
        height, width = image.shape[-2:]
        image = resize(image, (max(height, 32), max(width, 32)))
        if not attentions:
            return self._stages(image), None
        maps: list[Tensor] = []
        with ExitStack() as shown:
            shown.enter_context(remembered(self.blocks()))
            for block in self.blocks():
                hook = block.attention.register_forward_hook(lambda _, __, output: maps.append(output[1]))
                shown.callback(hook.remove)
            # All blocks share one configuration.
            config = self.stages[0].blocks[0].attention.config
            shown.callback(setattr, config, "_attn_implementation", config._attn_implementation)
            config._attn_implementation = "eager"
            return self._stages(image), tuple(maps)

    def blocks(self) -> Iterator[Any]:
        """Yield the transformer blocks."""
        for stage in self.stages:
            yield from stage.blocks

    def _stages(self, image: Tensor) -> tuple[Tensor, ...]:
        x, stages = image, []
        for stage in self.stages:
            height = -(-x.shape[-2] // stage.patch_embeddings.proj.stride[0])
            x = _to_map(stage(x), height)
            stages.append(x)
        return tuple(stages)


def _to_map(tokens: Tensor, height: int) -> Tensor:
    """Return tokens (B, h·w, D) as a map (B, D, h, w) in channels_last, without the copy that a stage would make."""
    if tokens.ndim == 4:
        return tokens
    y: Tensor = tokens.transpose(1, 2).unflatten(2, (height, -1))  # type: ignore[no-untyped-call]
    return y


def _imagenet(variant: str) -> State:
    from transformers import SegformerModel

    loaded: Any = SegformerModel.from_pretrained(f"nvidia/mit-{variant}")
    state: State = loaded.state_dict()
    return state
