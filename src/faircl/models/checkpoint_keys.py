r"""Conversion of state dict keys between libraries.

Each conversion is a table of regular expressions. The first expression that matches a key renames it; keys without a
match do not change. The origin of a file is recognised by keys that only files of that origin have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

State = dict[str, Tensor]
Table = Sequence[tuple[str, str | Callable[[re.Match[str]], str]]]


def rename_keys(state: State, table: Table) -> State:
    """Rename every key by the first matching pattern of a table."""
    compiled = [(re.compile(pattern), replacement) for pattern, replacement in table]

    def renamed(key: str) -> str:
        for pattern, replacement in compiled:
            if pattern.match(key):
                return pattern.sub(replacement, key, count=1)
        return key

    return {renamed(key): value for key, value in state.items()}


# ResNet and MobileNets: to torchvision's keys


def to_torchvision_keys(state: State) -> State:
    """Return the state of a ResNet or MobileNet with torchvision's keys, which timm's ResNets have already.

    torchvision's segmentation networks number the layers of MobileNetV3 without the ``features`` of its classifier.
    """
    if "backbone.16.0.weight" in state:
        return rename_keys(state, ((r"backbone\.(\d+)\.", r"backbone.features.\1."),))
    if any(re.match(r"(resnet\.)?embedder\.embedder\.", key) for key in state):
        return rename_keys(state, _HF_RESNET)
    if "blocks.0.0.conv_dw.weight" in state:
        return rename_keys(state, _TIMM_MOBILENET)
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

_MOBILENET_GROUP_STARTS = (1, 2, 4, 7, 11, 14, 17)
"""Index in torchvision's ``features`` of the first block of each of timm's seven groups."""
_MOBILENET_FIRST_BLOCK = {"conv_dw": "0.0", "bn1": "0.1", "conv_pw": "1", "bn2": "2"}
_MOBILENET_BLOCK = {"conv_pw": "0.0", "bn1": "0.1", "conv_dw": "1.0", "bn2": "1.1", "conv_pwl": "2", "bn3": "3"}


def _mobilenet_block(match: re.Match[str]) -> str:
    group, index, layer = int(match[1]), int(match[2]), match[3]
    names = _MOBILENET_FIRST_BLOCK if group == 0 else _MOBILENET_BLOCK
    if group >= len(_MOBILENET_GROUP_STARTS) or layer not in names:  # of another MobileNet
        return match[0]
    return f"features.{_MOBILENET_GROUP_STARTS[group] + index}.conv.{names[layer]}."


_TIMM_MOBILENET: Table = (
    (r"conv_stem\.", "features.0.0."),
    (r"bn1\.", "features.0.1."),
    (r"blocks\.(\d+)\.(\d+)\.(\w+)\.", _mobilenet_block),
    (r"conv_head\.", "features.18.0."),
    (r"bn2\.", "features.18.1."),
    (r"classifier\.(weight|bias)", r"classifier.1.\1"),
)


# SegFormer: encoder to transformers' current keys without "segformer.", decoder to those of MlpDecoder


def to_segformer_keys(state: State) -> State:
    """Return the state of a SegFormer with the keys ``stages.…`` of the encoder and ``decoder.…`` of the decoder.

    Supported are transformers' current keys, those of files on the Hugging Face hub (``encoder.block…``) and those of
    the first release (``block1…``).
    """
    state = {re.sub(r"^segformer\.", "", key): value for key, value in state.items()}
    if "patch_embed1.proj.weight" in state:
        state = _split_key_value(rename_keys(state, _MIT))
    state = rename_keys(rename_keys(state, _HUB_SEGFORMER), _HUB_SEGFORMER_BLOCK)
    # transformers has linear layers where MlpDecoder has 1×1 convolutions.
    projection_weight = re.compile(r"decoder\.projections\.\d+\.weight")
    return {k: v[:, :, None, None] if projection_weight.match(k) and v.ndim == 2 else v for k, v in state.items()}


def decoder_to_transformers_keys(state: State) -> State:
    """Return the state of an ``MlpDecoder`` with transformers' keys."""
    state = {k: v[:, :, 0, 0] if k.startswith("projections.") and v.ndim == 4 else v for k, v in state.items()}
    return rename_keys(state, _TRANSFORMERS_DECODER)


