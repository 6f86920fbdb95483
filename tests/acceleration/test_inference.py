"""The door of prediction: the network's own results, whatever happens to the network in between."""

import copy
import pickle
import threading

import pytest
import torch
from network_tester import images, lively

from faircl.acceleration.inference import InferenceNetwork
from faircl.acceleration.replays import EAGER

CONFIG = {"name": "small", "width": 8, "dropout": 0.5}


@pytest.fixture
def network():
    return lively(CONFIG, 3, 2)


@torch.no_grad()
def expected(network, batch):
    modes = [module.training for module in network.modules()]
    output = network.eval()(batch)
    for module, mode in zip(network.modules(), modes, strict=True):
        module.training = mode
    return output


def same(found, exact):
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-4 * float(exact.abs().max()))
    assert not found.requires_grad


@pytest.mark.parametrize("training", [False, True])
def test_logits_and_embedding_and_the_mode_of_every_module(network, training):
    network.train(training).backbone.eval()
    modes = [module.training for module in network.modules()]
    fast, batch = InferenceNetwork(network, prepare=True), images()
    logits, embedding = fast(batch, embedding=True)
    same(logits, expected(network, batch).logits)
    same(embedding, expected(network, batch).embedding)
    assert len(fast(batch)) == 1
    assert [module.training for module in network.modules()] == modes


def test_on_a_cpu_the_network_runs_as_it_is(network, monkeypatch):
    from faircl.acceleration import inference

    monkeypatch.setattr(inference, "prepared", None)  # is not called
    fast, batch = InferenceNetwork(network), images()
    assert torch.equal(fast(batch)[0], expected(network, batch).logits)


def test_the_copy_is_made_once(network, monkeypatch):
    from faircl.acceleration import inference

    made, prepare = [], inference.prepared
    monkeypatch.setattr(inference, "prepared", lambda *given: made.append(given[1]) or prepare(*given))
    fast = InferenceNetwork(network, prepare=True)
    assert made == []  # not before the first batch
    for half in (False, False, True, False, True):
        fast(images(), half)
    assert made == [False, True]


def move(network):
    for parameter in network.parameters():
        parameter.data = 1.5 * parameter.data


def change(network):
    with torch.no_grad():
        network.backbone.stem[0].weight.mul_(2)


def replace(network):
    network.backbone.stem[0] = torch.nn.Conv2d(3, 8, 3, 2, padding=1, bias=False)


def statistics(network):
    network.backbone.stem[1].running_mean.add_(1)


@pytest.mark.parametrize(
    "edit", [move, change, replace, statistics, lambda network: network.classifier.grow(2)],
    ids=["moved", "changed", "replaced", "statistics", "grown"],
)  # fmt: skip
def test_a_network_that_changes_is_followed(network, edit):
    fast, batch = InferenceNetwork(network, prepare=True), images()
    (before,) = fast(batch)
    edit(network)
    (after,) = fast(batch)
    same(after, expected(network, batch).logits)
    assert after.shape != before.shape or (after - before).abs().max() > 1e-2


def test_hooks_are_called_with_the_networks_own_modules(network):
    fast, batch, seen = InferenceNetwork(network.train(), prepare=True), images(), []
    fast(batch)
    hook = network.backbone.stem.register_forward_hook(lambda module, *_: seen.append(module))
    same(fast(batch)[0], expected(network, batch).logits)
    assert network.training
    assert seen[0] is network.backbone.stem
    hook.remove()
    seen.clear()
    fast(batch)
    assert seen == []


@torch.no_grad()
def test_a_forward_that_is_set_on_a_module_is_called(network):
    fast, batch, seen = InferenceNetwork(network.eval(), prepare=True), images(), []
    stem = network.backbone.stem
    before, plain = fast(batch)[0], stem.forward

    def doubled(image):
        seen.append(stem[0].weight)
        return 2 * plain(image)

    stem.forward = doubled
    found = fast(batch)[0]
    assert seen.pop() is stem[0].weight
    assert seen == []
    same(found, network(batch).logits)
    del stem.forward
    same(fast(batch)[0], before)


def test_nothing_is_recorded_after_the_memory_was_freed(network, monkeypatch):
    made = []
    monkeypatch.setattr("faircl.acceleration.inference._recorder", made.append)  # no recorder, as on a CPU
    fast, batch = InferenceNetwork(network, prepare=True), images()
    fast(batch)
    assert len(made) == 1
    fast.drop()
    fast(batch, half=True)
    with torch.no_grad():
        network.classifier.heads[0].bias.add_(1)
    fast(batch)  # of a new copy
    assert len(made) == 1


def test_the_recordings_of_both_precisions_are_freed(network, monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    fast, batch = InferenceNetwork(network, prepare=True), images()
    assert not fast.drop()
    exact = {half: fast(batch, half)[0] for half in (False, True)}
    for run in fast._passes.values():
        run.record, run._given_up = lambda forward, given: forward, False
    for half in (False, True):
        for _ in range(EAGER + 1):
            fast(batch, half)
    assert all(run._recorded for run in fast._passes.values())
    assert fast.drop()
    assert len(waited) == 2
    assert not fast.drop()
    for half in (False, True):
        for _ in range(EAGER + 1):
            assert torch.equal(fast(batch, half)[0], exact[half])
    assert not any(run._recorded for run in fast._passes.values())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_it_can_be_copied_and_sent_to_another_process(network, copied):
    fast, batch = InferenceNetwork(network, prepare=True), images()
    logits = fast(batch)[0]
    other = copied(fast)
    assert torch.equal(other(batch)[0], logits)
    assert other.prepares
    assert other.network is not network


def test_a_network_that_cannot_be_copied_runs_as_it_is(network):
    network.guard = threading.Lock()
    fast, batch = InferenceNetwork(network, prepare=True), images()
    for _ in range(2):
        assert torch.equal(fast(batch)[0], expected(network, batch).logits)
