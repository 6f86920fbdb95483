"""Plain vision transformers of timm, such as DINOv2, with an all-MLP decoder.

They are meant to be frozen or trained with a low learning rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from faircl.errors import UserError
from faircl.hub import hub_or_cache
from faircl.models.checkpoint_keys import to_timm_vit_keys
from faircl.models.checkpointing import without_checkpointing
from faircl.models.run_weights import load_run_step
from faircl.models.timm_backbone import (
    TimmConfig,
    TimmNetwork,
    check_accepts_size,
    create_timm_model,
    resize_to_multiple,
)
from faircl.models.weights import State, initial_state, load_modules

_IGNORED = re.compile(r"head\.|head_dist\.|fc_norm\.|attn_pool\.|mask_token|pooler\.|classifier\.")


class ViTConfig(TimmConfig):
    """Hyper-parameters of a vision transformer with an all-MLP decoder."""

    name: str = "vit"
    backbone: str = Field("vit_small_patch14_dinov2", description="a timm vision transformer, with or without a tag")
    layers: int = Field(
        4, ge=1, description="evenly spaced blocks, the last one included, whose outputs the decoder reads"
    )


class ViT(TimmNetwork):
    """A vision transformer whose feature maps of several blocks are fused by an all-MLP decoder."""

    Config = ViTConfig
    name = "vit"
    summary = "vision transformer of timm (DINOv2 …) under an all-MLP decoder, any image size; has attentions"
    has_attentions = True

    backbone: PatchFeatures

    def __init__(self, config: ViTConfig) -> None:
        backbone = PatchFeatures(config.backbone, config.layers)
        super().__init__(config, backbone, backbone.widths)
        self.config = config

    def features(self, image: Tensor, attentions: bool) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """Return the maps of the chosen blocks and, if ``attentions``, the attention weights of every block."""
        return self.backbone(image, attentions)  # type: ignore[no-any-return]

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the transformer blocks."""
        yield from self.backbone.net.blocks

    def load_pretrained(self) -> None:
        """Load timm's weights, or a file with the keys of timm, transformers or DINOv2's first release."""
        name, layers = self.config.backbone, self.config.layers

        def download() -> State:
            with hub_or_cache():
                state: State = PatchFeatures(name, layers, pretrained=True).net.state_dict()
            return state

        label = f"network '{self.name}' with {name}"
        if load_run_step(self, self.config.weights, label):
            return
        state = initial_state(self.config, f"timm's {name}", download, self._convert_keys)
        if state is not None:
            load_modules({"": self.backbone.net}, state, source=self.config.weights, label=label, ignored=_IGNORED)

    def _convert_keys(self, state: State) -> State:
        """Convert keys to timm's, and let timm convert older keys and resample the position embedding if it can."""
        from timm.models.vision_transformer import checkpoint_filter_fn

        state = to_timm_vit_keys(state)
        patches = state.get("patch_embed.proj.weight")
        if patches is not None and tuple(patches.shape[-2:]) != self.backbone.patch:
            return state  # timm would silently resample another patch size
        try:
            translated: State = checkpoint_filter_fn(dict(state), self.backbone.net)
        except (RuntimeError, KeyError, AttributeError, AssertionError, IndexError):
            return state  # weights of another network: load_modules reports the keys that do not fit
        return translated


class PatchFeatures(nn.Module):
    """A timm vision transformer as a backbone.

    An image whose height and width are not multiples of the patch is resized to the nearest multiples.

    Shapes: image (B, 3, H, W) to ``layers`` maps (B, D, h, w), normalised, at patch stride; attentions
    (B, heads, tokens, tokens) of every block, class and register tokens first.
    """

    def __init__(self, name: str, layers: int, pretrained: bool = False) -> None:
        super().__init__()
        self.net: Any = create_timm_model(name, num_classes=0, pretrained=pretrained)
        if not _is_plain(self.net):
            raise UserError(f"timm's {name} is no plain vision transformer; use it as model.name: timm.")
        depth = len(self.net.blocks)
        if layers > depth:
            raise UserError(f"Setting model.layers: {name} has {depth} blocks, found {layers}.")
        self.block_indices = [depth * (index + 1) // layers - 1 for index in range(layers)]
        # Removes the classifier's pooling and norm, whose parameters would get no gradient.
        self.net.prune_intermediate_layers(self.block_indices)
        self.patch: tuple[int, int] = tuple(self.net.patch_embed.patch_size)
        self.widths = (int(self.net.embed_dim),) * layers
        height, width = self.patch
        check_accepts_size(self._forward_maps, name, 3 * height, 5 * width)

    def forward(self, image: Tensor, attentions: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """Return stages and attentions."""
        image = resize_to_multiple(image, self.patch)
        if not attentions:
            return self._forward_maps(image), None
        maps: list[Tensor] = []
        with ExitStack() as cleanup:
            cleanup.enter_context(without_checkpointing(self.net.blocks))
            for block in self.net.blocks:
                hook = block.attn.attn_drop.register_forward_hook(lambda _, __, output: maps.append(output))
                cleanup.callback(hook.remove)
                cleanup.callback(setattr, block.attn, "fused_attn", block.attn.fused_attn)
                block.attn.fused_attn = False  # fused attention does not return its weights
            return self._forward_maps(image), tuple(maps)

    def _forward_maps(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            self.net.forward_intermediates(
                image, indices=self.block_indices, norm=True, output_fmt="NCHW", intermediates_only=True
            )
        )


def _is_plain(net: Any) -> bool:
    """Whether a timm model has blocks of one width and stride, each with an attention whose weights can be read."""
    patch = getattr(getattr(net, "patch_embed", None), "patch_size", None)
    blocks = getattr(net, "blocks", ())
    readable = all(hasattr(getattr(block, "attn", None), "attn_drop") for block in blocks)
    return isinstance(patch, tuple) and hasattr(net, "forward_intermediates") and len(blocks) > 0 and readable
