"""Plain vision transformers, DINOv2 above all, with a light decoder: meant frozen or at a low learning rate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from pydantic import Field
from torch import Tensor, nn

from faircl.errors import UserError
from faircl.models.checkpointing import remembered
from faircl.models.timm_features import LightNetwork, TimmConfig, check_free_size, create, whole_patches
from faircl.models.weight_names import vit_names
from faircl.models.weights import State, load_parts, starting_weights

_IGNORED = re.compile(r"head\.|head_dist\.|fc_norm\.|attn_pool\.|mask_token|pooler\.|classifier\.")


class ViTConfig(TimmConfig):
    """Hyper-parameters of a vision transformer with a light decoder."""

    name: str = "vit"
    backbone: str = Field("vit_small_patch14_dinov2", description="a timm vision transformer, with or without a tag")
    layers: int = Field(4, ge=1, description="blocks, evenly spaced and the last among them, that the decoder sees")


class ViT(LightNetwork):
    """Feature maps of several depths at patch stride, fused by an all-MLP decoder."""

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
        """Return the chosen depths' maps and, if asked for, the attention of every block."""
        return self.backbone(image, attentions)  # type: ignore[no-any-return]

    def blocks(self) -> Iterator[nn.Module]:
        """Yield the transformer blocks."""
        yield from self.backbone.net.blocks

    def load_pretrained(self) -> None:
        """Load timm's weights, or a file with timm's, transformers' or DINOv2's own names."""
        name, layers = self.config.backbone, self.config.layers

        def library() -> State:
            state: State = PatchFeatures(name, layers, pretrained=True).net.state_dict()
            return state

        state = starting_weights(self.config, f"timm's {name}", library, lambda found: self._as_timm(vit_names(found)))
        if state is not None:
            label = f"network '{self.name}' with {name}"
            load_parts({"": self.backbone.net}, state, source=self.config.weights, label=label, ignored=_IGNORED)

    def _as_timm(self, state: State) -> State:
        """Let timm translate older names and fit the position embedding to its grid, as far as it can."""
        from timm.models.vision_transformer import checkpoint_filter_fn

        patches = state.get("patch_embed.proj.weight")
        if patches is not None and tuple(patches.shape[-2:]) != self.backbone.patch:
            return state  # timm would resample another patch size without a word
        try:
            translated: State = checkpoint_filter_fn(dict(state), self.backbone.net)
        except (RuntimeError, KeyError, AttributeError, AssertionError, IndexError):
            return state  # another network's weights: what does not fit is reported by name
        return translated


class PatchFeatures(nn.Module):
    """A timm vision transformer as a backbone.

    Shapes: image (B, 3, H, W) to ``layers`` maps (B, D, h, w), normalised, at the stride of a patch; attentions
    (B, heads, tokens, tokens) of every block, class and register tokens first. An image whose sides are no multiples
    of the patch is resized to the nearest ones, so that the maps cover exactly the image.
    """

    def __init__(self, name: str, layers: int, pretrained: bool = False) -> None:
        super().__init__()
        self.net: Any = create(name, num_classes=0, pretrained=pretrained)
        if not _is_plain(self.net):
            raise UserError(f"timm's {name} is no plain vision transformer; use it as model.name: timm.")
        depth = len(self.net.blocks)
        if layers > depth:
            raise UserError(f"Setting model.layers: {name} has {depth} blocks, found {layers}.")
        self.depths = [depth * (index + 1) // layers - 1 for index in range(layers)]
        # A classifier's pooling and norm would be parameters that no gradient reaches.
        self.net.prune_intermediate_layers(self.depths)
        self.patch: tuple[int, int] = tuple(self.net.patch_embed.patch_size)
        self.widths = (int(self.net.embed_dim),) * layers
        height, width = self.patch
        check_free_size(self._maps, name, 3 * height, 5 * width)

    def forward(self, image: Tensor, attentions: bool = False) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """Return stages and attentions."""
        image = whole_patches(image, self.patch)
        if not attentions:
            return self._maps(image), None
        seen: list[Tensor] = []
        with ExitStack() as shown:
            shown.enter_context(remembered(self.net.blocks))
            for block in self.net.blocks:
                hook = block.attn.attn_drop.register_forward_hook(lambda _, __, output: seen.append(output))
                shown.callback(hook.remove)
                shown.callback(setattr, block.attn, "fused_attn", block.attn.fused_attn)
                block.attn.fused_attn = False  # the fused attention has no weights to show
            return self._maps(image), tuple(seen)

    def _maps(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            self.net.forward_intermediates(
                image, indices=self.depths, norm=True, output_fmt="NCHW", intermediates_only=True
            )
        )


def _is_plain(net: Any) -> bool:
    """Whether a timm model has blocks of one width at one stride, with an attention each that can be shown."""
    patch = getattr(getattr(net, "patch_embed", None), "patch_size", None)
    blocks = getattr(net, "blocks", ())
    shown = all(hasattr(getattr(block, "attn", None), "attn_drop") for block in blocks)
    return isinstance(patch, tuple) and hasattr(net, "forward_intermediates") and len(blocks) > 0 and shown
