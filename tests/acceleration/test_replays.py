"""Which batches are recorded and replayed, by a fake recorder on a CPU; on a GPU equality with the eager network."""

import threading
import time

import numpy as np
import pytest
import torch
from network_tester import images, lively

from faircl.acceleration import replays as module
from faircl.acceleration.inference import InferenceNetwork
from faircl.acceleration.replays import EAGER, MAX_SHAPES, CudaRecorder, Replays

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="records CUDA graphs: needs a GPU")


class Fake:
    """A recorder whose replays write to one tensor, as those of a graph do; says what it recorded and replayed."""

    def __init__(self, fails=(), seconds=0.0):
        self.recorded, self.replayed, self.fails, self.seconds = [], [], fails, seconds

    def __call__(self, forward, batch):
        self.recorded.append(len(batch))
        if len(batch) in self.fails:
            return None
        outputs = tuple(output.clone() for output in forward(batch))

        def replay(batch):
            self.replayed.append(len(batch))
            for output, value in zip(outputs, forward(batch), strict=True):
                output.copy_(value)
            time.sleep(self.seconds)
            return outputs

        return replay


def double(batch):
    return 2 * batch, batch + 1


def batch(count, value=1.0):
    return torch.full((count, 3, 4, 4), value)


def test_a_shape_that_comes_again_is_recorded_once_and_replayed():
    fake = Fake()
    run = Replays(double, fake)
    for k in range(EAGER):
        run(batch(2, k), 1)
    assert fake.recorded == []
    for k in range(4):
        (found,) = run(batch(2, k), 1)
        assert torch.equal(found, 2 * batch(2, k))
    assert fake.recorded == [2]
    assert fake.replayed == [2] * 4
    run(batch(1), 1)  # the last, smaller batch
    assert fake.recorded == [2]
    assert len(fake.replayed) == 4


def test_results_are_not_overwritten_by_later_batches():
    run = Replays(double, Fake())
    found = [run(batch(2, k), 2) for k in range(8)]
    for k, (doubled, more) in enumerate(found):
        assert torch.equal(doubled, batch(2, 2 * k))
        assert torch.equal(more, batch(2, k + 1))


def test_shapes_that_take_turns_have_recordings_of_their_own():
    fake = Fake()
    run = Replays(double, fake)
    for k in range(5):
        for count in (3, 2):
            assert torch.equal(run(batch(count, k), 1)[0], batch(count, 2 * k))
    assert fake.recorded == [3, 2]
    assert fake.replayed == [3, 2] * (5 - EAGER)


def test_only_a_few_shapes_are_recorded():
    fake = Fake()
    run = Replays(double, fake)
    for _ in range(EAGER + 2):
        for count in range(1, MAX_SHAPES + 3):
            assert torch.equal(run(batch(count), 1)[0], batch(count, 2))
    assert fake.recorded == list(range(1, MAX_SHAPES + 1))


def test_a_large_batch_is_computed(monkeypatch):
    monkeypatch.setattr(module, "MAX_PIXELS", 2 * 4 * 4)
    fake = Fake()
    run = Replays(double, fake)
    for _ in range(EAGER + 2):
        run(batch(2), 1)
        run(batch(3), 1)
    assert fake.recorded == [2]


def test_after_a_failed_recording_nothing_more_is_recorded():
    fake = Fake(fails=[3])
    run = Replays(double, fake)
    for count in (2, 3, 4, 2):
        for k in range(EAGER + 2):
            assert torch.equal(run(batch(count, k), 1)[0], batch(count, 2 * k))
    assert fake.recorded == [2, 3]
    assert fake.replayed == [2] * (2 + EAGER + 2)


def test_another_stream_computes(monkeypatch):
    fake, stream = Fake(), [1]
    monkeypatch.setattr(module, "_current_stream", lambda images: stream[0])
    run = Replays(double, fake)
    for _ in range(EAGER + 1):
        run(batch(2), 1)
    stream[0] = 2
    for _ in range(EAGER + 1):
        run(batch(2), 1)
        run(batch(3), 1)
    assert (fake.recorded, fake.replayed) == ([2], [2])


def test_freed_recordings_are_computed_from_then_on(monkeypatch):
    freed = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: freed.append("waited"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append("freed"))
    fake = Fake()
    run = Replays(double, fake)
    assert not run.drop()  # there is nothing to free
    run = Replays(double, fake)
    for _ in range(EAGER + 1):
        run(batch(2), 1)
    assert run.drop()
    assert freed == ["waited", "freed"]
    assert not run.drop()
    for _ in range(EAGER + 1):
        assert torch.equal(run(batch(2), 1)[0], batch(2, 2))
        run(batch(3), 1)
    assert fake.recorded == [2]


def test_a_pass_that_lacks_memory_is_not_tried_again(monkeypatch):
    """Whoever called it frees all recordings, also those of the other precision, and begins anew."""
    calls = []

    def starved(images):
        calls.append(len(images))
        if len(images) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return double(images)

    run = Replays(starved, Fake())
    for _ in range(EAGER + 1):
        run(batch(2), 1)
    with pytest.raises(torch.OutOfMemoryError):
        run(batch(3), 1)
    assert calls.count(3) == 1
    assert run._recorded


def test_threads_do_not_mix_their_batches():
    run, wrong = Replays(double, Fake(seconds=0.005)), []

    def work(value):
        for _ in range(10):
            if not torch.equal(run(batch(2, value), 1)[0], batch(2, 2 * value)):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.fixture
