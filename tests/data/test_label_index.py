"""Counting masks: against plain loops, in this process and in others, with and without the cache."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from faircl.data.cache_files import cache_folder
from faircl.data.count_cache import CountCache
from faircl.data.counting_pool import CHUNK, count_in_processes
from faircl.data.label_index import MIN_FOR_PROCESSES, index_labels
from faircl.data.mask_coding import MaskCoding
from faircl.data.masks import ColourTable, write_mask
from faircl.errors import UserError
from faircl.readers.folder import FolderData


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FAIRCL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make(root: Path, count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    (root / "masks/train").mkdir(parents=True)
    (root / "classes.txt").write_text("background\na\nb\nc\n")
    masks = []
    for k in range(count):
        mask = rng.choice([0, 1, 2, 3, 255], (rng.integers(1, 9), rng.integers(1, 9)), p=[0.4, 0.3, 0.2, 0.05, 0.05])
        masks.append(mask.astype(np.uint8))
        write_mask(root / "masks/train" / f"{k:04d}.png", masks[-1])
    return masks


def check(index, masks) -> None:
    """Every count, one pixel at a time."""
    assert index.ids == tuple(f"{k:04d}" for k in range(len(masks)))
    for row, mask in enumerate(masks):
        flat = mask.ravel().tolist()
        assert index.pixels[row].tolist() == [flat.count(c) for c in range(4)]
        assert index.ignored[row] == flat.count(255)
        assert index.sizes[row].tolist() == list(mask.shape)


def refuse(*_):
    raise AssertionError("a mask was counted again")


@pytest.mark.parametrize("count", [1, 5, MIN_FOR_PROCESSES + CHUNK + 3])
def test_counts_equal_a_plain_loop_the_first_time_and_the_second(count, cache, tmp_path, monkeypatch):
    masks = make(tmp_path / "data", count)
    check(index_labels(FolderData(tmp_path / "data"), "train"), masks)
    monkeypatch.setattr(MaskCoding, "count", refuse)
    check(index_labels(FolderData(tmp_path / "data"), "train"), masks)


def test_the_cache_goes_by_content(cache, tmp_path, monkeypatch):
    masks = make(tmp_path / "data", 4)
    path = tmp_path / "data/masks/train/0001.png"
    index_labels(FolderData(tmp_path / "data"), "train")
    # Another content under the same name, size and dates is noticed.
    about = path.stat()
    masks[1] = np.roll(masks[1] % 4, 1) if masks[1].size > 1 else 1 - masks[1]
    write_mask(path, masks[1])
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    check(index_labels(FolderData(tmp_path / "data"), "train"), masks)
    # The same contents under other names, in another tree, are not counted again.
    os.rename(tmp_path / "data", tmp_path / "moved")
    for k in range(4):
        os.rename(tmp_path / f"moved/masks/train/{k:04d}.png", tmp_path / f"moved/masks/train/x{k}.png")
    monkeypatch.setattr(MaskCoding, "count", refuse)
    moved = index_labels(FolderData(tmp_path / "moved"), "train")
    assert [row.tolist() for row in moved.pixels] == [[(m == c).sum() for c in range(4)] for m in masks]


def test_another_meaning_of_the_same_bytes_is_counted_anew(cache, tmp_path):
    root = tmp_path / "data"
    (root / "masks/train").mkdir(parents=True)
    Image.fromarray(np.array([[[255, 0, 0], [0, 255, 0]]], np.uint8)).save(root / "masks/train/a.png")
    for lines, pixels in (("x 255 0 0\ny 0 255 0\n", [1, 1]), ("x 0 255 0\ny 255 0 0\nz 1 1 1\n", [1, 1, 0])):
        (root / "classes.txt").write_text(lines)
        assert index_labels(FolderData(root), "train").pixels.tolist() == [pixels]
    (root / "classes.txt").write_text("x 255 0 0\ny 0 0 255\n")
    with pytest.raises(UserError, match=r"colour \(0, 255, 0\)"):
        index_labels(FolderData(root, ignore_colour=None), "train")
    assert index_labels(FolderData(root, ignore_colour=(0, 255, 0)), "train").ignored.tolist() == [1]


@pytest.mark.parametrize(
    "content", [b"", b"broken", None, {"digests": np.zeros((3, 16), np.uint8), "rows": np.zeros((2, 9), np.int64)}]
)
def test_a_damaged_cache_is_made_again(content, cache, tmp_path):
    masks = make(tmp_path / "data", 3)
    data = FolderData(tmp_path / "data")
    path = CountCache(data.coding.fingerprint, 4).path
    path.parent.mkdir(parents=True)
    if content is None:
        path.mkdir()
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        path.write_bytes(content)
    check(index_labels(data, "train"), masks)


@pytest.mark.parametrize("damage", [lambda data: data[:300], lambda data: data[:200] + b"?" + data[201:]])
def test_a_cut_or_changed_cache_is_made_again(damage, cache, tmp_path):
    masks = make(tmp_path / "data", 30)
    data = FolderData(tmp_path / "data")
    index_labels(data, "train")
    path = CountCache(data.coding.fingerprint, 4).path
    path.write_bytes(damage(path.read_bytes()))
    check(index_labels(data, "train"), masks)


def test_no_flipped_bit_of_the_cache_changes_a_count(cache, tmp_path):
    make(tmp_path / "data", 5)
    data = FolderData(tmp_path / "data")
    index_labels(data, "train")
    store = CountCache(data.coding.fingerprint, 4)
    whole, expected = store.path.read_bytes(), {key: row.tolist() for key, row in store.rows.items()}
    assert len(expected) == 5
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        store.path.write_bytes(damaged)
        found = {key: row.tolist() for key, row in CountCache(data.coding.fingerprint, 4).rows.items()}
        assert found in ({}, expected), place


def test_counts_that_were_changed_and_packed_again_are_not_believed(cache, tmp_path):
    masks = make(tmp_path / "data", 5)
    data = FolderData(tmp_path / "data")
    index_labels(data, "train")
    path = CountCache(data.coding.fingerprint, 4).path
    with np.load(path) as saved:
        content = dict(saved)
    content["rows"][2, 1] ^= 1
    np.savez(path, **content)  # with matching checksums of the archive
    check(index_labels(data, "train"), masks)


def test_a_cache_that_cannot_be_written_is_a_note(tmp_path, monkeypatch, silent):
    masks = make(tmp_path / "data", 3)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FAIRCL_CACHE", str(tmp_path / "file"))
    reporter = silent()
    check(index_labels(FolderData(tmp_path / "data"), "train", reporter), masks)
    assert "could not be kept" in reporter.said[0]


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("FAIRCL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_folder() == tmp_path / "faircl"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder().parts[-3:] == ("Library", "Caches", "faircl")
    monkeypatch.setenv("FAIRCL_CACHE", "~/elsewhere")
    assert cache_folder() == Path.home() / "elsewhere"


def test_a_broken_mask_among_many_is_one_sentence(cache, tmp_path):
    make(tmp_path / "data", MIN_FOR_PROCESSES + 5)
    (tmp_path / "data/masks/train/0200.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    with pytest.raises(UserError, match=r"0200\.png cannot be decoded"):
        index_labels(FolderData(tmp_path / "data"), "train")


class Local(FolderData):
    """A reader that only this process knows: the tests' module cannot be imported elsewhere."""

    def __reduce__(self):
        raise pickle.PicklingError


