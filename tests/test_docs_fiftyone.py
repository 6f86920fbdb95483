"""The recipe of docs/logging.md, with a stand-in for FiftyOne: it gets class ids of masks, not colours."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
from pages import blocks
from PIL import Image

import faircl


class Dataset(SimpleNamespace):
    """Keeps what it is given."""

    def __init__(self, name, overwrite=False):
        super().__init__(name=name, overwrite=overwrite, app_config=SimpleNamespace())

    def add_samples(self, samples):
        self.samples = samples


def test_the_recipe_for_fiftyone(tiny_run, tmp_path, monkeypatch):
    photos = sorted((tiny_run.path / "examples").glob("*.image.png"))
    monkeypatch.chdir(tmp_path)
    made = faircl.predict(tiny_run.path, photos, out="found", reporter=faircl.SilentReporter())
    module, shown = ModuleType("fiftyone"), []
    module.Dataset = Dataset
    module.Sample = module.Segmentation = module.ColorScheme = SimpleNamespace
    module.launch_app = lambda dataset: shown.append(dataset) or SimpleNamespace(wait=lambda: None)
    monkeypatch.setitem(sys.modules, "fiftyone", module)
    exec(compile(blocks("docs/logging.md", "python")[0], "docs/logging.md", "exec"), {})
    [dataset] = shown
    assert dataset.default_mask_targets[1] == "road"
    assert dataset.app_config.color_scheme.default_mask_targets_colors[1] == {"intTarget": 1, "color": "#800000"}
    assert [sample.filepath for sample in dataset.samples] == list(map(str, photos))
    for sample, image in zip(dataset.samples, made["images"], strict=True):
        plain, predicted = Image.open(sample.prediction.mask_path), Image.open(tmp_path / "found" / image["mask"])
        assert (plain.mode, predicted.mode) == ("L", "P")
        assert np.array_equal(np.asarray(plain), np.asarray(predicted))
