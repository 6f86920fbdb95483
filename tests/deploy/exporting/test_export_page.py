"""The snippets of docs/export.md and of a model card run as they stand."""

import numpy as np
import pytest
from exported import NETWORKS
from pages import blocks
from PIL import Image

import faircl
from faircl.progress import SilentReporter


@pytest.mark.slow
def test_every_snippet_runs(tiny_train, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = tiny_train(tmp_path / "runs/mine", NETWORKS["segformer"], "train.epochs=1").path
    image = np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8)
    Image.fromarray(image).save("photo.jpg")
    for to, out in (("onnx", "mine.onnx"), ("torch", "mine.pt2"), ("huggingface", "mine-hf")):
        faircl.export(run, to, out, reporter=SilentReporter())
    names: dict[str, object] = {"__name__": "page"}
    page = blocks("docs/export.md", "python")
    masks = []
    for number, snippet in enumerate(page):
        exec(compile(snippet, f"docs/export.md, snippet {number}", "exec"), names)
        masks.append(np.squeeze(np.asarray(names["labels" if number == 2 else "mask"])))
    expected = faircl.load(run).predict("photo.jpg").mask
    assert len(masks) == 3
    assert all((mask == expected).mean() >= 0.9999 for mask in masks)
    assert "'id': 0, 'name': 'background'" in capsys.readouterr().out
    card = (tmp_path / "mine-hf/README.md").read_text(encoding="utf-8")
    code = card.split("```python\n")[1].split("```")[0]
    exec(code, {"FOLDER": "mine-hf"})
