"""Saliency maps: read in any coding, checked before training, cropped and flipped with their image."""

import numpy as np
import pytest
import torch
from PIL import Image

from faircl.data.saliency import SaliencyMaps
from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.loading.batch import PackedBatch
from faircl.loading.step_dataset import Augmentation, StepDataset
from faircl.readers.base import FolderConfig, SceneConfig
from faircl.readers.scenes import SceneData

WANTED = np.array([[0, 1, 1], [0, 0, 1]], np.uint16)


def picture(mode: str) -> Image.Image:
    values = {"1": WANTED.astype(bool), "I;16": WANTED * 300}.get(mode)
    if values is None:
        values = np.array([[0, 1, 255], [0, 0, 7]], np.uint8)
    if mode in ("1", "I;16", "L"):
        return Image.fromarray(values)
    if mode == "P":
        made = Image.fromarray(values).convert("P")
        made.putpalette([255 - k for k in range(256) for _ in range(3)])  # index 0 is white
        return made
    only_blue = np.stack([0 * values, 0 * values, values], 2)
    if mode == "RGB":
        return Image.fromarray(only_blue)
    opaque = np.full((2, 3, 1), 255, np.uint8)
    return Image.fromarray(np.concatenate([values[..., None] if mode == "LA" else only_blue, opaque], 2), mode)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Pillow's, of the mode given above
@pytest.mark.parametrize("mode", ["1", "L", "P", "I;16", "RGB", "LA", "RGBA"])
def test_all_but_zero_is_salient(mode, tmp_path):
    (tmp_path / "berlin").mkdir()
    picture(mode).save(tmp_path / "berlin/a.png")
    found = SaliencyMaps(tmp_path).read("berlin/a", (2, 3))
    assert found.dtype == np.uint16
    assert np.array_equal(found, WANTED)


def write(folder, id, size):
    folder.mkdir(exist_ok=True)
    Image.fromarray(np.zeros(size, np.uint8)).save(folder / f"{id}.png")


def test_every_map_is_checked(tmp_path):
    maps = SaliencyMaps(tmp_path / "maps")
    for id in "abcde":
        write(maps.folder, id, (4, 6))
    images = [(id, (4, 6)) for id in "abcde"]
    maps.check(images)
    with pytest.raises(UserError, match=r"e\.png is 6x4 pixels, but its image is 4x6 \(width x height\)"):
        maps.check([*images[:4], ("e", (6, 4))])
    (maps.folder / "c.png").write_bytes(b"\x89PNG\r\n")
    with pytest.raises(UserError, match=r"c\.png cannot be read"):
        maps.check(images)
    write(maps.folder, "c", (4, 6))
    whole = (maps.folder / "c.png").read_bytes()
    (maps.folder / "c.png").write_bytes(whole[:-20])
    with pytest.raises(UserError, match=r"c\.png cannot be read: it is no PNG, is cut off"):
        maps.check(images)
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(maps.folder / "c.png", format="JPEG")
    with pytest.raises(UserError, match=r"c\.png cannot be read: it is no PNG"):
        maps.check(images)
    for id in "abcd":
        (maps.folder / f"{id}.png").unlink()
    with pytest.raises(UserError, match=r"lacks the maps of 4 of 5 training images: a\.png, b\.png, c\.png, \.\.\."):
        maps.check(images)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(UserError, match=r"Saliency folder .*nowhere does not exist; set data\.saliency"):
        SaliencyMaps(tmp_path / "nowhere").check([("a", (4, 6))])
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"Saliency folder .*file is not a folder"):
        SaliencyMaps(tmp_path / "file").check([("a", (4, 6))])


def test_reading_checks_too(tmp_path):
    maps = SaliencyMaps(tmp_path)
    write(tmp_path, "a", (4, 6))
    with pytest.raises(UserError, match="is 6x4 pixels, but its image is 5x4"):
        maps.read("a", (4, 5))
    with pytest.raises(UserError, match=r"Cannot read saliency map .*check that it exists"):
        maps.read("b", (4, 5))
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
    with pytest.raises(UserError, match=r"Saliency map .* cannot be decoded"):
        maps.read("a", (4, 6))


