"""Replaying a network: what happens around it on a CPU, and on a GPU that results are those of the network itself."""

import pytest
import torch

from faircl.config import resolve
from faircl.engine import graphs
from faircl.engine.graphs import replayed
from faircl.engine.network import build_model, place
from faircl.methods.faircl import FairCL, FairCLConfig
from faircl.methods.finetune import FineTune, FineTuneConfig
from faircl.methods.plop import PLOP, PLOPConfig

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="records CUDA graphs: needs a GPU")


def network(*settings):
    config = resolve(
        {"data": "scenes", "model": "small", "method": "finetune", "train": {"batch": 2, "crop": 32}}, settings
    )
    model = build_model(config, pretrained=False)
    model.classifier.grow(4)
    return model.train(), config.train


def test_a_cpu_replays_nothing(silent):
    model, config = network()
    with replayed(model, FineTune(FineTuneConfig(), model), config, torch.device("cpu"), silent()):
        assert model.replay is None


@pytest.mark.parametrize("setting", ["train.graphs=false", "train.checkpointing=true"])
def test_graphs_are_left_out_where_they_cannot_be(setting, silent, monkeypatch):
    monkeypatch.setattr(graphs, "_record", lambda *_: pytest.fail("recorded"))
    model, _ = network()
    config = network()[1].model_copy(update={setting.split(".")[1].split("=")[0]: setting.endswith("true")})
    with replayed(model, FineTune(FineTuneConfig(), model), config, torch.device("cuda"), silent()):
        assert model.replay is None


def test_a_network_that_cannot_be_recorded_runs_as_it_is(silent, monkeypatch):
    def fails(*_):
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(graphs, "_record", fails)
    model, config = network()
    reporter = silent()
    with replayed(model, FineTune(FineTuneConfig(), model), config, torch.device("cuda"), reporter):
        assert model.replay is None
    (said,) = reporter.said
    assert "cannot be recorded" in said
    assert "operation not permitted when stream is capturing" in said


def test_a_recording_takes_the_place_of_the_network_in_training_alone():
    model, _ = network()
    image = torch.rand(2, 3, 32, 32)
    stages, _, embedding = model.embed((image - model.mean) / model.std, False)
    model.replay = lambda image: (stages, 2 * embedding)
    assert torch.equal(model(image).embedding, 2 * embedding)
    with torch.no_grad():
        assert not torch.equal(model(image).embedding, 2 * embedding)
    assert not torch.equal(model.eval()(image).embedding, 2 * embedding)


def test_methods_say_whether_they_read_stages():
    model, _ = network()
    assert not FineTune(FineTuneConfig(), model).uses_stages
    assert not FairCL(FairCLConfig(), model).uses_stages
    assert FairCL(FairCLConfig(embedding="backbone"), model).uses_stages
    assert PLOP(PLOPConfig(), model).uses_stages


@on_gpu
@pytest.mark.parametrize("uses_stages", [False, True])
def test_a_replayed_network_is_the_network_itself(uses_stages, silent):
    results = []
    for graphs_on in (False, True):
        torch.manual_seed(0)
        model, config = network(f"train.graphs={str(graphs_on).lower()}")
        place(model, torch.device("cuda"))
        method = FineTune(FineTuneConfig(), model)
        method.uses_stages = uses_stages
        image = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)).cuda()
        with replayed(model, method, config, torch.device("cuda"), silent()):
            assert (model.replay is not None) == graphs_on
            for _ in range(2):
                model.zero_grad()
                out = model(image)
                (out.logits.square().mean() + out.embedding.square().mean()).backward()
        results.append([out.logits, *out.stages, *(p.grad for p in model.parameters()), *model.buffers()])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