def test_a_reader_that_cannot_be_sent_is_used_here(cache, tmp_path):
    masks = make(tmp_path / "data", MIN_FOR_PROCESSES + 1)
    data = Local(tmp_path / "data")
    assert count_in_processes(data, "train", data.ids("train"), (), lambda: None) is None
    check(index_labels(data, "train"), masks)


def test_a_worker_that_is_killed_does_not_lose_a_mask(cache, tmp_path, monkeypatch):
    masks = make(tmp_path / "data", MIN_FOR_PROCESSES + 1)
    dead = "import sys; sys.stdin.buffer.read(1); sys.exit(1)"
    monkeypatch.setattr("faircl.data.counting_pool._WORKER", dead.replace("{", "{{"))
    check(index_labels(FolderData(tmp_path / "data"), "train"), masks)


def test_a_worker_that_dies_between_two_chunks(cache, tmp_path, monkeypatch):
    masks = make(tmp_path / "data", MIN_FOR_PROCESSES + 1)
    dies = "import sys; sys.path[:] = {path!r}; from faircl.data import counting_pool as p; a = p._send; "
    dies += "p._send = lambda sink, value: a(sink, value) or (isinstance(value, list) and sys.exit(0)); p.run_worker()"
    monkeypatch.setattr("faircl.data.counting_pool._WORKER", dies)
    check(index_labels(FolderData(tmp_path / "data"), "train"), masks)


def merged(mask):
    return np.where(mask == 2, 1, mask).astype(np.uint8)


class OwnReading(FolderData):
    def read_mask(self, split, id):
        return merged(super().read_mask(split, id))


class OwnDecoding(FolderData):
    def decode_mask(self, split, id, data):
        return merged(super().decode_mask(split, id, data))


class OwnCounting(OwnDecoding):
    def count_mask(self, split, id, data):
        counted = FolderData.count_mask(FolderData(self.root), split, id, data)
        pixels = counted.pixels.copy()
        pixels[1:3] = pixels[1:3].sum(), 0
        return counted._replace(pixels=pixels)


@pytest.mark.parametrize("kind", [OwnReading, OwnDecoding, OwnCounting])
def test_a_reader_with_a_way_of_its_own(kind, cache, tmp_path):
    """What is counted is what is read, and no other reader is given its counts, nor it others'."""
    masks = make(tmp_path / "data", 6)
    for _ in range(2):
        check(index_labels(kind(tmp_path / "data"), "train"), [merged(mask) for mask in masks])
        check(index_labels(FolderData(tmp_path / "data"), "train"), masks)


