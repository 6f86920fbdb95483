"""Decoded samples in memory and on disk: the same samples, noticed changes, nothing half-written."""

import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from test_loader import IDENTITY, Painted, counted

from faircl.errors import UserError
from faircl.loading import decoded_cache as decoded
from faircl.loading.decoded_cache import DiskCache, MemoryCache
from faircl.loading.loader import train_loader
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.readers.folder import FolderData


@pytest.fixture
def folder(tmp_path) -> FolderData:
    """Write seven images, JPEG and PNG in turn."""
    data, root = Painted(), tmp_path / "data"
    for kind in ("images", "masks"):
        (root / kind / "train").mkdir(parents=True)
    (root / "classes.txt").write_text("\n".join(data.classes.names))
    for number, id in enumerate(data.ids("train")):
        sample = data.read("train", id)
        Image.fromarray(sample.image).save(root / f"images/train/{id}.{'jpg' if number % 2 else 'png'}")
        Image.fromarray(sample.mask).save(root / f"masks/train/{id}.png")
    return FolderData(root)


class Counting:
    """A reader that counts what it reads."""

    def __init__(self, data):
        self.data, self.classes, self.reads = data, data.classes, []

    def read(self, split, id):
        self.reads.append(id)
        return self.data.read(split, id)


def in_memory(data) -> MemoryCache:
    return MemoryCache(data, "train", data.ids("train"), lambda: None)


def assert_same_samples(one, other):
    for id in other.ids("train"):
        (name, image, mask), expected = one.read("train", id), other.read("train", id)
        assert name == id
        assert (image.dtype, mask.dtype) == (expected.image.dtype, expected.mask.dtype)
        np.testing.assert_array_equal(image, expected.image)
        np.testing.assert_array_equal(mask, expected.mask)
        np.testing.assert_array_equal(one.read_mask("train", id), expected.mask)


def kept_files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_do_not_depend_on_the_cache(folder, tmp_path, workers):
    plain = StepDataset(
        folder, "train", tuple(folder.ids("train")), IDENTITY, None, Augmentation(24, (0.5, 2.0), True, 0.2), 0, 0
    )
    expected = [batch.to_batch() for batch in train_loader(plain, counted(7, 4, 5), 0)]
    for data in (in_memory(folder), DiskCache(folder, tmp_path), DiskCache(folder, tmp_path)):
        found = [batch.to_batch() for batch in train_loader(replace(plain, data=data), counted(7, 4, 5), workers)]
        for one, other in zip(found, expected, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one[:2], other[:2], strict=True))
    assert len(kept_files(tmp_path / "decoded")) == 7  # written by workers, by whichever came first


def test_memory_decodes_every_sample_once_and_keeps_it():
    counting, told = Counting(Painted()), []
    ids = Painted().ids("train")
    kept = MemoryCache(counting, "train", ids[:5], lambda: told.append(1))
    assert (sorted(counting.reads), len(told)) == (sorted(ids[:5]), 5)
    for id in (*ids[:5], *ids[:5]):
        kept.read("train", id)
    assert len(counting.reads) == 5
    assert_same_samples(in_memory(Painted()), Painted())
    np.testing.assert_array_equal(kept.read("train", ids[6]).mask, Painted().read_mask("train", ids[6]))  # not kept


def test_a_process_that_is_not_forked_gets_the_reader_without_its_samples():
    full = in_memory(Painted())
    again = pickle.loads(pickle.dumps(full))
    assert (len(full._samples), again._samples) == (7, {})
    assert_same_samples(again, Painted())


def test_too_little_memory_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(decoded, "_MEMINFO", tmp_path / "meminfo")
    in_memory(Painted())  # where the machine does not tell, nothing is refused
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 20 kB\n")
    with pytest.raises(UserError, match=r"need about 0\.0 GB and 0\.0 GB are free on this machine; set it to disk"):
        in_memory(Painted())
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemAvailable: 40 kB\n")
    in_memory(Painted())  # 33 kB


