import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from faircl.labels import IGNORE
from faircl.loading.transforms import PAD_COLOUR, Crop, jitter, jitter_gains

RNG = np.random.default_rng(0)


def plain_nearest(mask: np.ndarray, crop: Crop, fill: int = IGNORE) -> np.ndarray:
    """Every output pixel takes the source pixel its centre falls into; one at a time."""
    out = np.full((crop.size, crop.size), fill, np.uint16)
    for i in range(crop.size):
        for j in range(crop.size):
            k = crop.size - 1 - j if crop.flip else j
            row = np.floor(crop.top + (i + 0.5) * crop.height / crop.size)
            col = np.floor(crop.left + (k + 0.5) * crop.width / crop.size)
            if 0 <= row < mask.shape[0] and 0 <= col < mask.shape[1]:
                out[i, j] = mask[int(row), int(col)]
    return out


def random_mask(height: int, width: int, classes: int = 9) -> np.ndarray:
    return RNG.integers(0, classes, (height, width)).astype(np.uint16)


def painted(mask: np.ndarray) -> np.ndarray:
    """An image whose every pixel tells its class: 20·id in all three channels, shifted per channel."""
    return np.stack([20 * mask, 20 * mask + 5, 20 * mask + 10], -1).astype(np.uint8)


crops = st.builds(
    lambda top, left, side, size, flip: Crop(top, left, side, side, size, flip),
    top=st.integers(-20, 20),
    left=st.integers(-20, 20),
    side=st.integers(1, 40),
    size=st.integers(1, 24),
    flip=st.booleans(),
)


@given(crops, st.integers(1, 20), st.integers(1, 20))
def test_mask_equals_a_plain_loop(crop, height, width):
    mask = random_mask(height, width)
    np.testing.assert_array_equal(crop.mask(mask), plain_nearest(mask, crop))


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 16), st.booleans())
def test_an_image_at_its_own_scale_is_copied_and_not_blurred(top, left, size, flip):
    mask = random_mask(11, 7)
    crop = Crop(top, left, size, size, size, flip)
    found = crop.image(painted(mask)).permute(1, 2, 0).numpy()
    labels = plain_nearest(mask, crop)
    outside = labels == IGNORE
    np.testing.assert_array_equal(found[~outside], painted(labels)[~outside])
    assert (found[outside] == PAD_COLOUR).all()


def test_the_whole_image_comes_back_exactly():
    mask = random_mask(16, 16)
    crop = Crop(0, 0, 16, 16, 16, False)
    np.testing.assert_array_equal(crop.mask(mask), mask)
    np.testing.assert_array_equal(crop.image(painted(mask)).permute(1, 2, 0).numpy(), painted(mask))


def test_flip_mirrors_image_and_mask_alike():
    mask = random_mask(16, 16)
    plain, mirrored = (Crop(3, -2, 13, 13, 10, flip) for flip in (False, True))
    np.testing.assert_array_equal(mirrored.mask(mask), plain.mask(mask)[:, ::-1])
    assert torch.equal(mirrored.image(painted(mask)), plain.image(painted(mask)).flip(2))


def test_padding_is_ignore_or_what_is_asked_for():
    crop = Crop(-1, -1, 4, 4, 4, False)
    mask = np.ones((2, 2), np.uint16)
    ring = IGNORE
    expected = [[ring, ring, ring, ring], [ring, 1, 1, ring], [ring, 1, 1, ring], [ring, ring, ring, ring]]
    np.testing.assert_array_equal(crop.mask(mask), expected)
    assert crop.mask(mask, fill=7)[0, 0] == 7


def test_a_window_beside_the_image_is_all_padding():
    for top, left in ((-9, 0), (9, 0), (0, -9), (0, 9), (40, 40), (-40, -40)):
        crop = Crop(top, left, 4, 4, 4, False)
        assert (crop.mask(np.ones((4, 4), np.uint16)) == IGNORE).all()
        image = crop.image(np.full((4, 4, 3), 9, np.uint8)).permute(1, 2, 0).numpy()
        assert (image == PAD_COLOUR).all()


