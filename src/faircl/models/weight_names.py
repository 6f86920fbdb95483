r"""Names of weights: from other libraries' to those of the network in use.

Each translation is a table of regular expressions, tried from top to bottom on every key; the first that matches
rewrites it, a key that none matches keeps its name. Which table a file needs is told by keys that only it has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

State = dict[str, Tensor]
Table = Sequence[tuple[str, str | Callable[[re.Match[str]], str]]]


def rename(state: State, table: Table) -> State:
    """Rename every key by the first pattern of a table that matches it."""
    compiled = [(re.compile(pattern), replacement) for pattern, replacement in table]

    def new(key: str) -> str:
        for pattern, replacement in compiled:
            if pattern.match(key):
                return pattern.sub(replacement, key, count=1)
        return key

    return {new(key): value for key, value in state.items()}


# ResNet and MobileNetV2: to torchvision's names


def torchvision_names(state: State) -> State:
    """Return a ResNet's or MobileNetV2's state under torchvision's names; timm's ResNets have them already."""
    if any(re.match(r"(resnet\.)?embedder\.embedder\.", key) for key in state):
        return rename(state, _HF_RESNET)
    if "blocks.0.0.conv_dw.weight" in state:
        return rename(state, _TIMM_MOBILENET)
    return state


_HF_RESNET: Table = (
    (r"(?:resnet\.)?embedder\.embedder\.convolution\.", "conv1."),
    (r"(?:resnet\.)?embedder\.embedder\.normalization\.", "bn1."),
    (
        r"(?:resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.layer\.(\d+)\.(convolution|normalization)\.",
        lambda m: f"layer{int(m[1]) + 1}.{m[2]}.{'conv' if m[4] == 'convolution' else 'bn'}{int(m[3]) + 1}.",
    ),
    (
        r"(?:resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.shortcut\.(convolution|normalization)\.",
        lambda m: f"layer{int(m[1]) + 1}.{m[2]}.downsample.{0 if m[3] == 'convolution' else 1}.",
    ),
    (r"classifier\.1\.", "fc."),
)

_MOBILENET_STARTS = (1, 2, 4, 7, 11, 14, 17)
"""The number of torchvision's first block of each of timm's seven groups."""
_MOBILENET_FIRST = {"conv_dw": "0.0", "bn1": "0.1", "conv_pw": "1", "bn2": "2"}
_MOBILENET_BLOCK = {"conv_pw": "0.0", "bn1": "0.1", "conv_dw": "1.0", "bn2": "1.1", "conv_pwl": "2", "bn3": "3"}


def _mobilenet_block(match: re.Match[str]) -> str:
    group, index, layer = int(match[1]), int(match[2]), match[3]
    names = _MOBILENET_FIRST if group == 0 else _MOBILENET_BLOCK
    if group >= len(_MOBILENET_STARTS) or layer not in names:  # another network of the family
        return match[0]
    return f"features.{_MOBILENET_STARTS[group] + index}.conv.{names[layer]}."


_TIMM_MOBILENET: Table = (
    (r"conv_stem\.", "features.0.0."),
    (r"bn1\.", "features.0.1."),
    (r"blocks\.(\d+)\.(\d+)\.(\w+)\.", _mobilenet_block),
    (r"conv_head\.", "features.18.0."),
    (r"bn2\.", "features.18.1."),
    (r"classifier\.(weight|bias)", r"classifier.1.\1"),
)


# SegFormer: encoder to transformers' present names without "segformer.", decoder to ours


def segformer_names(state: State) -> State:
    """Return a SegFormer's state under our names: ``stages.…`` for the encoder, ``decoder.…`` for the decoder.

    Known are transformers' present names, those of files on the hub (``encoder.block…``) and those of the first
    release (``block1…``).
    """
    state = {re.sub(r"^segformer\.", "", key): value for key, value in state.items()}
    if "patch_embed1.proj.weight" in state:
        state = _split_key_value(rename(state, _MIT))
    state = rename(rename(state, _HUB_SEGFORMER), _HUB_LAYER)
    # transformers projects with linear layers where we have 1×1 convolutions.
    flat = re.compile(r"decoder\.projections\.\d+\.weight")
    return {k: v[:, :, None, None] if flat.match(k) and v.ndim == 2 else v for k, v in state.items()}


def segformer_library_names(state: State) -> State:
    """Return a decoder's state (ours, without prefix) under transformers' names."""
    state = {k: v[:, :, 0, 0] if k.startswith("projections.") and v.ndim == 4 else v for k, v in state.items()}
    return rename(state, _OUR_DECODER)


_OUR_DECODER: Table = (
    (r"projections\.(\d+)\.", r"decode_head.linear_projections.\1.proj."),
    (r"fuse\.", "decode_head.linear_fuse."),
    (r"norm\.", "decode_head.batch_norm."),
)


_HUB_SEGFORMER: Table = (
    (r"encoder\.patch_embeddings\.(\d+)\.", r"stages.\1.patch_embeddings."),
    (r"encoder\.block\.(\d+)\.", r"stages.\1.blocks."),
    (r"encoder\.layer_norm\.(\d+)\.", r"stages.\1.layer_norm."),
    (r"decode_head\.linear_(?:c|projections)\.(\d+)\.proj\.", r"decoder.projections.\1."),
    (r"decode_head\.linear_fuse\.", "decoder.fuse."),
    (r"decode_head\.batch_norm\.", "decoder.norm."),
)
_LAYER = r"(stages\.\d+\.blocks\.\d+\.)"
_HUB_LAYER: Table = (
    (_LAYER + r"attention\.self\.query\.", r"\1attention.q_proj."),
    (_LAYER + r"attention\.self\.key\.", r"\1attention.k_proj."),
    (_LAYER + r"attention\.self\.value\.", r"\1attention.v_proj."),
    (_LAYER + r"attention\.self\.sr\.", r"\1attention.sequence_reduction.sequence_reduction."),
    (_LAYER + r"attention\.self\.layer_norm\.", r"\1attention.sequence_reduction.layer_norm."),
    (_LAYER + r"attention\.output\.dense\.", r"\1attention.o_proj."),
    (_LAYER + r"mlp\.dense1\.", r"\1mlp.fc1."),
    (_LAYER + r"mlp\.dense2\.", r"\1mlp.fc2."),
    (_LAYER + r"layer_norm_1\.", r"\1layernorm_before."),
    (_LAYER + r"layer_norm_2\.", r"\1layernorm_after."),
)


def _mit(replacement: str) -> Callable[[re.Match[str]], str]:
    """Return a replacement whose stage, the first group, is counted from 0 instead of 1."""
    return lambda m: f"stages.{int(m[1]) - 1}." + m.expand(replacement)


_MIT_BLOCK = r"block(\d)\.(\d+)\."
_MIT: Table = (
    (r"patch_embed(\d)\.proj\.", _mit("patch_embeddings.proj.")),
    (r"patch_embed(\d)\.norm\.", _mit("patch_embeddings.layer_norm.")),
    (r"norm(\d)\.", _mit("layer_norm.")),
    (_MIT_BLOCK + r"norm1\.", _mit(r"blocks.\2.layernorm_before.")),
    (_MIT_BLOCK + r"norm2\.", _mit(r"blocks.\2.layernorm_after.")),
    (_MIT_BLOCK + r"attn\.q\.", _mit(r"blocks.\2.attention.q_proj.")),
    (_MIT_BLOCK + r"attn\.kv\.", _mit(r"blocks.\2.attention.kv_proj.")),
    (_MIT_BLOCK + r"attn\.proj\.", _mit(r"blocks.\2.attention.o_proj.")),
    (_MIT_BLOCK + r"attn\.sr\.", _mit(r"blocks.\2.attention.sequence_reduction.sequence_reduction.")),
    (_MIT_BLOCK + r"attn\.norm\.", _mit(r"blocks.\2.attention.sequence_reduction.layer_norm.")),
    (_MIT_BLOCK + r"mlp\.", _mit(r"blocks.\2.mlp.")),
)


def _split_key_value(state: State) -> State:
    """Split weights that hold keys above values."""
    split: State = {}
    for key, value in state.items():
        if ".kv_proj." in key:
            split[key.replace(".kv_proj.", ".k_proj.")], split[key.replace(".kv_proj.", ".v_proj.")] = value.chunk(2)
        else:
            split[key] = value
    return split


# Vision transformers: to timm's names


def vit_names(state: State) -> State:
    """Return a DINOv2 of transformers under the names of its first release, which timm reads; others as they are."""
    state = {re.sub(r"^dinov2(_with_registers)?\.", "", key): value for key, value in state.items()}
    if "embeddings.patch_embeddings.projection.weight" not in state:
        return state
    state = rename(rename(state, _HF_ATTENTION), _HF_DINO)
    return _joined(_joined(state, ("q_proj", "k_proj", "v_proj"), "qkv"), ("gate_proj", "up_proj"), "w12")


_HF_LAYER = r"(encoder\.layer\.\d+\.)"
_HF_ATTENTION: Table = (
    (_HF_LAYER + r"attention\.attention\.query\.", r"\1attention.q_proj."),
    (_HF_LAYER + r"attention\.attention\.key\.", r"\1attention.k_proj."),
    (_HF_LAYER + r"attention\.attention\.value\.", r"\1attention.v_proj."),
    (_HF_LAYER + r"attention\.output\.dense\.", r"\1attention.o_proj."),
)
_HF_DINO: Table = (
    (r"embeddings\.cls_token", "cls_token"),
    (r"embeddings\.register_tokens", "register_tokens"),
    (r"embeddings\.mask_token", "mask_token"),
    (r"embeddings\.position_embeddings", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"encoder\.layer\.(\d+)\.attention\.o_proj\.", r"blocks.\1.attn.proj."),
    (r"encoder\.layer\.(\d+)\.attention\.", r"blocks.\1.attn."),
    (r"encoder\.layer\.(\d+)\.layer_scale(\d)\.lambda1", r"blocks.\1.ls\2.gamma"),
    (r"encoder\.layer\.(\d+)\.mlp\.weights_in\.", r"blocks.\1.mlp.w12."),
    (r"encoder\.layer\.(\d+)\.mlp\.(?:weights_out|down_proj)\.", r"blocks.\1.mlp.w3."),
    (r"encoder\.layer\.(\d+)\.", r"blocks.\1."),
    (r"layernorm\.", "norm."),
)


def _joined(state: State, parts: Sequence[str], whole: str) -> State:
    """Stack projections that are one weight elsewhere; where not all parts are there, they stay as they are."""
    joined = dict(state)
    for key in state:
        keys = [key.replace(f".{parts[0]}.", f".{part}.") for part in parts]
        if f".{parts[0]}." in key and all(one in state for one in keys):
            joined[key.replace(f".{parts[0]}.", f".{whole}.")] = torch.cat([joined.pop(one) for one in keys])
    return joined
