"""``bench_loss``: times of three implementations, errors against float64, the roofline."""

import pytest
import torch
import torch.nn.functional as F

from faircl.bench import loss as bench
from faircl.bench import roofline as bench_roofline
from faircl.bench import timing as bench_timing
from faircl.bench.loss import BASELINE, BY_IMAGE, FUSED, LOSSES, LossCost, LossOptions, bench_loss, reference
from faircl.bench.plots import write_loss_costs
from faircl.bench.problem_size import ProblemSize, random_labels, random_logits, size_grid
from faircl.bench.roofline import DeviceSpeed, roofline
from faircl.bench.timing import Stopwatch, Timed, measure
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.losses.cross_entropy import upsampled_cross_entropy

CPU = torch.device("cpu")
TINY = ProblemSize(classes=5, size=12, stride=4, batch=2)
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has memory and a roofline")


def timed(*sizes, silent, **options):
    return bench_loss(sizes or (TINY,), LossOptions(**{"rounds": 1, **options}), silent())[0]


@on_cpu
def test_rows_of_every_loss(silent):
    rows = timed(TINY, ProblemSize(3, 8, 8, 1), silent=silent)
    assert [row.loss for row in rows] == [BASELINE, BY_IMAGE, FUSED] * 2
    assert [(row.classes, row.size, row.stride, row.batch) for row in rows[2:4]] == [(5, 12, 4, 2), (3, 8, 8, 1)]
    for row in rows:
        assert row.milliseconds == pytest.approx(row.forward_milliseconds + row.backward_milliseconds)
        assert row.spread == (row.milliseconds, row.milliseconds)
        assert row.repeatable is True
        assert (row.extra_gib, row.roofline_ms, row.roofline_share, row.note) == (None, None, None, "")
        peer = rows[0] if row.classes == 5 else rows[3]
        assert row.ratio == pytest.approx(peer.milliseconds / row.milliseconds)
    assert rows[0].ratio == 1


@pytest.mark.parametrize(("precision", "rounding"), [("bf16", 2**-8), ("fp16", 2**-11), ("fp32", 2**-24)])
def test_errors_are_those_of_rounding(precision, rounding, silent):
    for row in timed(precision=precision, silent=silent):
        assert row.loss_error < 1e-6
        assert row.gradient_error_fp32 < 2e-6
        assert row.gradient_error < max(rounding, 2e-6)
        if precision != "fp32":
            assert row.gradient_error > 20 * row.gradient_error_fp32


def test_fp16_keeps_the_gradients_of_large_batches(silent):
    """Without scaling, gradients of a mean over 2^17 pixels would underflow in float16."""
    row = timed(ProblemSize(4, 256, 2, 2), precision="fp16", silent=silent)[0]
    assert row.gradient_error < 1e-3


def test_without_comparison(silent):
    for row in timed(exact=False, silent=silent):
        assert (row.loss_error, row.gradient_error, row.gradient_error_fp32) == (None, None, None)
        assert row.repeatable is True


def test_a_wrong_loss_has_large_errors(monkeypatch, silent):
    draw = torch.Generator().manual_seed(0)
    wrong = {**LOSSES, FUSED: lambda z, y: 1.5 * upsampled_cross_entropy(z, y) + 0 * z.sum()}
    changing = {
        **wrong,
        BY_IMAGE: lambda z, y: bench.interpolated_cross_entropy(z + torch.randn(z.shape, generator=draw).to(z), y),
    }
    monkeypatch.setattr(bench, "LOSSES", changing)
    right, noisy, fused = timed(precision="fp32", silent=silent)
    assert right.gradient_error < 1e-6
    assert fused.gradient_error == fused.gradient_error_fp32 == pytest.approx(0.5, rel=1e-4)
    assert fused.loss_error > 0.5
    assert fused.repeatable is True
    assert noisy.repeatable is False


def test_the_reference_is_plain_cross_entropy():
    logits, labels = random_logits(TINY, torch.float64, CPU).requires_grad_(), random_labels(TINY, CPU)
    large = F.interpolate(logits, (12, 12), mode="bilinear", align_corners=False)
    loss = F.cross_entropy(large, labels, ignore_index=IGNORE)
    value, gradient = reference(logits, labels)
    assert value == pytest.approx(loss.item(), abs=1e-12)
    torch.testing.assert_close(gradient, torch.autograd.grad(loss, logits)[0], rtol=0, atol=1e-12)


