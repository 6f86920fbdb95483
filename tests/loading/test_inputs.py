"""Caches and the place of augmentation change the speed of a run, and not a byte of it on a CPU."""

import pytest
from grids import grid
from run_files import records, states

from faircl.data.cache_files import cache_folder
from faircl.errors import UserError

NOISY = ("train.jitter=0.3", "train.later_epochs=0.4")
ON_DEVICE = "train.augment=device"


@pytest.fixture(scope="module")
def plain(tiny_train, tmp_path_factory):
    return tiny_train(tmp_path_factory.mktemp("plain") / "run", *NOISY)


@grid(
    "settings",
    [
        ("train.cache=memory",),
        (ON_DEVICE,),
        (ON_DEVICE, "train.workers=2", "train.cache=memory"),
        (ON_DEVICE, "train.cache=gpu"),
    ],
    quick=lambda settings: len(settings) == 3,
    ids=" ".join,
)
def test_not_a_byte_depends_on_them(settings, plain, tiny_train, silent, tmp_path):
    reporter = silent()
    found = tiny_train(tmp_path / "run", *NOISY, *settings, reporter=reporter)
    assert states(found) == states(plain)
    assert records(found) == records(plain)
    decoded = [task for task in reporter.tasks if "decode" in task]
    kept = any("cache" in setting for setting in settings)
    # The scan of a step's fixed windows and its training share the decoded images.
    assert decoded == (["step 0 decode", "step 1 decode"] if kept else [])


@pytest.mark.slow
def test_nor_on_files_of_the_cache(street, tiny_train, tmp_path):
    plain = tiny_train(tmp_path / "plain", *NOISY, root=street)
    runs = [tiny_train(tmp_path / f"run{k}", *NOISY, "train.cache=disk", root=street) for k in range(2)]
    assert states(plain) == states(runs[0]) == states(runs[1])
    assert any((cache_folder() / "decoded").rglob("*"))


def test_a_run_goes_on_under_another_cache_but_not_another_augmentation(tiny_train, silent, tmp_path, plain):
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", *NOISY, reporter=silent("step 1 train"))
    with pytest.raises(UserError, match="was begun with"):
        tiny_train(tmp_path / "run", *NOISY, ON_DEVICE, resume=True)
    assert states(tiny_train(tmp_path / "run", *NOISY, "train.cache=memory", resume=True)) == states(plain)


def test_images_on_the_gpu_are_cut_there(tiny_config):
    with pytest.raises(UserError, match=r"cache gpu cuts windows on the device; set augment to device as well"):
        tiny_config("train.cache=gpu")
    assert tiny_config("train.cache=gpu", ON_DEVICE).train.cache == "gpu"


def test_scenes_have_no_files_to_keep(tiny_train, tmp_path):
    with pytest.raises(UserError, match=r"train\.cache is disk, but this data set is not read from"):
        tiny_train(tmp_path / "run", "train.cache=disk")
    assert not (tmp_path / "run").exists()
