"""The state of an optimiser through files: its layout is that of the parameters, as fused optimisers need it."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from faircl.engine.in_step_state import load_optimizer


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_the_state_has_the_layout_of_the_parameters(make):
    options = {"momentum": 0.9} if make is torch.optim.SGD else {}
    layers = [nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    before, after = (make(layer.parameters(), 0.1, **options) for layer in layers)
    image = torch.rand(2, 3, 8, 8)
    layers[0](image).square().mean().backward()
    before.step()
    saved = {
        number: {name: value.contiguous().clone() for name, value in entry.items() if value is not None}
        for number, entry in before.state_dict()["state"].items()
    }
    precision = SimpleNamespace(load_state_dict=lambda state: None)
    state = SimpleNamespace(optimizer=saved, scaler={})
    load_optimizer(after, SimpleNamespace(strategy=SimpleNamespace(precision=precision)), state)
    for parameter, entry in after.state.items():
        for name, value in entry.items():
            if value.shape == parameter.shape:
                assert value.stride() == parameter.stride(), name
    layers[1].load_state_dict(layers[0].state_dict())
    for layer, optimizer in zip(layers, (before, after), strict=True):
        optimizer.zero_grad()
        layer(image).square().mean().backward()
        optimizer.step()
    for one, other in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        assert torch.equal(one, other)