def test_a_loss_without_room_is_a_row_with_a_note(monkeypatch, silent):
    def full(logits, target):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 100 GiB.")

    monkeypatch.setattr(bench, "LOSSES", {**LOSSES, BASELINE: full})
    peer, by_image, fused = timed(silent=silent)
    assert peer == LossCost(BASELINE, 5, 12, 4, 2, note="out of memory")
    for row in (by_image, fused):
        assert row.milliseconds > 0
        assert row.ratio is None
        assert row.gradient_error < 0.01


def test_a_comparison_without_room_leaves_the_times(monkeypatch, silent):
    def full(logits, target):
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(bench, "reference", full)
    for row in timed(silent=silent):
        assert row.milliseconds > 0
        assert row.repeatable is True
        assert (row.gradient_error, row.note) == (None, "errors unknown: out of memory")


def test_other_errors_are_not_hidden(monkeypatch, silent):
    def broken(logits, target):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(bench, "LOSSES", {**LOSSES, FUSED: broken})
    with pytest.raises(RuntimeError, match="shapes differ"):
        timed(silent=silent)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "out of memory"),
        (RuntimeError("only supports output tensors with less than INT_MAX elements"), "too large for torch"),
    ],
)
def test_reasons(error, words):
    assert bench_timing.failure_reason(error) == words


# ---- the roofline


def test_roofline_is_the_slower_of_memory_and_exponentials():
    size = ProblemSize(classes=10, size=8, stride=4, batch=3)
    moved = 2 * (3 * 10 * 2 * 2) * 2 + 8 * (3 * 8 * 8)  # logits and gradient in two bytes, labels in eight
    powers = 2 * 3 * 8 * 8 * 10
    assert roofline(size, 2, DeviceSpeed(1e6, 1e12)) == pytest.approx(1e3 * moved / 1e6)
    assert roofline(size, 2, DeviceSpeed(1e12, 1e6)) == pytest.approx(1e3 * powers / 1e6)
    assert roofline(size, 2, DeviceSpeed(1e12, None)) is None
    assert roofline(size, 2, bench_roofline.device_speed(CPU)) is None


def test_only_the_fused_loss_has_a_roofline(monkeypatch, silent):
    monkeypatch.setattr(bench, "device_speed", lambda device: DeviceSpeed(1e9, 1e9))
    *others, fused = timed(silent=silent)
    assert [row.roofline_ms for row in others] == [None, None]
    assert fused.roofline_ms == pytest.approx(1e3 * 2 * 2 * 144 * 5 / 1e9)
    assert fused.roofline_share == pytest.approx(fused.roofline_ms / fused.milliseconds)


class Gpu:
    """Device properties with the attributes that torch provides."""

    multi_processor_count = 132

    def __init__(self, clock_rate=None):
        if clock_rate is not None:
            self.clock_rate = clock_rate


def test_the_clock_is_the_highest_known(monkeypatch):
    def unknown(device):
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    properties = {"found": Gpu(1_980_000)}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties["found"])
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda device: 345)
    assert bench_roofline._clock(CPU) == pytest.approx(1.98e9)
    properties["found"] = Gpu()
    assert bench_roofline._clock(CPU) == pytest.approx(345e6)
    monkeypatch.setattr(torch.cuda, "clock_rate", unknown)
    assert bench_roofline._clock(CPU) is None


# ---- times


def test_times_are_medians_of_rounds():
    found = Timed([[1.0, 2.0], [5.0, 1.0], [2.0, 2.0]], 2**29)
    assert (found.milliseconds, found.spread, found.extra_gib) == (4.0, (3.0, 6.0), 0.5)
    assert (found.lap(0), found.lap(1)) == (2.0, 2.0)


