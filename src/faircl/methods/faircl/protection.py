"""Protection of old classes that look like a step's new ones."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from faircl.labels import BACKGROUND

MOST_TAKEN = 0.95
"""Upper bound of r_c; the offset is at least τ · log 0.05."""


def protection(taken: Tensor, classes: int, strength: float, background: bool) -> Tensor:
    r"""Return the offset that is added to the logits of labelled pixels in L_seg, (C,) for C old and new ``classes``.

        offset_c = τ · log(1 − r_c) for an old class c, 0 for background and new classes

    τ is the ``strength``. r_c (``taken``, (K,)) is the part of class c, in probabilities of the model before the step
    summed over pixels, that lies on pixels labelled as new classes.

    Example: a step adds 'coat', and its images show hardly any suits. The old model predicts 'suit' at many pixels of
    coats, where cross-entropy lowers the logit of 'suit'; no pixel labelled 'suit' raises it again, and the class is
    forgotten. With r_suit = 0.8 and τ = 3 the offset is −4.8: 'suit' gets up to e^4.8 times less gradient at these
    pixels, and the logit of 'coat' has to separate the two. A class that no new one resembles has r ≈ 0 and hardly any
    offset. Background is not protected: the pixels of new classes were background before.
    """
    kept = 1 - taken.clamp_max(MOST_TAKEN)
    if background:
        kept[BACKGROUND] = 1
    return F.pad(strength * kept.log(), (0, classes - len(taken)))
