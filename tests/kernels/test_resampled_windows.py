"""Windows of a batch by one kernel, against cropping them one by one on the CPU."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from faircl.loading import windows as data
from faircl.loading.compact_labels import COMPACT_IGNORE
from faircl.loading.transforms import PAD_COLOUR, Crop
from faircl.loading.windows import CropParameters, DeviceWindows, Window

kernel = pytest.importorskip("faircl.kernels.resample_windows", reason="Triton comes with torch for Linux alone")


def cut(rng, size, scale=(0.4, 2.5), deep=False, whole=False):
    """Draw a window of an image of its own size; of a ``whole`` image, there are gaps between its rows."""
    high, wide = rng.integers(2, 40, 2)
    image = torch.from_numpy(rng.integers(0, 256, (high, wide, 3), dtype=np.uint8))
    labels = torch.from_numpy(rng.integers(0, 200, (high, wide), dtype=np.uint8))
    place, crop = Crop.draw(rng, (high, wide), size, scale, flip=True).clip_to((high, wide))
    parts = [one[place] for one in (image, labels.to(torch.int16) if deep else labels, labels > 100)]
    shown, mask, marked = parts if whole else [one.contiguous() for one in parts]
    return Window(shown, mask, None, marked, crop, 0)


def batch(seed, count, size, **options):
    rng = np.random.default_rng(seed)
    return [cut(rng, size, **options) for _ in range(count)]


cases = {"seed": st.integers(0, 2**31), "count": st.integers(1, 3), "size": st.integers(1, 18), "whole": st.booleans()}


@settings(max_examples=25, deadline=None)
@given(**cases)
def test_colours_are_those_of_single_crops_to_one_level(seed, count, size, whole):
    made = batch(seed, count, size, whole=whole)
    found = kernel.resample_bilinear([one.image for one in made], CropParameters.of(made).geometry, size, PAD_COLOUR)
    assert found.shape == (count, 3, size, size)
    for one, own in zip(made, found, strict=True):
        exact = one.crop.sample(one.image.contiguous()).int()
        assert (own.int() - exact).abs().max() <= 1


@settings(max_examples=25, deadline=None)
@given(deep=st.booleans(), **cases)
def test_labels_are_those_of_single_crops(seed, count, size, whole, deep):
    made = batch(seed, count, size, whole=whole, deep=deep)
    geometry = CropParameters.of(made).geometry
    for name, outside in (("labels", COMPACT_IGNORE), ("auxiliary", False)):
        parts = [getattr(one, name) for one in made]
        found = kernel.resample_nearest(parts, geometry, size, outside)
        assert found.dtype == parts[0].dtype
        for one, part, own in zip(made, parts, found, strict=True):
            np.testing.assert_array_equal(own.numpy(), one.crop.mask(part.numpy(), outside))


def test_a_window_as_it_is_stays_so():
    rng = np.random.default_rng(0)
    image = torch.from_numpy(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
    for flip in (False, True):
        one = Window(image, image[..., 0], None, None, Crop(0, 0, 9, 9, 9, flip), 0)
        found = kernel.resample_bilinear([image], CropParameters.of([one]).geometry, 9, PAD_COLOUR)[0].permute(1, 2, 0)
        assert torch.equal(found, image.flip(1) if flip else image)


@pytest.mark.slow
def test_a_strong_shrinking_is_a_mean():
    rng = np.random.default_rng(0)
    image = torch.from_numpy(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    one = Window(image, image[..., 0], None, None, Crop(0, 0, 64, 64, 4, False), 0)
    found = kernel.resample_bilinear([image], CropParameters.of([one]).geometry, 4, PAD_COLOUR)
    assert (found[0].int() - one.crop.sample(image).int()).abs().max() <= 1
    assert found.float().std() < image.float().std() / 4


def test_batches_are_the_same_either_way(monkeypatch):
    made = batch(7, 4, 20, deep=False)
    mixed = [made[0]._replace(labels=made[0].labels.to(torch.int16)), *made[1:]]  # one image has many classes
    plain = DeviceWindows(mixed, CropParameters.of(mixed)).to_batch()
    monkeypatch.setattr(data.kernels, "usable", lambda tensor: True)
    fast = DeviceWindows(mixed, CropParameters.of(mixed)).to_batch()
    assert (fast.image - plain.image).abs().max() <= 1.01 / 255
    assert torch.equal(fast.labels, plain.labels)
    assert torch.equal(fast.auxiliary, plain.auxiliary)
    assert fast.image.is_contiguous()


def test_rows_with_gaps_between_their_pixels_are_refused():
    image = torch.zeros(3, 9, 9, dtype=torch.uint8).permute(1, 2, 0)  # planar
    labels = torch.zeros(9, 9, dtype=torch.uint8).T[::1]
    one = Window(image, labels, None, None, Crop(0, 0, 9, 9, 9, False), 0)
    geometry = CropParameters.of([one]).geometry
    with pytest.raises(ValueError, match="contiguous rows"):
        kernel.resample_bilinear([image], geometry, 9, PAD_COLOUR)
    with pytest.raises(ValueError, match="contiguous rows"):
        kernel.resample_nearest([labels], geometry, 9, COMPACT_IGNORE)
