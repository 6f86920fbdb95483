"""Compiled blocks: equal results and gradients, complete cleanup, and a note if compilation fails."""

import pytest
import torch
from grids import grid
from torch import nn

from faircl.acceleration import torch_compile as module
from faircl.acceleration.torch_compile import compiled
from faircl.config.run import resolve
from faircl.engine.network import build_model
from faircl.engine.runtime import make_fabric
from faircl.errors import UserError
from faircl.methods.finetune import FineTune, FineTuneConfig
from faircl.methods.sats import SATS, SATSConfig

SEGFORMER = "{name: segformer, variant: b0}"
STILL = "{name: segformer, variant: b0, drop_path: 0}"
NETWORKS = {"small": 2, SEGFORMER: 5, STILL: 4, "{name: deeplabv3, backbone: resnet50}": 8}
"""Networks, and their blocks that differ: the first of a SegFormer is the only one without stochastic depth."""


def network(*settings, model="small"):
    config = resolve(
        {"data": "scenes", "method": "finetune", "train": {"batch": 2, "crop": 64, "compile": True}},
        [f"model={model}", "train.accelerator=cpu", *settings],
    )
    made = build_model(config, pretrained=False)
    made.classifier.grow(4)
    return made.train(), config, make_fabric(config.train)


@pytest.fixture
def backend(monkeypatch):
    """A backend that counts compilations and runs graphs uncompiled, without a C++ compiler."""
    made = []

    def count(graph, inputs):
        made.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    monkeypatch.setattr(module, "BACKEND", count)
    torch._dynamo.reset()
    yield made
    torch._dynamo.reset()


def pass_through(model, image):
    """Return embedding and gradients of a pass, both from the same random numbers."""
    torch.manual_seed(0)
    embedding = model(image).embedding
    wanted = [p for p in model.backbone.parameters() if p.requires_grad]
    return embedding.detach(), torch.autograd.grad(embedding.square().sum(), wanted, allow_unused=True)


@grid(("name", "count"), NETWORKS.items())
def test_blocks_that_do_the_same_share_a_compilation(name, count, backend, silent):
    model, config, fabric = network(model=name)
    with compiled(model, FineTune(FineTuneConfig(), model), config, fabric, silent()):
        assert len(backend) == count
        model.backbone.requires_grad_(False)  # as methods do at later steps; not all of it is compiled anew
        model(torch.rand(2, 3, 64, 64))
        assert len(backend) <= 2 * count


@grid("name", [name for name in NETWORKS if name != SEGFORMER])  # which draws random numbers
def test_compiled_blocks_compute_what_the_network_does(name, backend, silent):
    model, config, fabric = network("train.precision=fp64", "train.frozen_norm=always", model=name)
    torch.set_default_dtype(torch.float64)
    try:
        model.double()
        image = torch.rand(2, 3, 64, 64)
        expected, gradients = pass_through(model, image)
        with compiled(model, FineTune(FineTuneConfig(), model), config, fabric, silent()):
            tried = len(backend)
            found, own = pass_through(model, image)
            assert 0 < tried == len(backend)  # all of it was compiled before the first update
        after, _ = pass_through(model, image)
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(after, expected, rtol=1e-9, atol=1e-9)
    for mine, theirs in zip(own, gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-7)


@grid("name", ["small", SEGFORMER])  # with running statistics, and with random numbers
def test_compiling_leaves_no_trace(name, backend, silent):
    model, config, fabric = network(model=name)
    buffers = [buffer.clone() for buffer in model.buffers()]
    number = torch.get_rng_state()
    with compiled(model, FineTune(FineTuneConfig(), model), config, fabric, silent()):
        assert all(block._compiled_call_impl is not None for block in model.blocks())
    assert backend
    assert all(torch.equal(*pair) for pair in zip(buffers, model.buffers(), strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(number, torch.get_rng_state())
    assert all(block._compiled_call_impl is None for block in model.blocks())


def test_a_network_that_cannot_be_compiled_runs_as_it_is(monkeypatch, silent):
    def fails(graph, inputs):
        raise RuntimeError("no compiler\nof C++ found")

    monkeypatch.setattr(module, "BACKEND", fails)
    torch._dynamo.reset()
    model, config, fabric = network()
    reporter = silent()
    with compiled(model, FineTune(FineTuneConfig(), model), config, fabric, reporter):
        model(torch.rand(2, 3, 64, 64)).embedding.sum().backward()
    (said,) = reporter.said
    assert "cannot be compiled here" in said
    assert "no compiler of C++ found" in said


def test_methods_that_look_into_blocks_do_so(backend, silent):
    model, config, fabric = network(model="{name: segformer, variant: b0}")
    reporter = silent()
    with compiled(model, SATS(SATSConfig(), model), config, fabric, reporter):
        model(torch.rand(2, 3, 64, 64), attentions=True)
    plain, config, fabric = network()
    hook = plain.backbone.register_forward_hook(lambda *_: None)
    with compiled(plain, FineTune(FineTuneConfig(), plain), config, fabric, reporter):
        plain(torch.rand(2, 3, 64, 64))
    hook.remove()
    found = [said.partition("not compiled: ")[2] for said in reporter.said]
    assert found == [
        "method 'sats' reads attentions or has hooks in them",
        "method 'finetune' reads attentions or has hooks in them",
    ]
    norms = nn.SyncBatchNorm.convert_sync_batchnorm(network()[0])
    with compiled(norms, FineTune(FineTuneConfig(), norms), config, fabric, reporter):
        assert all(block._compiled_call_impl is None for block in norms.blocks())
    assert "BatchNorm synchronises with other processes" in reporter.said[-1]
    assert not backend


def test_nothing_is_compiled_unless_asked_for(backend, silent):
    model, config, fabric = network("train.compile=false")
    with compiled(model, FineTune(FineTuneConfig(), model), config, fabric, silent()):
        model(torch.rand(2, 3, 64, 64))
    assert not backend


def test_what_cannot_be_compiled_is_said_before_anything_is_built(monkeypatch):
    with pytest.raises(UserError, match="compile and checkpointing both run the backbone's blocks"):
        network("train.checkpointing=true")
    from faircl.models.small import Small

    monkeypatch.setattr(Small, "blocks", lambda self: iter(()))
    with pytest.raises(UserError, match="network 'small' has no blocks to compile; leave it unset"):
        network()


def test_a_copy_of_a_compiled_network_is_plain(backend, silent):
    import copy

    model, config, fabric = network()
    with compiled(model, FineTune(FineTuneConfig(), model), config, fabric, silent()):
        copied = copy.deepcopy(model)
    assert all(isinstance(block, nn.Module) and block._compiled_call_impl is None for block in copied.blocks())
