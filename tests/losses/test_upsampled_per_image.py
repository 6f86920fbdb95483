"""Losses image by image against the same losses of the whole batch: values, gradients, memory."""

from functools import partial

import loop_losses as loops
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from faircl.labels import IGNORE
from faircl.losses import binary, cross_entropy, imbalance
from faircl.losses.upsampled_per_image import upsampled_per_image
from faircl.upsampling import upsampled

CLASSES = 5
LOG_COUNT = torch.tensor([7.0, 3.0, 5.0, 0.0, 1.0]).double()
SCORES = {
    "binary": binary._binary_cross_entropy,
    "focal": partial(binary._focal_binary_cross_entropy, gamma=1.5),
    "seesaw": partial(imbalance._seesaw, log_count=LOG_COUNT, mitigation=0.8, compensation=2.0, grouped=0),
    "grouped seesaw": partial(imbalance._seesaw, log_count=LOG_COUNT, mitigation=0.8, compensation=2.0, grouped=3),
}
LOSSES = {
    "binary": binary.pixel_binary_cross_entropy,
    "focal": partial(binary.pixel_binary_cross_entropy, focal=1.5),
    "seesaw": partial(imbalance.pixel_seesaw, log_count=LOG_COUNT),
    "grouped seesaw": partial(imbalance.pixel_seesaw, log_count=LOG_COUNT, grouped=3),
}
SIZES = [((3, 4), (7, 9)), ((1, 1), (3, 4)), ((5, 4), (5, 4)), ((5, 6), (3, 2))]
each_loss = pytest.mark.parametrize("name", LOSSES)


@pytest.fixture(autouse=True)
def none_is_small(monkeypatch):
    monkeypatch.setattr(cross_entropy, "MAX_CPU_LOGITS", -1)


def case(batch=3, small=(3, 4), large=(7, 9), dtype=torch.float64):
    """A fifth of the pixels is void, and of several images the last one wholly; the last class is absent."""
    gen = torch.Generator().manual_seed(0)
    logits = (2 * torch.randn((batch, CLASSES, *small), generator=gen, dtype=torch.float64)).to(dtype)
    target = torch.randint(CLASSES - 1, (batch, *large), generator=gen)
    target[torch.rand(target.shape, generator=gen) < 0.2] = IGNORE
    target[0, 0, 0] = 0
    if batch > 1:
        target[-1] = IGNORE
    return logits.requires_grad_(), target


def with_gradient(loss, logits, target):
    """Values of a loss, and the gradient of their sum with a weight for every pixel."""
    values = loss(logits, target)
    weight = torch.rand(target.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(values.dtype)
    return values.detach(), torch.autograd.grad((values * weight).sum(), logits)[0]


def on_the_whole_batch(name, logits, target):
    return SCORES[name](upsampled(logits, target.shape[-2:]), target).where(target != IGNORE, 0.0)


@each_loss
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("small", "large"), SIZES)
def test_equals_the_whole_batch(name, batch, small, large):
    logits, target = case(batch, small, large)
    values, gradient = with_gradient(LOSSES[name], logits, target)
    expected, slope = with_gradient(partial(on_the_whole_batch, name), logits, target)
    assert torch.allclose(values, expected, rtol=0, atol=1e-10)
    assert torch.allclose(gradient, slope, rtol=0, atol=1e-10)
    assert values.abs().max() > 0.1
    assert gradient.abs().max() > 1e-3


@each_loss
def test_void_pixels_and_void_images_neither_cost_nor_pull(name):
    logits, target = case()
    values, gradient = with_gradient(LOSSES[name], logits, target)
    assert not values[target == IGNORE].any()
    assert values[target != IGNORE].all()
    assert not gradient[-1].any()
    assert gradient[0].any()


@each_loss
def test_gradcheck(name):
    logits, target = case(2, (2, 3), (4, 5))
    # Seesaw's σ carries no gradient, so only the part without it has finite differences.
    loss = partial(LOSSES[name], compensation=0.0) if "seesaw" in name else LOSSES[name]
    assert loops.grad_ok(lambda z: loss(z, target), logits)


class Sizes(TorchDispatchMode):
    """Records the largest tensor that an operation makes, and how many of at least ``large`` numbers live at once."""

    def __init__(self, large):
        super().__init__()
        self.large, self.largest, self.most, self.living = large, 0, 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
                if one.numel() >= self.large:
                    storage = StorageWeakRef(one.untyped_storage())
                    self.living[storage.cdata] = storage
        self.living = {key: storage for key, storage in self.living.items() if not storage.expired()}
        self.most = max(self.most, len(self.living))
        return found