def test_the_first_rounds_are_not_timed(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(bench_timing.time, "perf_counter", lambda: next(clock) ** 2)  # every lap is longer
    calls = []

    def work(watch):
        watch.mark()
        calls.append(watch)
        return len(calls)

    found, last = measure(work, CPU, 3)
    assert last == len(calls) == 5
    starts = [3 * number for number in range(2, 5)]
    assert found.rounds == [[1e3 * (2 * s + 1), 1e3 * (2 * s + 3)] for s in starts]
    assert found.extra is None


def test_a_gpu_is_timed_by_its_events_and_its_peak(monkeypatch):
    clock, peaks = iter(range(100)), {"now": 1000, "peak": 0}

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = next(clock)

        def elapsed_time(self, other):
            return 0.5 * (other.at - self.at)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: peaks.update(peak=peaks["now"]))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: peaks["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: peaks["peak"])
    found, _ = measure(lambda watch: [watch.mark(), peaks.update(peak=1600)], torch.device("cuda"), 2)
    assert found == Timed([[0.5, 0.5]] * 2, 600)


def test_a_watch_without_marks_has_no_laps():
    assert Stopwatch(CPU).laps() == []


# ---- sizes


def test_logits_and_labels():
    size = ProblemSize(classes=6, size=40, stride=16, batch=3)
    logits, labels = random_logits(size, torch.bfloat16, CPU), random_labels(size, CPU)
    assert (logits.shape, logits.dtype) == ((3, 6, 3, 3), torch.bfloat16)  # rounded up
    assert (labels.shape, labels.dtype) == ((3, 40, 40), torch.int64)
    assert set(labels.unique().tolist()) == {0, 1, 2, 3, 4, 5, IGNORE}
    assert 0.02 < (labels == IGNORE).double().mean() < 0.1
    last = random_logits(size, torch.bfloat16, CPU, channels_last=True)
    assert torch.equal(logits, last)
    assert last.stride(1) == 1


def test_the_order_in_memory_changes_no_error(silent):
    first, last = (timed(precision="fp32", channels_last=order, silent=silent) for order in (False, True))
    for one, other in zip(first, last, strict=True):
        assert one.loss == other.loss
        assert other.gradient_error < 2e-6


def test_combinations_are_made_once():
    made = size_grid([5, 7, 5], [32], [16, 4, 16], 2)
    assert [(one.classes, one.stride) for one in made] == [(5, 16), (7, 16), (5, 4), (7, 4)]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"classes": 1}, "--classes is 1, expected 2 to 65533"),
        ({"classes": 65534}, "--classes is 65534"),
        ({"size": 0}, "--size is 0, expected at least 1"),
        ({"size": -4}, "--size is -4"),
        ({"batch": 0}, "--batch is 0, expected at least 1"),
        ({"stride": 0}, "--stride is 0, expected 1 to the side of an image, 512"),
        ({"stride": 513}, "--stride is 513"),
    ],
)
def test_sizes_that_cannot_be(changed, words):
    with pytest.raises(UserError, match=words) as caught:
        ProblemSize(**changed)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"precision": "fp8"}, "--precision is 'fp8', expected one of bf16, fp16, fp32"),
        ({"rounds": 0}, "--rounds is 0"),
    ],
)
def test_options_that_cannot_be(changed, words):
    with pytest.raises(UserError, match=words):
        LossOptions(**changed)


# ---- the plot


def row(loss, classes, size, milliseconds, gib, stride=16):
    note = "out of memory" if milliseconds is None else ""
    return LossCost(loss, classes, size, stride, 2, milliseconds=milliseconds, extra_gib=gib, note=note)


def drawn(path, *rows, classes=151, size=256):
    write_loss_costs(path, "Cross-entropy on a device", rows, classes, size)
    return path.read_text(encoding="utf-8")


def test_the_plot_names_losses_sizes_and_what_found_no_room(tmp_path):
    rows = [row(BASELINE, 21, 256, 3.0, 1.5), row(BASELINE, 151, 256, 20.0, 9.0), row(BASELINE, 151, 512, None, None)]
    rows += [row(FUSED, 21, 256, 0.3, 0.01), row(FUSED, 151, 256, 2.0, 0.05), row(FUSED, 151, 512, 8.0, 0.2)]
    text = drawn(tmp_path / "cost.svg", *rows)
    for words in (BASELINE, FUSED, "out of memory", "Cross-entropy on a device", "at 256×256 pixels", "at 151 classes"):
        assert f">{words}" in text or words in text
    for tick in ("21", "151", "256", "512"):
        assert f">{tick}</text>" in text
    assert "stride" not in text
    assert "not measured" not in text
    assert drawn(tmp_path / "again.svg", *rows) == text


def test_the_plot_tells_strides_apart(tmp_path):
    rows = [row(FUSED, 151, 256, 2.0, None, stride) for stride in (16, 4)]
    text = drawn(tmp_path / "cost.svg", *rows)
    assert "stride 16" in text
    assert "stride 4" in text
    assert text.count("not measured") == 2  # memory, on a CPU
    assert "out of memory" not in text


def test_a_plot_of_nothing_but_failures(tmp_path):
    text = drawn(tmp_path / "cost.svg", row(FUSED, 151, 256, None, None))
    assert "out of memory" in text


def test_the_peer_is_not_asked_for_more_than_32_bits_count():
    logits, target = torch.empty((24, 1000, 32, 32), device="meta"), torch.empty((24, 512, 512), device="meta")
    with pytest.raises(bench.TooLarge) as caught:
        bench.interpolated_cross_entropy(logits, target)
    assert bench_timing.failure_reason(caught.value) == "too large for torch"
