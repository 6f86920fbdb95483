"""The model card of an exported network: what it is, its classes, how evenly it segments them, how to use it."""

from __future__ import annotations

from faircl.deploy.contract import Source
from faircl.metrics import StepMetrics
from faircl.runs.reading import step_metrics
from faircl.tables import Column, Table, Value

_TRANSFORMERS = """\
```python
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation

processor = AutoImageProcessor.from_pretrained(FOLDER)
model = AutoModelForSemanticSegmentation.from_pretrained(FOLDER).eval()
image = Image.open("photo.jpg").convert("RGB")
with torch.no_grad():
    output = model(**processor(images=image, return_tensors="pt"))
labels = processor.post_process_semantic_segmentation(output, [image.size[::-1]])[0]
```

`model.config.id2label` names the labels. With `faircl` installed, `faircl.load(FOLDER).predict("photo.jpg")` gives the same
mask, and more: names, colours, areas."""
_FAIRCL = """\
It needs the package `faircl`; transformers has no such network.

```python
import faircl

prediction = faircl.load(FOLDER).predict("photo.jpg")
print(prediction.areas())
prediction.overlay().save("overlay.png")
```"""


def model_card(source: Source, transformers: bool) -> str:
    """Return the card in markdown; ``transformers`` says whether transformers loads the folder."""
    config, scenario = source.config, source.scenario
    metrics = step_metrics(source.folder.records())[: source.step + 1][-1]
    data = config.data.name
    kind = "validation" if metrics.images == "validation" else "test"
    steps = f"in {source.step + 1} steps" if source.step else "in one step"
    scored = "" if metrics.convention == "full" else f", scored by the convention {metrics.convention}"
    return f"""\
---
library_name: {"transformers" if transformers else "faircl"}
pipeline_tag: image-segmentation
tags: [semantic-segmentation, continual-learning, fairness, faircl]
---

# {source.network.name} on {data}, {len(source.names)} classes

A network for semantic segmentation, trained with [faircl](faircl/config.yaml): network `{source.network.name}`, method
`{config.method.name}`, data `{data}`, task `{scenario.task}`, {steps} of learning. The folder `faircl/` is the run itself:
all settings, the scenario, every evaluation, and what is needed to teach the network further classes.

## Use

{_TRANSFORMERS if transformers else _FAIRCL}

## Classes

IoU in percent on the {kind} images of `{data}`{scored}, after the last step.

{_class_table(source, metrics).text("markdown").strip()}

## How evenly

{_group_table(metrics).text("markdown").strip()}

{_worst(metrics)} The mean alone hides classes that the network does not segment: read it with the spread and the worst
class.

## Intended use and limits

Segmenting images like those of `{data}` into the classes above. Every pixel gets one of them, whatever it shows. The numbers
hold for the {kind} images of that data; on images from elsewhere, and above all for classes with a low IoU, measure before
you rely on it.

## Training data

`{data}`. Training and {kind} images of every step are listed in `faircl/scenario.json`.

## Licence

Not stated. Add one (`license:` at the top of this file) that fits the training data and the starting weights.
"""


def _class_table(source: Source, metrics: StepMetrics) -> Table:
    colour = {id: "#{:02x}{:02x}{:02x}".format(*rgb) for id, rgb in source.colours.items()}
    rows: list[list[Value]] = [
        [str(c.id), c.name, colour.get(c.id), c.learned_at, c.iou, c.pixels]
        for c in sorted(metrics.classes, key=lambda c: c.id)
    ]
    columns = ("Id", "Class", "Colour", "Learned at step", "IoU", "Pixels")
    return Table([Column(name, digits=1) for name in columns], rows)


def _group_table(metrics: StepMetrics) -> Table:
    words = {"old": "old (before the last step)", "new": "new (at the last step)", "all": "all"}
    rows: list[list[Value]] = [
        [words[name], metrics.groups[name].miou, metrics.groups[name].std] for name in ("old", "new", "all")
    ]
    return Table([Column("Classes"), Column("mIoU", 1), Column("STD", 1)], rows)


def _worst(metrics: StepMetrics) -> str:
    if metrics.worst is None or metrics.best is None:
        return "No class occurs in these images."
    return (
        f"Worst class: {metrics.worst.name} ({metrics.worst.iou:.1f}); best: {metrics.best.name} "
        f"({metrics.best.iou:.1f}); gap {metrics.gap:.1f}; rarest third {metrics.rarest_third:.1f}."
    )