def graphs(monkeypatch):
    """Fake what records CUDA graphs; return what was asked of it."""
    asked = []
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: f"pool {len(asked)}")
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: "stream")
    monkeypatch.setattr(module, "recording_problem", lambda forward, fixed: "")

    def record(forward, fixed, **where):
        asked.append((where["pool"], where["stream"], torch.backends.cudnn.benchmark))
        return lambda given: forward(given)

    monkeypatch.setattr(module, "record_forward", record)
    return asked


def test_recordings_share_a_pool_and_a_stream_and_read_a_copy_of_the_images(graphs):
    recorder, first = CudaRecorder(torch.nn.Identity()), batch(2)
    replays = [recorder(double, one) for one in (first, batch(3))]
    assert graphs == [("pool 0", "stream", True)] * 2
    assert not torch.backends.cudnn.benchmark
    assert torch.equal(replays[0](batch(2, 5.0))[0], batch(2, 10))
    assert torch.equal(first, batch(2))


def test_a_recording_keeps_what_modules_remember_of_a_shape(graphs):
    network = torch.nn.Identity()
    network.table = torch.zeros(3)
    kept = CudaRecorder(network)(double, batch(2))
    pointer, network.table = network.table.data_ptr(), None
    (values, _), *_ = kept.args[2]
    assert values["table"].data_ptr() == pointer


@pytest.mark.parametrize("where", ["recording_problem", "record_forward"])
def test_a_recording_that_fails_is_no_error(where, graphs, monkeypatch):
    def fails(*_, **__):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(module, where, fails)
    assert CudaRecorder(torch.nn.Identity())(double, batch(2)) is None
    monkeypatch.setattr(module, "recording_problem", lambda forward, fixed: "waits for the host")
    assert CudaRecorder(torch.nn.Identity())(double, batch(2)) is None
    assert not torch.backends.cudnn.benchmark


def test_images_that_cannot_be_copied_are_no_error(graphs):
    class Full(torch.Tensor):
        def clone(self):
            raise torch.OutOfMemoryError("out of memory")

    assert CudaRecorder(torch.nn.Identity())(double, batch(2).as_subclass(Full)) is None


@pytest.mark.parametrize("wrong", [lambda output: 1.1 * output, lambda output: output * torch.nan])
def test_a_recording_with_other_results_is_not_used(wrong, graphs, monkeypatch):
    def record(forward, fixed, **where):
        return lambda given: (forward(given)[0], wrong(forward(given)[1]))

    monkeypatch.setattr(module, "record_forward", record)
    assert CudaRecorder(torch.nn.Identity())(double, batch(2)) is None


def test_deterministic_torch_is_not_timed(graphs, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    CudaRecorder(torch.nn.Identity())(double, batch(2))
    assert [benchmark for *_, benchmark in graphs] == [False]


def test_what_is_recorded_in_inference_mode_is_replayed_outside(graphs):
    network = lively({"name": "small", "width": 8}, 3, 2)
    fast, given = InferenceNetwork(network, prepare=True), [images(seed=k) for k in range(EAGER + 3)]
    exact = [fast(one)[0] for one in given]
    (run,) = fast._passes.values()
    run.record, run._given_up = CudaRecorder(network), False
    with torch.inference_mode():
        found = [fast(one.clone())[0] for one in given[:-1]]
    found.append(fast(given[-1])[0])
    assert len(graphs) == 1
    for one, other in zip(found, exact, strict=True):
        assert torch.equal(one, other)


# ---- on a GPU


@on_gpu
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "config",
    [
        {"name": "small", "width": 8},
        {"name": "deeplabv3", "backbone": "resnet50", "stride": 8},
        {"name": "segformer", "variant": "b0"},
    ],
    ids=lambda config: config["name"],
)
def test_replays_are_the_network(config, half, monkeypatch):
    """Batches of two shapes take turns, and their results are read when all have been started."""
    from faircl.engine.network import move_to_device

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    network = move_to_device(lively(config, 3, 2), torch.device("cuda")).requires_grad_(False)
    given = [images(2 + k % 2, 96, 128, seed=k).cuda() for k in range(12)]
    fast, found = InferenceNetwork(network), []
    for one in given:
        found.append(fast(one, half, embedding=True))
        found.append(fast(one.flip(-1), half))
    (run,) = fast._passes.values()
    assert len(run._recorded) == 2
    for one, (logits, embedding), (mirrored,) in zip(given, found[::2], found[1::2], strict=True):
        with torch.no_grad(), torch.autocast("cuda", torch.float16, enabled=half):
            expected, opposite = network(one), network(one.flip(-1)).logits
        for result, exact in ((logits, expected.logits), (embedding, expected.embedding), (mirrored, opposite)):
            error = (result.double() - exact.double()).norm() / exact.double().norm()
            assert error < (0.1 if half else 0.01)
        assert (logits.argmax(1) == expected.logits.argmax(1)).float().mean() > (0.97 if half else 0.995)


@on_gpu
def test_a_prediction_has_several_batches_on_their_way(tiny_run):
    import faircl

    random = np.random.default_rng(0)
    photos = [random.integers(0, 256, (64 + 32 * (k // 6 % 2), 96, 3), np.uint8) for k in range(60)]
    predictor = faircl.load(tiny_run.path, device="cuda")
    found = [one.mask for one in predictor.predict_many(photos, batch=2)]
    (run,) = predictor.inference._outputs._passes.values()
    assert len(run._recorded) == 2
    on_cpu = faircl.load(tiny_run.path, device="cpu")
    for photo, mask in zip(photos, found, strict=True):
        assert (on_cpu.predict(photo).mask == mask).mean() > 0.99
