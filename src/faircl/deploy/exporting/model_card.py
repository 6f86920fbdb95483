"""The model card of an exported network: what it is, its classes, how evenly it segments them, how to use it."""

from __future__ import annotations

from pathlib import Path

from faircl.config.run import RunConfig
from faircl.deploy.exporting.contract import Source
from faircl.metrics import StepMetrics
from faircl.runs.reading import step_metrics
from faircl.scenario import short_task
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

`model.config.id2label` names the labels. With `faircl` installed, `faircl.load(FOLDER).predict("photo.jpg")` gives
the same mask with names, colours and areas."""
_FAIRCL = """\
The package `faircl` loads it; transformers has no such network.

```python
import faircl

prediction = faircl.load(FOLDER).predict("photo.jpg")
print(prediction.areas())
prediction.overlay().save("overlay.png")
```"""
_CARD = """\
---
library_name: {library}
pipeline_tag: image-segmentation
tags: [semantic-segmentation, continual-learning, fairness, faircl]
---

# {network} on {data}, {classes} classes

A network for semantic segmentation that learned its classes {steps}: network `{network}`, method `{method}`, data
`{data}`, task `{task}`. The folder `faircl/` is the run: all settings, the scenario, every evaluation, and what is
needed to teach the network further classes.

## Use

{use}

## Classes

IoU in percent on the {images} images{scored}, after the last step.

{class_table}

## How evenly

Mean IoU over groups of classes and its standard deviation between the classes of a group:

{group_table}

{worst}

## Intended use and limits

Segmenting images like those it was trained on into the classes above. Every pixel gets one of them, whatever it shows.
The numbers hold for the {images} images of that data; for images from elsewhere, and above all for classes with a low
IoU, measure before you rely on them.

## Training data

`{data}`. The training and test images of every step are listed in `faircl/scenario.json`.

## Licence

Not stated. Add one (`license:` at the top of this file) that fits the training data and the starting weights.
"""


def model_card(source: Source, transformers: bool) -> str:
    """Return the card in markdown; ``transformers`` says whether transformers loads the folder."""
    metrics = step_metrics(source.folder.records())[: source.step + 1][-1]
    return _CARD.format(
        library="transformers" if transformers else "faircl",
        network=source.network.name,
        method=source.config.method.name,
        data=data_name(source.config),
        task=short_task(source.scenario.task),
        classes=len(source.names),
        steps=f"in {source.step + 1} steps" if source.step else "in one step",
        use=_TRANSFORMERS if transformers else _FAIRCL,
        images=metrics.images,
        scored="" if metrics.convention == "full" else f" by the convention {metrics.convention}",
        class_table=_class_table(source, metrics).text("markdown").strip(),
        group_table=_group_table(metrics).text("markdown").strip(),
        worst=_worst(metrics),
    )


def data_name(config: RunConfig) -> str:
    """Return the kind of data set, with the name of its folder where it has one."""
    root = getattr(config.data, "root", None)
    return f"{config.data.name} {root.name}" if isinstance(root, Path) and root.name else config.data.name


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
        [text, metrics.groups[name].miou, metrics.groups[name].std] for name, text in words.items()
    ]
    return Table([Column("Classes"), Column("mIoU", 1), Column("STD", 1)], rows)


def _worst(metrics: StepMetrics) -> str:
    if metrics.worst is None or metrics.best is None:
        return "No class occurs in these images."
    return (
        f"Worst class: {metrics.worst.name} ({metrics.worst.iou:.1f}). Best: {metrics.best.name} "
        f"({metrics.best.iou:.1f}). Gap between them: {metrics.gap:.1f}. Rarest third of the classes: "
        f"{metrics.rarest_third:.1f}."
    )