def test_salient_pixels_go_through_crops_flips_and_padding_exactly_as_labels_do(tmp_path):
    data = SceneData(4, 1, 40)
    images = tuple(data.ids("train"))
    for id in images:
        path = tmp_path / f"{id}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray((data.read_mask("train", id) == 2).astype(np.uint8)).save(path)
    identity = np.append(np.arange(255), IGNORE).astype(np.uint16)
    augmentation = Augmentation(24, (0.3, 2.0), True, 0.2)
    dataset = StepDataset(data, "train", images, identity, None, augmentation, 0, 0, auxiliary=SaliencyMaps(tmp_path))
    seen = padded = 0
    for draw in range(0, 60, 4):
        batch = PackedBatch.collate([dataset[draw + k, k] for k in range(4)]).to_batch()
        assert batch.auxiliary.dtype == torch.bool
        assert torch.equal(batch.auxiliary, batch.labels == 2)
        assert torch.equal(batch.to(torch.device("cpu")).auxiliary, batch.auxiliary)
        seen += bool(batch.auxiliary.any())
        padded += bool((batch.labels == IGNORE).any())
    assert seen > 10
    assert padded > 10


def test_the_folder_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = FolderConfig(root="data", saliency="maps")
    kept = config.absolute()
    assert (kept.root, kept.saliency) == (tmp_path / "data", tmp_path / "maps")
    found = SaliencyMaps(tmp_path / "maps")
    assert config.auxiliary_maps("saliency") == kept.auxiliary_maps("saliency") == found
    assert config.auxiliary_maps("depth") is config.auxiliary_maps(None) is None
    assert FolderConfig(root="data").auxiliary_maps("saliency") is None
    assert SceneConfig().auxiliary_maps("saliency") is None


# ---- through the engine


@pytest.fixture
def maps(street):
    """Maps of the training images beside a small folder: all but background is salient."""
    folder = street.parent / "maps"
    for path in (street / "masks/train").rglob("*.png"):
        to = folder / path.relative_to(street / "masks/train")
        to.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((np.asarray(Image.open(path)) != 0).astype(np.uint8) * 255).save(to)
    return folder


def test_a_run_with_maps_on_the_command_line(cli, street, maps, tmp_path, tiny_flags):
    given = [flag for flag in tiny_flags if flag != "--set" and not flag.startswith("data.")]
    given += [f"data={{name: folder, root: '{street}', saliency: '{maps}'}}", "method=ssul", "train.epochs=1"]
    flags = [part for setting in given for part in ("--set", setting)]
    done = cli("train", "demo", "--out", tmp_path / "run", *flags)
    assert done.code == 0, done.err
    scores = cli("eval", tmp_path / "run", "--json")
    assert scores.code == 0, scores.err
    next(maps.rglob("*.png")).unlink()
    refused = cli("train", "demo", "--out", tmp_path / "other", *flags)
    assert refused.code != 0
    assert "lacks the maps of 1 of" in refused.err
    assert not (tmp_path / "other").exists()


def test_a_map_of_another_size_is_found_before_training(street, maps, tmp_path, tiny_train, silent):
    first = sorted(maps.rglob("*.png"))[0]
    Image.fromarray(np.zeros((32, 31), np.uint8)).save(first)
    reporter = silent()
    data = f"data={{name: folder, root: '{street}', saliency: '{maps}'}}"
    with pytest.raises(UserError, match="is 31x32 pixels, but its image is 32x32"):
        tiny_train(tmp_path / "run", "method=ssul", data=data, reporter=reporter)
    assert not (tmp_path / "run").exists()
    assert not any("train" in task for task in reporter.tasks if task.startswith("step"))
    # A method that does not look at maps does not mind.
    assert tiny_train(tmp_path / "run", "method=finetune", "train.epochs=0.4", data=data).finished_steps() == 2


def test_checking_data_says_that_maps_are_not_looked_at(cli, street, maps):
    found = cli("data", "check", "--data", "folder", "--root", street, "--set", f"data.saliency={maps}")
    assert "saliency maps are not looked at here" in found.err
    assert "saliency" not in cli("data", "check", "--data", "folder", "--root", street).err
