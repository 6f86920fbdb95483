"""``faircl bench input``: a row for every way to read, and one for the plain loader."""

import json
import os

import pytest
import torch

from faircl.bench import synthetic_images
from faircl.bench.input import PLAIN, SCALE, WAYS, InputSize, bench_input
from faircl.bench.plain_loader import PlainDataset
from faircl.data.cache_files import CACHE_VARIABLE, cache_folder
from faircl.errors import UserError
from faircl.progress import SilentReporter
from faircl.readers.folder import FolderData

TINY = InputSize(images=3, width=40, height=30, size=16, batch=2, seconds=0.01)
on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has a row of its own")
OPTIONS = ("--images", 3, "--width", 40, "--height", 30, "--size", 16, "--batch", 2, "--seconds", 0.01, "--workers", 0)


@pytest.fixture(scope="module")
def rows():
    before, kept = os.environ.get(CACHE_VARIABLE), sorted(cache_folder().rglob("*"))
    found, size = bench_input(TINY, [0], SilentReporter())
    assert size > 300
    assert os.environ.get(CACHE_VARIABLE) == before
    assert sorted(cache_folder().rglob("*")) == kept  # nothing was added to the user's cache
    return found


@pytest.mark.slow
@on_cpu
def test_every_way_has_a_row(rows):
    assert [row.way for row in rows] == [PLAIN, *(way for way in WAYS if way != "cache gpu")]
    for row in rows:
        assert row.workers == 0
        assert row.crops_per_second > 0
        assert 0 < row.core_milliseconds < 1e3
        assert row.ratio == pytest.approx(row.crops_per_second / rows[0].crops_per_second)
    assert rows[0].ratio == 1


@pytest.mark.slow
def test_bytes_are_those_of_the_types_sent(rows):
    each = {row.way: 1e6 * row.megabytes_per_second / row.crops_per_second for row in rows}
    assert each[PLAIN] == pytest.approx(16 * 16 * (3 * 4 + 8))
    assert [each["decode"], each["cache memory"]] == pytest.approx([16 * 16 * 4] * 2)
    assert each["augment device"] < 30 * 40 * 4  # a window is no larger than its image


def test_the_plain_loader_gives_normalised_crops_and_their_masks():
    with synthetic_images.written_images(TINY.on_disk, SilentReporter()) as root:
        data = FolderData(root)
        plain = PlainDataset(data, tuple(data.ids("train")), 16, SCALE)
        image, mask = plain[len(plain) - 1]
        assert (image.shape, image.dtype) == ((3, 16, 16), torch.float32)
        assert (mask.shape, mask.dtype) == ((16, 16), torch.int64)
        assert -3 < image.min() < image.max() < 3
    assert not root.exists()


@pytest.mark.parametrize(("noise", "bits"), [(9.0, 2.4), (5.0, 1.6)])
def test_noise_decides_how_large_files_are(noise, bits):
    with synthetic_images.written_images(InputSize(images=1, noise=noise).on_disk, SilentReporter()) as root:
        (image,), (mask,) = ((root / kind).rglob("00000.*") for kind in ("images", "masks"))
        assert 8 * image.stat().st_size / (683 * 512) == pytest.approx(bits, abs=0.1)
        assert 5_000 < mask.stat().st_size < 40_000


@pytest.mark.slow
@on_cpu
def test_json(cli):
    result = cli("bench", "input", *OPTIONS, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert {key: found[key] for key in ("images", "width", "height", "size", "batch", "seconds")} == {
        "images": 3,
        "width": 40,
        "height": 30,
        "size": 16,
        "batch": 2,
        "seconds": 0.01,
    }
    assert found["environment"]["torch"] == torch.__version__.partition("+")[0]
    assert found["jpeg_kilobytes"] > 0.3
    assert [row["way"] for row in found["rows"]][:2] == [PLAIN, "decode"]


@on_cpu
def test_table(cli):
    result = cli("bench", "input", *OPTIONS)
    assert result.code == 0, result.err
    assert "crops/s" in result.out
    assert "plain Pillow loader" in result.out
    assert "1.00×" in result.out


def test_more_workers_than_cores_are_refused(cli):
    result = cli("bench", "input", *OPTIONS[:-1], 4096)
    assert result.code != 0
    assert "--workers is 4096, but this process may use" in result.err


def test_a_full_disk_is_a_sentence(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(synthetic_images, "draw_image", full)
    with pytest.raises(UserError, match=r"Cannot write the images to be read to .*: No space left on device"):
        bench_input(TINY, [0], SilentReporter())