def sizes_of(loss, batch):
    logits, target = case(batch, (2, 3), (16, 24))
    with Sizes(CLASSES * 16 * 24) as sizes:
        with_gradient(loss, logits, target)
    return sizes


@each_loss
def test_no_tensor_is_larger_than_one_image_and_no_image_waits_for_another(name):
    one, several = (sizes_of(LOSSES[name], batch) for batch in (1, 4))
    assert one.largest == several.largest == CLASSES * 16 * 24
    # The last gradient of an image may still be there when the next one begins, and no more, however many there are.
    assert 0 < several.most <= one.most + 1
    assert sizes_of(partial(on_the_whole_batch, name), 4).largest == 4 * CLASSES * 16 * 24


@each_loss
def test_forward_keeps_small_logits_alone(name):
    logits, target = case(4, (2, 3), (16, 24))
    with Sizes(CLASSES * 16 * 24) as sizes:
        loss = LOSSES[name](logits, target).sum()
        assert sizes.most > 0
        torch.zeros(1) + 1  # another operation, which counts anew
        assert not sizes.living
        loss.backward()
    assert logits.grad.any()


@each_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_short_numbers_give_float32(name, dtype):
    logits, target = case(dtype=dtype)
    short = partial(LOSSES[name], log_count=LOG_COUNT.float()) if "seesaw" in name else LOSSES[name]
    values, gradient = with_gradient(short, logits, target)
    assert values.dtype == torch.float32
    assert gradient.dtype == dtype
    exact, slope = with_gradient(LOSSES[name], logits.detach().double().requires_grad_(), target)
    assert torch.allclose(values.double(), exact, rtol=1e-5, atol=1e-5)
    assert torch.allclose(gradient.double(), slope, rtol=1e-2, atol=1e-2)


@each_loss
def test_autocast_and_deterministic_algorithms_change_nothing(name):
    logits, target = case(dtype=torch.float32)
    short = partial(LOSSES[name], log_count=LOG_COUNT.float()) if "seesaw" in name else LOSSES[name]
    expected = with_gradient(short, logits, target)
    with torch.autocast("cpu", torch.bfloat16):
        cast = short(logits, target)
    torch.use_deterministic_algorithms(True)
    try:
        found = with_gradient(lambda *_: cast, logits, target)
        again = with_gradient(short, logits, target)
    finally:
        torch.use_deterministic_algorithms(False)
    for pair in (found, again):
        assert all(torch.equal(a, b) for a, b in zip(pair, expected, strict=True))


def test_a_score_sees_one_image_at_a_time_once_forward_and_once_backward():
    logits, target = case()
    seen = []

    def score(large, label):
        seen.append((large.shape, label[0, 0, 0].item()))
        return large.square().sum(1) * (label != IGNORE)

    values = upsampled_per_image(score, logits, target)
    forward = [((1, CLASSES, 7, 9), label) for label in target[:, 0, 0].tolist()]
    assert seen == forward
    values.sum().backward()
    assert sorted(seen) == sorted(2 * forward)
    with torch.no_grad():
        assert torch.equal(upsampled_per_image(score, logits, target), values)
    assert len(seen) == 9


@each_loss
def test_a_batch_of_nothing(name):
    logits = torch.zeros((0, CLASSES, 2, 2), dtype=torch.float64, requires_grad=True)
    values, gradient = with_gradient(LOSSES[name], logits, torch.zeros((0, 4, 4), dtype=torch.int64))
    assert values.shape == (0, 4, 4)
    assert gradient.shape == logits.shape


@each_loss
def test_a_cpu_takes_small_batches_at_once(name, monkeypatch):
    logits, target = case()
    expected, slope = with_gradient(LOSSES[name], logits, target)
    monkeypatch.setattr(cross_entropy, "MAX_CPU_LOGITS", target.numel() * CLASSES)
    monkeypatch.setattr("faircl.losses.upsampled_per_image._UpsampledPerImage", None)
    values, gradient = with_gradient(LOSSES[name], logits, target)
    assert torch.allclose(values, expected, rtol=0, atol=1e-10)
    assert torch.allclose(gradient, slope, rtol=0, atol=1e-10)
