"""Networks of other libraries with random weights that look trained, on disk."""

import json

import torch
import transformers
from network_tester import enliven
from torchvision.models import segmentation

LABELS = ("background", "cat", "dog", "tree", "sky")


@torch.no_grad()
def make_segformer(folder, labels=LABELS, **config):
    """Write a SegFormer b0 as transformers does; return the network."""
    torch.manual_seed(0)
    names = dict(enumerate(labels))
    made = transformers.SegformerForSemanticSegmentation(
        transformers.SegformerConfig(id2label=names, label2id={name: id for id, name in names.items()}, **config)
    )
    torch.nn.init.normal_(made.decode_head.classifier.weight, std=2.0)  # a network with opinions
    enliven(made, 64)
    made.save_pretrained(folder)
    return made


@torch.no_grad()
def make_deeplab(name, classes, aux=False):
    """Return torchvision's DeepLabV3."""
    torch.manual_seed(1)
    build = getattr(segmentation, f"deeplabv3_{name}")
    made = build(weights=None, weights_backbone=None, num_classes=classes, aux_loss=aux)
    torch.nn.init.normal_(made.classifier[4].weight, std=1.0)
    return enliven(made, 64)


def normalised(image):
    """An image (H, W, 3) uint8 as torchvision and transformers want it, (1, 3, H, W)."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((torch.from_numpy(image) / 255 - mean) / std).permute(2, 0, 1)[None]


@torch.no_grad()
def masks_of(network, image):
    """The class of every pixel (H, W), computed by the library's own network."""
    x = normalised(image)
    found = network(x)
    logits = found["logits" if "logits" in found else "out"]
    return torch.nn.functional.interpolate(logits, x.shape[-2:], mode="bilinear", align_corners=False)[0].argmax(0)


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8"))
