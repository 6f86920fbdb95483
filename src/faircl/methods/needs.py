"""What a method needs from the engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """What the engine must provide beside the step's images and labels.

    A teacher and a scan of the step's images depend on the step: see ``Method.needs_teacher`` and ``needs_scan``.
    """

    words: str = "nothing but the step's labels"
    """All needs in one phrase, as ``faircl methods`` shows them."""
    stages: bool = False
    """``SegOutput.stages``: losses, targets or statistics read the backbone's feature maps; empty unless declared."""
    attentions: bool = False
    """``SegOutput.attentions``: the network must have attentions."""
    memory: bool = False
    """A replay memory: the configuration's ``memory.images`` must not be 0."""
    sigmoid: bool = False
    """One sigmoid per class instead of a softmax, trained by ``Method.binary_cross_entropy``."""
    auxiliary_map: str | None = None
    """``Batch.auxiliary``: the data setting that names a folder of maps, one per training image, where it is set."""
