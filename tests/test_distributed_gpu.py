"""The GPU's side of several processes, as far as one GPU shows it: a group of one process over NCCL."""

import pytest
import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from processes import environment, meeting_place

from faircl.config.schema import TrainConfig
from faircl.distributed import all_gather_objects, destroy_process_group
from faircl.engine.network import convert_sync_batch_norm, use_sync_batch_norm
from faircl.engine.runtime import _NO_BUFFER_SYNC, FullPrecisionLogits
from faircl.models.small import Small, SmallConfig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def group(monkeypatch):
    store = meeting_place()
    for name, value in environment(0, 1, store.port).items():
        monkeypatch.setenv(name, value)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    yield
    destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("sync", [False, True])
def test_ddp_over_both_backends(sync):
    for device in ("cpu", "cuda"):
        value = torch.ones(3, device=device)
        dist.all_reduce(value)
        dist.broadcast(value, 0)
        assert value.tolist() == [1, 1, 1]
    assert all_gather_objects("a") == ["a"]
    torch.manual_seed(0)
    model = Small(SmallConfig(width=8, embedding=8))
    model.classifier.grow(3)
    if sync:
        assert use_sync_batch_norm(TrainConfig(sync_norm="always"), torch.device("cuda"))
        model = convert_sync_batch_norm(model)
    strategy = DDPStrategy(gradient_as_bucket_view=True, **_NO_BUFFER_SYNC)
    plugins = [FullPrecisionLogits("bf16-mixed", "cuda"), TorchElasticEnvironment()]
    fabric = Fabric(accelerator="cuda", devices=1, strategy=strategy, plugins=plugins)
    fabric.launch()
    for _ in range(2):  # a network is wrapped anew at every step
        network, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 0.1))
        for micro in (True, False):
            with fabric.no_backward_sync(network, enabled=micro):
                out = network(torch.rand(2, 3, 32, 32, device="cuda"))
                fabric.backward(out.logits.square().mean())
        optimizer.step()
        optimizer.zero_grad()
        assert out.logits.dtype == torch.float32
        assert out.embedding.dtype == torch.bfloat16
    assert all(bool(value.isfinite().all()) for value in model.state_dict().values())
