"""SegFormer B0 to B5 with transformers' encoder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from faircl.errors import UserError
from faircl.hub import hub_or_cache
from faircl.models.checkpoint_keys import decoder_to_transformers_keys, to_segformer_keys
from faircl.models.checkpointing import without_checkpointing
from faircl.models.mlp_decoder import MlpDecoder
from faircl.models.resize import at_least, resize
from faircl.models.run_weights import load_run_step
from faircl.models.segmenter import Segmenter
from faircl.models.stochastic_depth import replace_stochastic_depth
from faircl.models.weights import State, WeightsConfig, initial_state, load_modules

Variant = Literal["b0", "b1", "b2", "b3", "b4", "b5"]
BARE_WIDTH = 256
_IGNORED = re.compile(r"classifier\.|decode_head\.classifier\.|head\.")


class _Size(NamedTuple):
    depths: tuple[int, int, int, int]
    widths: tuple[int, int, int, int]
    decoder: int


_SMALL_WIDTHS, _LARGE_WIDTHS = (32, 64, 160, 256), (64, 128, 320, 512)
SIZES: dict[str, _Size] = {
    "b0": _Size((2, 2, 2, 2), _SMALL_WIDTHS, 256),
    "b1": _Size((2, 2, 2, 2), _LARGE_WIDTHS, 256),
    "b2": _Size((3, 4, 6, 3), _LARGE_WIDTHS, 768),
    "b3": _Size((3, 4, 18, 3), _LARGE_WIDTHS, 768),
    "b4": _Size((3, 8, 27, 3), _LARGE_WIDTHS, 768),
    "b5": _Size((3, 6, 40, 3), _LARGE_WIDTHS, 768),
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
    """A mix transformer (MiT) with an all-MLP decoder at stride 4."""

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
        """Return the four stages and, if ``attentions``, the attention weights of every block."""
        return self.backbone(image, attentions)  # type: ignore[no-any-return]

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the transformer blocks."""
        return self.backbone.blocks()

    def load_pretrained(self) -> None:
        """Load the encoder, and the decoder if the file has one that fits."""
        variant = self.config.variant
        label = f"network '{self.name}' {variant}"
        if load_run_step(self, self.config.weights, label):
            return
        state = initial_state(self.config, f"nvidia/mit-{variant}", lambda: _imagenet_state(variant), to_segformer_keys)
        if state is None:
            return
        modules: dict[str, nn.Module] = {"": self.backbone}
        if self.decoder.bare:
            state = {key: value for key, value in state.items() if not key.startswith("decoder.")}
        elif "decoder.fuse.weight" in state:
            modules["decoder."] = self.decoder
        load_modules(modules, state, source=self.config.weights, label=label, ignored=_IGNORED)

    def export_state_dict(self) -> State:
        """Return a state dict for transformers' ``SegformerForSemanticSegmentation``."""
        if self.decoder.bare:
            raise UserError("transformers' SegFormer has no bare decoder, so this network cannot be exported to it.")
        self.check_plain_classifier()
        weight, bias = self.classifier.weight_and_bias()
        state = {f"segformer.{key}": value for key, value in self.backbone.state_dict().items()}
        state |= decoder_to_transformers_keys(self.decoder.state_dict())
        head = {"weight": weight.detach()[:, :, None, None], "bias": bias.detach()}
        return state | {f"decode_head.classifier.{key}": value for key, value in head.items()}


class MixTransformer(nn.Module):
    """transformers' SegFormer encoder as a backbone.

    Fused attention does not return its weights, so the eager implementation is used if they are requested. Images
    smaller than 32 pixels, the coarsest stride, are resized to 32: reduced keys would have no pixel otherwise.

    Shapes: image (B, 3, H, W) to four stages at strides 4, 8, 16 and 32; attentions (B, heads, queries, keys) of
    every block.
    """

    def __init__(self, size: _Size, drop_path: float) -> None:
        super().__init__()
        from transformers import SegformerConfig, SegformerModel

        config = SegformerConfig(
            depths=list(size.depths),
            hidden_sizes=list(size.widths),
            drop_path_rate=drop_path,
            num_labels=1,
        )
        self.stages: Any = SegformerModel(config).stages
        # Read here: during training the projections may be replaced by parallel branches, which have no stride.
        self.strides: list[int] = [stage.patch_embeddings.proj.stride[0] for stage in self.stages]
        for stage in self.stages:
            stage.reshape = False  # _tokens_to_map reshapes without a copy
        replace_stochastic_depth(self.blocks())

    def forward(self, image: Tensor, attentions: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """Return stages and attentions."""
        height, width = image.shape[-2:]
        image = resize(image, (at_least(height, 32), at_least(width, 32)))
        if not attentions:
            return self._forward_stages(image), None
        maps: list[Tensor] = []
        with ExitStack() as cleanup:
            cleanup.enter_context(without_checkpointing(self.blocks()))
            for block in self.blocks():
                hook = block.attention.register_forward_hook(lambda _, __, output: maps.append(output[1]))
                cleanup.callback(hook.remove)
            # All blocks share one configuration.
            config = self.stages[0].blocks[0].attention.config
            cleanup.callback(setattr, config, "_attn_implementation", config._attn_implementation)
            config._attn_implementation = "eager"
            return self._forward_stages(image), tuple(maps)

    def blocks(self) -> Iterator[Any]:
        """Yield the transformer blocks."""
        for stage in self.stages:
            yield from stage.blocks

    def _forward_stages(self, image: Tensor) -> tuple[Tensor, ...]:
        x, stages = image, []
        for stage, stride in zip(self.stages, self.strides, strict=True):
            # ⌈side / stride⌉ as the convolution computes it, so that an export finds both equal at every size.
            height, width = ((side - 1) // stride + 1 for side in x.shape[-2:])
            x = _tokens_to_map(stage(x), height, width)
            stages.append(x)
        return tuple(stages)


def _tokens_to_map(tokens: Tensor, height: int, width: int) -> Tensor:
    """Return tokens (B, h·w, D) as a map (B, D, h, w) in channels_last, without a copy."""
    if tokens.ndim == 4:
        return tokens
    y: Tensor = tokens.transpose(1, 2).unflatten(2, (height, width))  # type: ignore[no-untyped-call]
    return y


def _imagenet_state(variant: str) -> State:
    from transformers import SegformerModel

    with hub_or_cache():
        loaded: Any = SegformerModel.from_pretrained(f"nvidia/mit-{variant}")
    state: State = loaded.state_dict()
    return state
