"""Wrong data and settings: one sentence each, and no half-made run folder (see conftest.py for what is checked)."""

import shutil

import numpy as np
import pytest
from PIL import Image

# ---- data


def test_missing_data_folder(on_folder, street):
    shutil.rmtree(street)
    on_folder("does not exist")


def test_data_folder_is_a_file(on_folder, street):
    shutil.rmtree(street)
    street.write_text("")
    on_folder("is not a folder")


def test_empty_data_folder(on_folder, street):
    shutil.rmtree(street)
    street.mkdir()
    on_folder("has no classes.txt")


def test_no_data_root(on_folder):
    on_folder("set data.root", "data.root=null")


def test_no_images(on_folder, street):
    for kind in ("images", "masks"):
        for file in (street / kind / "train").iterdir():
            file.unlink()
    on_folder("Split 'train' of")


def test_no_test_split(on_folder, street):
    shutil.rmtree(street / "images/test")
    on_folder("Split 'test' has")


def test_unknown_split(on_folder):
    on_folder("Did you mean 'train'?", "data.train=trian")


def test_mask_without_image(on_folder, street):
    (street / "images/train/train-00003.png").unlink()
    on_folder("1 mask with no image: masks/train/train-00003.png")


def test_image_without_mask(on_folder, street):
    (street / "masks/test/test-00001.png").unlink()
    on_folder("1 image with no mask: images/test/test-00001.png")


def test_sizes_that_differ(on_folder, street):
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(street / "images/train/train-00003.png")
    on_folder("is 32x32 pixels, but its image")


def test_value_beyond_the_classes(on_folder, street):
    Image.fromarray(np.full((32, 32), 77, np.uint8)).save(street / "masks/test/test-00001.png")
    on_folder("77")


@pytest.mark.parametrize("file", ["images/train/train-00005.png", "masks/train/train-00005.png"])
@pytest.mark.parametrize("keep", [0, 60, 200])
def test_truncated_file(on_folder, street, file, keep):
    (street / file).write_bytes((street / file).read_bytes()[:keep])
    on_folder("cannot be decoded")


def test_class_without_a_single_pixel(on_folder, street):
    with (street / "classes.txt").open("a") as file:
        file.write("unicorn\n")
    on_folder("Classes without a single pixel in the training masks: unicorn", "scenario.task=6-5")


def test_nothing_but_background(on_folder, street):
    (street / "classes.txt").write_text("background\n")
    on_folder("besides background", "scenario.task=offline")


@pytest.mark.parametrize("setting", ["disjoint", "sequential"])
def test_step_emptied_by_the_setting(on_folder, setting):
    on_folder("Step 0 has no training image with", f"scenario.setting={setting}")


# ---- settings


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("optm.lr=1", "Unknown setting 'optm'. Did you mean 'optim'?"),
        ("train.epoch=1", "Did you mean 'epochs'?"),
        ("method.lambda_clas=1", "Did you mean 'lambda_class'?"),
        ("method.name=fairlc", "Unknown method 'fairlc'. Did you mean 'faircl'?"),
        ("model.name=smal", "Unknown model 'smal'. Did you mean 'small'?"),
        ("data.name=scene", "Unknown data set 'scene'. Did you mean 'scenes'?"),
        ("data.size=8", "at least 32"),
        ("data.images=0", "at least 1"),
        ("scenario.task=6-x", "Unknown task '6-x'"),
        ("scenario.task=15-1", "more classes than the data"),
        ("scenario.task=[[road], [caar]]", "Did you mean 'car'?"),
        ("scenario.order=[1, 2]", "scenario.order names 2 different classes"),
        ("seed", "expected key=value"),
        ("train.scale=[1", "expected YAML"),
        ("train.precision=fp16", "fp16 needs a GPU"),
    ],
)
def test_wrong_setting(train, setting, words, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    train(words, setting)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["train", "dmo", "--out", "x"], "Unknown recipe 'dmo'. Did you mean 'demo'?"),
        (["train", "gone.yaml", "--out", "x"], "Cannot read gone.yaml"),
        (["config", "show", "dmo"], "Did you mean 'demo'?"),
        (["config", "show", "demo", "--set", "sed=1"], "Did you mean 'seed'?"),
        (["methods", "fairlc"], "Did you mean 'faircl'?"),
        (["models", "smal", "--json"], "Did you mean 'small'?"),
        (["eval", "nowhere"], "nowhere is not a run folder"),
        (["demo", "--set", "train.epoch=1"], "Did you mean 'epochs'?"),
        (["data", "synth", "--out", "x", "--images", "0"], "images of at least 1"),
        (["data", "synth", "--out", "x", "--size", "16"], "size of at least 32"),
    ],
)
def test_other_commands(refused, args, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(words, *args)
    assert not (tmp_path / "x").exists()
    assert not (tmp_path / "runs").exists()
