"""Maps stay in channels_last from the image to the embedding, without copies to another layout."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from faircl.models.segformer import SegFormer, SegFormerConfig


class Copies(TorchDispatchMode):
    """Records maps that are copied to another memory layout."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.clone.default and args[0].stride() != out.stride():
            self.found.append(tuple(out.shape))
        return out


def test_segformer():
    torch.manual_seed(0)
    model = SegFormer(SegFormerConfig(variant="b0")).train().to(memory_format=torch.channels_last)
    image = torch.rand(2, 3, 64, 96).contiguous(memory_format=torch.channels_last)
    with Copies() as copies:
        stages, _ = model.features(image, False)
        embedding = model.decoder(stages)
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in (*stages, embedding))
    assert copies.found == []


def test_the_mode_sees_a_copy():
    with Copies() as copies:
        torch.rand(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    assert copies.found == [(1, 2, 3, 4)]


def test_who_listens_to_a_stage_hears_it():
    model, heard = SegFormer(SegFormerConfig(variant="b0", drop_path=0)).eval(), []
    image = torch.rand(1, 3, 64, 64)
    expected, _ = model.features(image, False)
    model.backbone.stages[2].register_forward_hook(lambda module, inputs, output: heard.append(output))
    stages, _ = model.features(image, False)
    assert len(heard) == 1
    assert all(torch.equal(*pair) for pair in zip(stages, expected, strict=True))
