"""Protection of old classes that look like a step's new ones."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from faircl.labels import BACKGROUND

MOST_TAKEN = 0.95
"""Largest share of an old class that counts as taken away; it bounds the offset at τ · log 0.05."""


def protection(taken: Tensor, classes: int, strength: float, background: bool) -> Tensor:
    r"""Return the offset that the logits of labelled pixels get in cross-entropy, (C,) for C old and new ``classes``.

        offset_c = τ · log(1 − r_c) for an old class c, 0 for background and new classes,

    with τ the ``strength`` and r_c the share of class c, by the predictions of the model before the step, that the
    step's labels take away (``taken``, (K,)).

    A step that adds 'coat' has images of coats and hardly any of suits. The model before it calls many of those coats
    'suit', and cross-entropy lowers the score of 'suit' wherever something looks like it, with no suit to raise it
    again: the class is lost. With r_suit = 0.8 and τ = 3 its score enters the softmax of a coat's pixel e^4.8 times
    smaller, and is lowered by that much less; what tells coats from suits has to come from the score of 'coat'. A class
    that the new one does not resemble has r near 0, and is trained as ever. New classes come out of the background, by
    the protocol: it is not protected.
    """
    kept = 1 - taken.clamp_max(MOST_TAKEN)
    if background:
        kept[BACKGROUND] = 1
    return F.pad(strength * kept.log(), (0, classes - len(taken)))