def test_the_same_image_under_two_masks_is_one_image(cache, tmp_path):
    from trees import voc_tree

    from faircl.readers.voc import VocData

    ids = ["2007_a", "2007_b", "2007_c"]
    shown = {id: np.full((2, 3), 5, np.uint8) for id in ids}
    for images in (True, False):
        root = voc_tree(tmp_path / str(images), {"val": {"2007_b": shown["2007_b"]}}, augmented=shown, images=images)
        (root / "ImageSets/Segmentation/train_aug.txt").write_text("\n".join(ids))
        data = VocData(root)
        train, val = (index_labels(data, split) for split in ("train_aug", "val"))
        assert val.files[0] == train.files[1]
        assert len(set(train.files)) == 3


def test_workers_know_nothing_of_torch():
    code = "import sys; import faircl.data.label_index, faircl.scenario; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_a_script_without_a_main_guard(cache, tmp_path):
    make(tmp_path / "data", MIN_FOR_PROCESSES + 1)
    script = tmp_path / "script.py"
    script.write_text(
        "from faircl.readers.folder import FolderData\nfrom faircl.data.label_index import index_labels\n"
        f"print(len(index_labels(FolderData({str(tmp_path / 'data')!r}), 'train').ids))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str(MIN_FOR_PROCESSES + 1), "")


# ---- codings


def coded(tmp_path, coding, values, palette=None):
    image = Image.fromarray(values)
    if palette is not None:
        image.putpalette(palette)
    image.save(tmp_path / "m.png")
    data = (tmp_path / "m.png").read_bytes()
    mask, counted = coding.decode(data, tmp_path / "m.png"), coding.count(data, tmp_path / "m.png")
    assert counted.pixels.tolist() == [(mask == c).sum() for c in range(coding.classes)]
    assert counted.ignored == (mask == np.iinfo(mask.dtype).max).sum()
    return mask.tolist()


def test_a_palette_sorted_anew_is_read_by_its_colours(tmp_path):
    coding = MaskCoding(3, ColourTable({(0, 0, 0): 0, (128, 0, 0): 1, (0, 128, 0): 2}, (9, 9, 9)))
    stored = np.array([[0, 1], [2, 3]], np.uint8)
    assert coded(tmp_path, coding, stored, [0, 128, 0, 0, 0, 0, 9, 9, 9, 128, 0, 0]) == [[2, 0], [255, 1]]
    # Colours that no class has are decoration, and the numbers count.
    assert coded(tmp_path, coding, stored % 3, [1, 1, 1, 2, 2, 2, 3, 3, 3]) == [[0, 1], [2, 0]]


def test_values_that_stand_for_other_ids(tmp_path):
    values = np.full(256, 65533, np.uint16)
    values[[7, 8, 255]] = 0, 1, 65535
    coding = MaskCoding(2, values=values, hint="expected 7 and 8.")
    assert coded(tmp_path, coding, np.array([[7, 8, 255]], np.uint8)) == [[0, 1, 255]]
    with pytest.raises(UserError, match=r"holds value 9 in 1 pixels .*expected 7 and 8"):
        coded(tmp_path, coding, np.array([[7, 9, 10]], np.uint8))


def test_many_classes_and_sixteen_bits(tmp_path):
    coding = MaskCoding(300)
    assert coded(tmp_path, coding, np.array([[0, 299, 65535, 255]], np.uint16)) == [[0, 299, 65535, 255]]
    assert coded(tmp_path, coding, np.array([[0, 7, 255]], np.uint8)) == [[0, 7, 65535]]
    assert coded(tmp_path, MaskCoding(3), np.array([[0, 2, 65535, 255]], np.uint16)) == [[0, 2, 255, 255]]
    few = MaskCoding(300, ColourTable({(0, 0, 0): 0, (9, 9, 9): 1}, (1, 1, 1)))  # ignore is 255 in its table, not here
    assert coded(tmp_path, few, np.array([[0, 1, 2]], np.uint8), [0, 0, 0, 1, 1, 1, 9, 9, 9]) == [[0, 65535, 1]]


def test_fingerprints_tell_codings_apart():
    table = np.array([0, 1], np.uint16)
    codings = [
        MaskCoding(3),
        MaskCoding(4),
        MaskCoding(3, has_ignore=False),
        MaskCoding(3, values=table),
        MaskCoding(3, values=table[::-1].copy()),
        MaskCoding(3, ColourTable({(0, 0, 0): 0})),
        MaskCoding(3, ColourTable({(0, 0, 0): 1})),
        MaskCoding(3, ColourTable({(0, 0, 0): 0}, (1, 1, 1))),
    ]
    assert len({coding.fingerprint for coding in codings}) == len(codings)
    assert MaskCoding(3, listed_in="x", hint="y").fingerprint == MaskCoding(3).fingerprint  # words change nothing