_TRANSFORMERS_DECODER: Table = (
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
_SEGFORMER_BLOCK = r"(stages\.\d+\.blocks\.\d+\.)"
_HUB_SEGFORMER_BLOCK: Table = (
    (_SEGFORMER_BLOCK + r"attention\.self\.query\.", r"\1attention.q_proj."),
    (_SEGFORMER_BLOCK + r"attention\.self\.key\.", r"\1attention.k_proj."),
    (_SEGFORMER_BLOCK + r"attention\.self\.value\.", r"\1attention.v_proj."),
    (_SEGFORMER_BLOCK + r"attention\.self\.sr\.", r"\1attention.sequence_reduction.sequence_reduction."),
    (_SEGFORMER_BLOCK + r"attention\.self\.layer_norm\.", r"\1attention.sequence_reduction.layer_norm."),
    (_SEGFORMER_BLOCK + r"attention\.output\.dense\.", r"\1attention.o_proj."),
    (_SEGFORMER_BLOCK + r"mlp\.dense1\.", r"\1mlp.fc1."),
    (_SEGFORMER_BLOCK + r"mlp\.dense2\.", r"\1mlp.fc2."),
    (_SEGFORMER_BLOCK + r"layer_norm_1\.", r"\1layernorm_before."),
    (_SEGFORMER_BLOCK + r"layer_norm_2\.", r"\1layernorm_after."),
)


def _mit_stage(replacement: str) -> Callable[[re.Match[str]], str]:
    """Return a replacement function that counts the stage, the first group of the match, from 0 instead of 1."""
    return lambda m: f"stages.{int(m[1]) - 1}." + m.expand(replacement)


_MIT_BLOCK = r"block(\d)\.(\d+)\."
_MIT: Table = (
    (r"patch_embed(\d)\.proj\.", _mit_stage("patch_embeddings.proj.")),
    (r"patch_embed(\d)\.norm\.", _mit_stage("patch_embeddings.layer_norm.")),
    (r"norm(\d)\.", _mit_stage("layer_norm.")),
    (_MIT_BLOCK + r"norm1\.", _mit_stage(r"blocks.\2.layernorm_before.")),
    (_MIT_BLOCK + r"norm2\.", _mit_stage(r"blocks.\2.layernorm_after.")),
    (_MIT_BLOCK + r"attn\.q\.", _mit_stage(r"blocks.\2.attention.q_proj.")),
    (_MIT_BLOCK + r"attn\.kv\.", _mit_stage(r"blocks.\2.attention.kv_proj.")),
    (_MIT_BLOCK + r"attn\.proj\.", _mit_stage(r"blocks.\2.attention.o_proj.")),
    (_MIT_BLOCK + r"attn\.sr\.", _mit_stage(r"blocks.\2.attention.sequence_reduction.sequence_reduction.")),
    (_MIT_BLOCK + r"attn\.norm\.", _mit_stage(r"blocks.\2.attention.sequence_reduction.layer_norm.")),
    (_MIT_BLOCK + r"mlp\.", _mit_stage(r"blocks.\2.mlp.")),
)


def _split_key_value(state: State) -> State:
    """Split the concatenated weights of keys and values."""
    split: State = {}
    for key, value in state.items():
        if ".kv_proj." in key:
            split[key.replace(".kv_proj.", ".k_proj.")], split[key.replace(".kv_proj.", ".v_proj.")] = value.chunk(2)
        else:
            split[key] = value
    return split


# Vision transformers: to timm's keys


def to_timm_vit_keys(state: State) -> State:
    """Return the state of a DINOv2 of transformers with the keys of its first release, which timm can read.

    Other states are returned unchanged.
    """
    state = {re.sub(r"^dinov2(_with_registers)?\.", "", key): value for key, value in state.items()}
    if "embeddings.patch_embeddings.projection.weight" not in state:
        return state
    state = rename_keys(rename_keys(state, _HF_DINO_ATTENTION), _HF_DINO)
    return _concatenated(_concatenated(state, ("q_proj", "k_proj", "v_proj"), "qkv"), ("gate_proj", "up_proj"), "w12")


_DINO_BLOCK = r"(encoder\.layer\.\d+\.)"
_HF_DINO_ATTENTION: Table = (
    (_DINO_BLOCK + r"attention\.attention\.query\.", r"\1attention.q_proj."),
    (_DINO_BLOCK + r"attention\.attention\.key\.", r"\1attention.k_proj."),
    (_DINO_BLOCK + r"attention\.attention\.value\.", r"\1attention.v_proj."),
    (_DINO_BLOCK + r"attention\.output\.dense\.", r"\1attention.o_proj."),
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


def _concatenated(state: State, sources: Sequence[str], target: str) -> State:
    """Concatenate the weights of several projections into one; nothing changes where one of them is missing."""
    result = dict(state)
    for key in state:
        keys = [key.replace(f".{sources[0]}.", f".{source}.") for source in sources]
        if f".{sources[0]}." in key and all(k in state for k in keys):
            result[key.replace(f".{sources[0]}.", f".{target}.")] = torch.cat([result.pop(k) for k in keys])
    return result