def half_planes(edge: int, size: int = 64) -> np.ndarray:
    mask = np.zeros((size, size), np.uint16)
    mask[:, edge:] = 1
    return mask


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("flip", [False, True])
@given(
    side=st.integers(24, 90),
    top=st.integers(-20, 30),
    left=st.integers(-20, 30),
    edge=st.integers(4, 60),
)
def test_an_edge_stands_at_the_same_place_in_image_and_mask(axis, flip, side, top, left, edge):
    mask = half_planes(edge) if axis else half_planes(edge).T
    image = np.repeat((mask * 200).astype(np.uint8)[..., None], 3, 2)
    crop = Crop(top, left, side, side, 48, flip)
    labels, picture = crop.mask(mask), crop.image(image)[0].numpy()
    # Beyond one source pixel and the reach of the filter, from the edge and from the image's border, colours are pure.
    reach = 3 * max(1.0, side / 48) + 1
    columns = np.arange(48)[::-1] if flip else np.arange(48)
    rows_at, cols_at = (start + (n + 0.5) * side / 48 for start, n in ((top, np.arange(48)), (left, columns)))
    far = np.abs((cols_at if axis else rows_at) - edge) > reach
    within = [(at > reach) & (at < 64 - reach) for at in (rows_at, cols_at)]
    checked = within[0][:, None] & within[1] & (far if axis else far[:, None])
    np.testing.assert_array_equal(picture[checked], labels[checked] * 200)


@pytest.mark.parametrize("side", [25, 40, 41, 47, 55])
def test_a_zoomed_window_is_not_shifted(side):
    ramp = np.repeat(np.arange(64, dtype=np.uint8)[None, :, None] * 4, 64, 0).repeat(3, 2)
    size = 64
    expected = 4 * ((np.arange(size) + 0.5) * side / size - 0.5)
    found = Crop(0, 0, side, side, size, False).image(ramp)[0, 32].numpy().astype(float)
    assert np.abs(found - expected)[4:-4].max() <= 1.0  # a quarter of a pixel


# ---- drawing


def draw(seed: int, shape=(50, 70), size=32, scale=(0.5, 2.0), flip=True) -> Crop:
    return Crop.draw(np.random.default_rng(seed), shape, size, scale, flip)


def test_draws_are_repeatable_and_differ():
    assert draw(3) == draw(3)
    assert len({draw(seed) for seed in range(50)}) == 50


@given(st.integers(0, 10_000), st.integers(1, 90), st.integers(1, 40), st.floats(0.1, 1), st.floats(1, 100))
def test_windows_have_whole_pixels(seed, extent, size, low, high):
    crop = draw(seed, (extent, extent), size, (low, high))
    assert all(type(value) is int for value in (crop.top, crop.left, crop.height, crop.width))
    assert crop.height == crop.width >= 1
    inside = sorted((0, extent - crop.height))
    assert inside[0] <= crop.top <= inside[1]
    assert crop.image(np.zeros((extent, extent, 3), np.uint8)).shape == (3, size, size)


def test_zoom_stays_within_its_range_and_reaches_both_ends():
    sides = [draw(seed, scale=(0.5, 2.0)).height for seed in range(400)]
    assert 16 <= min(sides) < 17
    assert 62 < max(sides) <= 64
    # log-uniform: as often larger as smaller
    assert 150 < sum(side > 32 for side in sides) < 250
    assert all(draw(seed).height == draw(seed).width for seed in range(20))


def test_half_of_the_windows_are_mirrored_or_none():
    assert 120 < sum(draw(seed).flip for seed in range(300)) < 180
    assert not any(draw(seed, flip=False).flip for seed in range(50))


@given(st.integers(0, 10_000), st.integers(33, 80), st.integers(33, 80))
def test_at_unit_scale_a_window_lies_within_a_larger_image(seed, height, width):
    crop = draw(seed, (height, width), 32, (1.0, 1.0))
    assert 0 <= crop.top <= height - 32
    assert 0 <= crop.left <= width - 32
    assert (crop.mask(np.zeros((height, width), np.uint16)) != IGNORE).all()


@given(st.integers(0, 10_000), st.integers(1, 31), st.integers(1, 31))
def test_a_smaller_image_lies_within_the_window(seed, height, width):
    crop = draw(seed, (height, width), 32, (1.0, 1.0))
    assert (crop.mask(np.zeros((height, width), np.uint16)) != IGNORE).sum() == height * width


def test_every_place_of_a_larger_image_is_drawn():
    tops = {draw(seed, (40, 40), 32, (1.0, 1.0)).top for seed in range(300)}
    assert tops == set(range(9))


# ---- jitter