@pytest.mark.parametrize(("limit", "fits"), [("20000", False), ("40000", True), ("max", True)])
def test_a_containers_memory_is_all_there_is(limit, fits, monkeypatch, tmp_path):
    monkeypatch.setattr(decoded, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(decoded, "_CGROUP", tmp_path)
    (tmp_path / "meminfo").write_text("MemAvailable: 4000 kB\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text("15000\n")
    (tmp_path / "memory.stat").write_text("anon 4000\ninactive_file 5000\nactive_file 6000\n")
    if fits:
        in_memory(Painted())  # 33 kB beside 4 kB in use
    else:
        with pytest.raises(UserError, match="are free on this machine; set it to disk or none"):
            in_memory(Painted())


def test_disk_gives_the_same_samples_and_then_reads_no_image_again(folder, tmp_path, monkeypatch):
    disk = DiskCache(folder, tmp_path)
    assert_same_samples(disk, folder)
    monkeypatch.setattr("faircl.data.mask_coding.MaskCoding.decode", None)
    monkeypatch.setattr("faircl.data.images.decode_image", None)
    for id in folder.ids("train"):
        assert disk.read("train", id).image.flags.writeable


def test_masks_of_two_bytes_stay_so(folder, tmp_path):
    (folder.root / "classes.txt").write_text("\n".join(f"c{k}" for k in range(300)))
    deep = FolderData(folder.root)
    Image.fromarray(np.full((20, 30), 299, np.uint16)).save(folder.root / "masks/train/train0.png")
    disk = DiskCache(deep, tmp_path)
    for _ in range(2):
        assert disk.read("train", "train0").mask.dtype == np.uint16
        assert disk.read("train", "train0").mask[3, 4] == 299


@pytest.mark.parametrize("kind", ["images", "masks"])
def test_a_changed_file_is_decoded_anew(folder, tmp_path, kind):
    disk = DiskCache(folder, tmp_path)
    before = disk.read("train", "train0")
    path = folder.root / kind / "train/train0.png"
    Image.fromarray(np.full_like(getattr(before, kind[:-1]), 2)).save(path)
    assert (getattr(disk.read("train", "train0"), kind[:-1]) == 2).all()
    # Even where the size stays: the time tells.
    Image.fromarray(np.full_like(getattr(before, kind[:-1]), 3)).save(path)
    os.utime(path, ns=(1, 1))
    assert (getattr(disk.read("train", "train0"), kind[:-1]) == 3).all()


@pytest.mark.parametrize("harm", ["cut", "empty", "other"])
def test_a_damaged_file_of_the_cache_is_made_again(folder, tmp_path, harm):
    disk = DiskCache(folder, tmp_path)
    expected = disk.read("train", "train0")
    (path,) = kept_files(tmp_path / "decoded")
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[:-1], "empty": b"", "other": b"x" * len(whole)}[harm])
    np.testing.assert_array_equal(disk.read("train", "train0").image, expected.image)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("place", ["magic", "height", "padding", "sha256", "image", "mask", "last byte"])
def test_one_flipped_bit_is_noticed_and_the_file_made_again(folder, tmp_path, place):
    expected = DiskCache(folder, tmp_path).read("train", "train0")
    (path,) = kept_files(tmp_path / "decoded")
    whole, pixels = path.read_bytes(), expected.image.nbytes + expected.mask.nbytes
    first = len(whole) - pixels
    at = {"magic": 7, "height": 8, "padding": 25, "sha256": 40, "image": first + 5, "last byte": -1}
    damaged = bytearray(whole)
    damaged[at.get(place, first + expected.image.nbytes + 5)] ^= 1
    path.write_bytes(damaged)
    found = DiskCache(folder, tmp_path).read("train", "train0")
    np.testing.assert_array_equal(found.image, expected.image)
    np.testing.assert_array_equal(found.mask, expected.mask)
    assert path.read_bytes() == whole


def test_a_file_is_checked_once_by_each_process(folder, tmp_path, monkeypatch):
    disk, sums = DiskCache(folder, tmp_path), []
    disk.read("train", "train0")
    true = decoded._digest
    monkeypatch.setattr(decoded, "_digest", lambda *parts: sums.append(1) or true(*parts))
    for _ in range(3):
        disk.read("train", "train0")
    assert len(sums) == 1
    pickle.loads(pickle.dumps(disk)).read("train", "train0")
    assert len(sums) == 2


def test_a_file_of_an_earlier_version_is_replaced(folder, tmp_path):
    expected = DiskCache(folder, tmp_path).read("train", "train0")
    (path,) = kept_files(tmp_path / "decoded")
    whole, (high, wide) = path.read_bytes(), expected.mask.shape
    header = struct.pack("<8sIII12x", b"faircl-1", high, wide, 1)
    path.write_bytes(header + bytes(4 * high * wide))  # black and background
    np.testing.assert_array_equal(DiskCache(folder, tmp_path).read("train", "train0").image, expected.image)
    assert path.read_bytes() == whole


def test_a_full_disk_is_a_sentence_and_leaves_nothing(folder, tmp_path, monkeypatch):
    def full(file, sample):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(decoded, "_save", full)
    with pytest.raises(UserError, match=r"Cannot keep decoded images in .*decoded: the disk is full \(\d+\.\d GB free"):
        DiskCache(folder, tmp_path).read("train", "train0")
    assert kept_files(tmp_path / "decoded") == []


def test_a_folder_that_cannot_be_written_is_known_beforehand(folder, tmp_path):
    DiskCache(folder, tmp_path).check_folder()
    assert kept_files(tmp_path / "decoded") == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"Cannot keep decoded images in .*file/decoded: the disk is full"):
        DiskCache(folder, tmp_path / "file").check_folder()


def test_a_missing_image_is_named_as_without_a_cache(folder, tmp_path):
    disk = DiskCache(folder, tmp_path)
    assert "train0" in disk.ids("train")
    (folder.root / "images/train/train0.png").unlink()
    with pytest.raises(UserError, match=r"Cannot read image .*train0\.png"):
        disk.read("train", "train0")


def test_data_without_files_cannot_be_kept_on_disk():
    with pytest.raises(UserError, match=r"train\.cache is disk, but this data set is not read from"):
        DiskCache(Painted())


def test_room_that_cannot_be_seen_is_not_named(tmp_path, monkeypatch):
    from faircl.loading import decoded_cache as decoded

    assert "GB free" in decoded._free_disk(tmp_path / "a" / "b")
    monkeypatch.setattr(decoded.shutil, "disk_usage", lambda path: (_ for _ in ()).throw(PermissionError))
    assert decoded._free_disk(tmp_path / "a" / "b") == ""
