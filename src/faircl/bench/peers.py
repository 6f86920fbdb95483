"""Baselines of ``faircl bench step``: an update in plain torch, of network, upsampled logits and cross-entropy.

The network is the one that is timed, in torch's default memory format; SegFormer is replaced by the implementation of
transformers, with its own decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn

from faircl.errors import UserError
from faircl.labels import IGNORE
from faircl.models.segformer import SIZES, SegFormer
from faircl.models.segmenter import Segmenter

Peer = Literal["eager", "compiled"]
PEERS: tuple[Peer, ...] = ("eager", "compiled")


def make_plain_update(
    network: Segmenter, classes: int, fabric: Fabric, image: Tensor, labels: Tensor, peer: Peer
) -> Callable[[], Tensor]:
    """Return a function that runs one update on image (B, 3, H, W) and labels (B, H, W) and returns the loss.

    ``compiled`` runs the forward pass and the loss under torch.compile, in channels_last.
    """
    if labels.numel() * classes >= 2**31:
        raise UserError(
            f"The plain step would need {labels.numel() * classes:.2g} upsampled logits at once, more than torch's "
            "cross_entropy can index; leave --peer out, or lower --batch, --size or --classes."
        )
    model = _plain_network(network, classes).to(fabric.device).train()
    if peer == "compiled":
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def loss(image: Tensor, labels: Tensor) -> Tensor:
        logits = F.interpolate(model(image), labels.shape[-2:], mode="bilinear", align_corners=False)
        return F.cross_entropy(logits, labels, ignore_index=IGNORE)

    run = torch.compile(loss, dynamic=False) if peer == "compiled" else loss

    def update() -> Tensor:
        with fabric.autocast():
            value: Tensor = run(image, labels)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    return update


def _plain_network(network: Segmenter, classes: int) -> nn.Module:
    """Return a module that maps images (B, 3, H, W) to logits (B, classes, h, w)."""
    if isinstance(network, SegFormer) and not network.decoder.bare:
        return _transformers_segformer(network, classes)
    network.classifier.grow(classes)
    return _LogitsOnly(network)


class _LogitsOnly(nn.Module):
    """Returns the ``logits`` attribute of a network's output."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.network(image).logits
        return logits


def _transformers_segformer(network: SegFormer, classes: int) -> nn.Module:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    size = SIZES[network.config.variant]
    config = SegformerConfig(
        depths=list(size.depths),
        hidden_sizes=list(size.widths),
        decoder_hidden_size=size.decoder,
        drop_path_rate=network.config.drop_path,
        num_labels=classes,
    )
    return _LogitsOnly(SegformerForSemanticSegmentation(config))
