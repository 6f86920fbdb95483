"""Digests of data: what changes them and what does not, on files and on data that are none."""

import os
import shutil
import time

import numpy as np
import pytest
from PIL import Image

from faircl.data.digests import SAMPLE_IMAGES, DataDigests, describe_changes, digest_data
from faircl.data.label_index import index_labels
from faircl.data.sample import Classes, Sample
from faircl.progress import SilentReporter
from faircl.readers.folder import FolderData


def digests(data, kind="sample", splits=("train", "test")):
    return digest_data(data, [(split, index_labels(data, split)) for split in splits], kind, SilentReporter())


def changes(before, data, kind="sample"):
    return describe_changes(before, digests(data, kind), data)


def edit(path, change):
    picture = Image.open(path)
    colours, edited = picture.getpalette(), Image.fromarray(change(np.array(picture)))
    if colours:
        edited.putpalette(colours)
    edited.save(path)


@pytest.fixture
def begun(street):
    return digests(FolderData(street))


@pytest.mark.parametrize("kind", ["sample", "full"])
def test_an_inverted_image_and_a_mirrored_mask_are_named(kind, street):
    begun = digests(FolderData(street), kind)
    edit(street / "images/train/train-00003.png", lambda pixels: 255 - pixels)
    assert changes(begun, FolderData(street), kind) == "1 of 32 images differs (images/train/train-00003.png)"
    edit(street / "masks/test/test-00001.png", lambda ids: ids[:, ::-1].copy())
    assert changes(begun, FolderData(street), kind) == (
        "1 of 32 images differs (images/train/train-00003.png), 1 of 32 masks differs (masks/test/test-00001.png)"
    )


def test_a_mirrored_mask_has_the_same_counts(street):
    """The scenario's sha256 is made of counts: it cannot notice what the test above does."""
    before = index_labels(FolderData(street), "test").pixels
    edit(street / "masks/test/test-00001.png", lambda ids: ids[:, ::-1].copy())
    assert (index_labels(FolderData(street), "test").pixels == before).all()


def test_swapped_missing_and_new_files_are_named(begun, street):
    one, other = (street / f"images/train/train-0000{k}.png" for k in (0, 1))
    one.rename(street / "aside")
    other.rename(one)
    (street / "aside").rename(other)
    for kind in ("images", "masks"):
        shutil.copy(street / f"{kind}/train/train-00005.png", street / f"{kind}/train/new.png")
        (street / f"{kind}/test/test-00007.png").unlink()
    assert changes(begun, FolderData(street)) == (
        "2 of 32 images differ (images/train/train-00000.png, images/train/train-00001.png), 1 image is missing "
        "(test/test-00007), 1 image is new (images/train/new.png)"
    )


def test_only_the_first_files_are_named(begun, street):
    for path in (street / "images/train").iterdir():
        edit(path, lambda pixels: 255 - pixels)
    assert changes(begun, FolderData(street)).endswith("train-00002.png, …)")


def test_a_copy_in_another_folder_with_other_times_is_the_same(begun, street, tmp_path):
    copy = shutil.copytree(street, tmp_path / "moved", copy_function=shutil.copyfile)
    for path in copy.rglob("*.png"):
        os.utime(path, (1, 1))
    assert changes(begun, FolderData(copy)) == ""
    assert DataDigests.from_json(begun.to_json()) == begun == digests(FolderData(copy))


def test_colours_added_to_the_class_list_change_no_mask(begun, street):
    lines = (street / "classes.txt").read_text().splitlines()
    colours = Image.open(street / "masks/test/test-00000.png").getpalette()
    named = [f"{line.split()[0]} {' '.join(map(str, colours[3 * k : 3 * k + 3]))}" for k, line in enumerate(lines)]
    (street / "classes.txt").write_text("\n".join(named))
    assert changes(begun, FolderData(street)) == ""


def test_a_sample_is_the_length_and_three_parts_of_a_file(street):
    """Bytes between the samples are seen by ``full`` alone; this is what the documentation says."""
    path, size = street / "images/train/train-00000.png", 50_000
    path.write_bytes(bytes(size))
    short, whole = (digests(FolderData(street), kind) for kind in ("sample", "full"))
    for place, seen in ((0, True), (4095, True), (4096, False), (size // 2, True), (size - 1, True), (35_000, False)):
        content = bytearray(size)
        content[place] = 1
        path.write_bytes(content)
        assert bool(changes(short, FolderData(street))) == seen, place
        assert changes(whole, FolderData(street), "full"), place
    path.write_bytes(bytes(size + 1))
    assert changes(short, FolderData(street))


class Drawn:
    """Data that are not files: image k is of colour k, or of its entry in ``colours``."""

    classes = Classes(("background", "thing"), background=True)

    def __init__(self, count=200):
        self.colours, self.masks = dict(enumerate(range(count))), {}

    def ids(self, split):
        return [str(k) for k in self.colours]

    def read_mask(self, split, id):
        return self.masks.get(id, np.eye(4, dtype=np.uint8))

    def read(self, split, id):
        return Sample(id, np.full((4, 4, 3), self.colours[int(id)], np.uint8), self.read_mask(split, id))


def test_data_that_are_not_files_have_all_masks_and_a_sample_of_images():
    data = Drawn()
    short, whole = (digests(data, kind, ["train"]) for kind in ("sample", "full"))
    taken = [id for id, (image, _) in short.splits["train"].items() if image != "-"]
    assert len(taken) == SAMPLE_IMAGES
    assert "-" not in {image for image, _ in whole.splits["train"].values()}
    left_out = next(id for id in data.ids("train") if id not in taken)
    for id, by_sample in ((taken[0], f"1 of 200 images differs (train/{taken[0]})"), (left_out, "")):
        changed = Drawn()
        changed.colours[int(id)] += 1
        assert describe_changes(short, digests(changed, "sample", ["train"]), changed) == by_sample
        found = describe_changes(whole, digests(changed, "full", ["train"]), changed)
        assert found == f"1 of 200 images differs (train/{id})"
    changed = Drawn()
    changed.masks[left_out] = np.eye(4, dtype=np.uint8)[::-1]
    assert describe_changes(short, digests(changed, "sample", ["train"]), changed) == (
        f"1 of 200 masks differs (train/{left_out})"
    )


@pytest.mark.slow
def test_twenty_thousand_images_take_seconds(tmp_path):
    for kind in ("images", "masks"):
        (tmp_path / kind / "train").mkdir(parents=True)
    (tmp_path / "classes.txt").write_text("background\nthing\n")
    mask, image = tmp_path / "masks/train/0.png", tmp_path / "images/train/0.jpg"
    Image.fromarray(np.eye(8, dtype=np.uint8)).save(mask)
    image.write_bytes(os.urandom(100_000))
    for k in range(1, 20_000):
        os.link(mask, mask.with_name(f"{k}.png"))
        os.link(image, image.with_name(f"{k}.jpg"))
    data = FolderData(tmp_path)
    index = index_labels(data, "train")
    started = time.monotonic()
    digest_data(data, [("train", index)], "sample", SilentReporter())
    assert time.monotonic() - started < 30