def one_by_one(image: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """Jitter one image (3, H, W), its mean summed in floating point: exact up to 2²⁴."""
    pixels = image.float()
    pixels = (pixels - pixels.mean()) * gain[0] + pixels.mean() * gain[1]
    return (pixels * gain[2:, None, None]).round().clamp(0, 255).to(torch.uint8)


def random_images(count: int, side: int) -> torch.Tensor:
    return torch.from_numpy(RNG.integers(0, 256, (count, 3, side, side), dtype=np.uint8))


def test_no_jitter_draws_nothing():
    rng = np.random.default_rng(1)
    assert jitter_gains(rng, 0.0) is None
    assert rng.random() == np.random.default_rng(1).random()


def test_gains_are_drawn_within_their_strength():
    gains = torch.stack([jitter_gains(np.random.default_rng(seed), 0.1) for seed in range(50)])
    assert gains.shape == (50, 5)
    assert 0.9 <= gains.min() < 0.91
    assert 1.09 < gains.max() <= 1.1


def test_jitter_of_a_batch_is_that_of_its_images_bit_for_bit():
    images, gains = random_images(6, 32), torch.from_numpy(RNG.uniform(0.5, 1.5, (6, 5))).float()
    expected = torch.stack([one_by_one(image, gain) for image, gain in zip(images, gains, strict=True)])
    assert torch.equal(jitter(images, gains), expected)
    channels_last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(jitter(channels_last, gains), expected)


def test_jitter_of_large_images_differs_by_a_level_at_most():
    images, gains = random_images(2, 300), torch.from_numpy(RNG.uniform(0.5, 1.5, (2, 5))).float()
    expected = torch.stack([one_by_one(image, gain) for image, gain in zip(images, gains, strict=True)])
    assert (jitter(images, gains).int() - expected.int()).abs().max() <= 1


def test_jitter_changes_colours_within_its_strength_and_keeps_type():
    image = torch.full((1, 3, 4, 4), 100, dtype=torch.uint8)
    for seed in range(50):
        out = jitter(image, jitter_gains(np.random.default_rng(seed), 0.1)[None])
        assert out.dtype == torch.uint8
        assert out.shape == image.shape
        assert 100 * 0.9 * 0.9 - 1 <= out.min() <= out.max() <= 100 * 1.1 * 1.1 + 1
    bright = jitter(torch.full((1, 3, 4, 4), 255, dtype=torch.uint8), torch.full((1, 5), 1.9))
    assert bright.unique().tolist() == [255]  # cut off, never wrapped around


# ---- parts of images


@given(crops, st.integers(1, 20), st.integers(1, 20))
def test_a_crop_of_the_part_it_shows_is_the_crop_of_the_image(crop, height, width):
    mask = random_mask(height, width)
    place, part = crop.clip_to(mask.shape)
    np.testing.assert_array_equal(part.mask(mask[place]), crop.mask(mask))
    assert torch.equal(part.image(painted(mask)[place]), crop.image(painted(mask)))


def test_a_byte_mask_is_padded_with_its_own_void():
    mask = np.ones((2, 2), np.uint8)
    found = Crop(-1, 0, 3, 3, 3, False).mask(mask)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, [[255, 255, 255], [1, 1, 255], [1, 1, 255]])


def test_a_read_only_image_is_read(recwarn):
    image = painted(random_mask(8, 8))
    image.flags.writeable = False
    assert torch.equal(Crop(0, 0, 8, 8, 8, False).image(image), torch.from_numpy(image.copy()).permute(2, 0, 1))
    assert not recwarn.list


# ---- resampling in whole numbers


@pytest.mark.parametrize("seed", range(6))
def test_a_window_is_what_floats_would_give_to_one_level(seed):
    image = np.random.default_rng(seed).integers(0, 256, (70, 90, 3), dtype=np.uint8)
    crop = Crop.draw(np.random.default_rng(seed), (70, 90), 48, (0.4, 2.5), flip=False)
    rows, columns = (np.arange(start, start + crop.height) for start in (crop.top, crop.left))
    inside = ((rows >= 0) & (rows < 70))[:, None] & ((columns >= 0) & (columns < 90))
    window = np.where(inside[..., None], image[rows.clip(0, 69)][:, columns.clip(0, 89)], PAD_COLOUR)
    exact = torch.from_numpy(window).permute(2, 0, 1)[None].double()
    exact = torch.nn.functional.interpolate(exact, (48, 48), mode="bilinear", antialias=True)[0]
    assert (crop.image(image).double() - exact).abs().max() < 1.01
