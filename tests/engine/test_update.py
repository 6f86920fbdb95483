"""One update outside of a run, compared with plain torch."""

import pytest
import torch

from faircl.config.schema import OptimConfig, TrainConfig
from faircl.engine.optim import make_optimizer, make_schedule
from faircl.engine.runtime import make_fabric
from faircl.engine.update import Updater, forward_without_grad
from faircl.loading.batch import Batch
from faircl.losses import upsampled_cross_entropy
from faircl.methods.finetune import FineTune, FineTuneConfig
from faircl.methods.needs import Needs
from faircl.models.small import Small, SmallConfig


def network():
    torch.manual_seed(0)
    model = Small(SmallConfig(width=8, embedding=8, norm="group"))
    torch.nn.init.normal_(model.classifier.grow(3).weight)
    return model


def batches(count):
    gen = torch.Generator().manual_seed(1)
    return [
        Batch(
            torch.rand((2, 3, 16, 16), generator=gen),
            torch.randint(3, (2, 16, 16), generator=gen),
            None,
            2 * k + torch.arange(2),
        )
        for k in range(count)
    ]


def updater(model, precision="fp32", method=None, teacher=None, **settings):
    config = OptimConfig(name="sgd", lr=0.1, momentum=0, weight_decay=0, schedule="constant", **settings)
    fabric = make_fabric(TrainConfig(precision=precision, accelerator="cpu"))
    wrapped, optimizer = fabric.setup(model, make_optimizer(config, model, 0))
    schedule = make_schedule(config, optimizer, 10)
    method = method or FineTune(FineTuneConfig(), model)
    return Updater(fabric, method, wrapped, optimizer, schedule, config, teacher)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_update_by_hand(accumulate):
    model, plain = network(), network()
    given = batches(accumulate)
    found = updater(model, accumulate=accumulate).update(given, 0, 1).terms()
    values = [upsampled_cross_entropy(plain(batch.image).logits, batch.labels) for batch in given]
    loss = sum(values) / accumulate
    loss.backward()
    assert found == {"seg": pytest.approx(loss.item(), abs=1e-6)}
    for (name, moved), start in zip(model.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(moved, start - 0.1 * start.grad, atol=1e-6, rtol=1e-5, msg=name)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_update_takes_its_batches_and_no_more():
    stream = iter(batches(5))
    two = updater(network(), accumulate=2)
    for iteration in (1, 2):
        two.update(stream, 0, iteration)
    assert [batch.draws.tolist() for batch in stream] == [[8, 9]]


def test_mixed_precision_gives_methods_full_precision_logits():
    seen = {}

    class Watching(FineTune):
        needs = Needs(stages=True)

        def losses(self, batch, out, old, targets):
            seen["new"], seen["old"] = out, old
            return super().losses(batch, out, old, targets)

    model, teacher = network(), network().eval()
    updater(model, "bf16", Watching(FineTuneConfig(), model), teacher).update(batches(1), 0, 1)
    for out in seen.values():
        assert out.logits.dtype == torch.float32
        assert {part.dtype for part in (out.embedding, *out.stages)} == {torch.bfloat16}
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_methods_see_stages_only_if_they_declare_them():
    seen = []

    class Watching(FineTune):
        def losses(self, batch, out, old, targets):
            seen.extend([out.stages, old.stages])
            return super().losses(batch, out, old, targets)

    model, teacher = network(), network().eval()
    updater(model, "fp32", Watching(FineTuneConfig(), model), teacher).update(batches(1), 0, 1)
    assert seen == [(), ()]


def test_without_gradient_is_the_network_itself():
    model = network().eval()
    image = batches(1)[0].image
    out = forward_without_grad(make_fabric(TrainConfig(accelerator="cpu")), model, image)
    assert not out.logits.requires_grad
    assert torch.equal(out.logits, model(image).logits)
