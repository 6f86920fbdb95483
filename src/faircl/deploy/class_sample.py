"""A sample of features of every class, drawn evenly from all images of one pass."""

from __future__ import annotations

import torch
from torch import Tensor

from faircl.prototypes import sample_keys
from faircl.seeding import torch_seed

_HASH_BITS = 40
_DOUBTFUL = 1 << 62
_NO_KEY = torch.iinfo(torch.int64).max


class ClassSample:
    r"""Up to ``size`` features of every class, from as many images as possible.

    Within an image the cells of a class are put in random order, and the cell at place r of it gets the key

        key = r · 2^40 + hash(seed, image, cell)

    The cells with the smallest keys of a class are kept. So every image gives its first cell before any gives its
    second: of 500 features of a class that 20 images show, each image gives 25. The result depends on the seed and on
    the order of the images, not on how they are batched.

    Doubtful cells are put in order apart, and their keys lie above all others: they count for classes that have no
    other cell.

    Shapes: rows (K, size, D); keys (K, size) int64, in order; places beyond the features of a class have the largest
    int64.
    """

    def __init__(self, classes: int, size: int, width: int, like: Tensor, seed: int = 0) -> None:
        self.classes, self.size, self.images = classes, size, 0
        self.rows = like.new_zeros((classes, size, width))
        self.keys = torch.full((classes, size), _NO_KEY, dtype=torch.int64, device=like.device)
        self._offset = torch_seed(seed, "class sample") >> 16

    @property
    def filled(self) -> Tensor:
        """Number of features of every class, (K,) int64: the first of its rows."""
        certain = (self.keys < _DOUBTFUL).sum(1)
        return torch.where(certain > 0, certain, (self.keys != _NO_KEY).sum(1))

    @property
    def doubtful(self) -> Tensor:
        """Whether a class has features of doubtful cells alone, (K,) bool."""
        return (self.keys[:, 0] >= _DOUBTFUL) & (self.keys[:, 0] != _NO_KEY)

    @torch.no_grad()
    def add(self, features: Tensor, labels: Tensor, doubtful: Tensor | None = None) -> None:
        """Add images: features (B, D, h, w); labels (B, h, w) int64, those of K and above belong to no class.

        ``doubtful`` (B, h, w) bool marks cells that count only for classes without any other; None: none is.
        """
        height, width = features.shape[-2:]
        draws = self._offset + self.images + torch.arange(len(features), device=features.device)
        self.images += len(features)
        cells = (labels.flatten() < self.classes).nonzero()[:, 0]
        label, image = labels.flatten()[cells], cells // (height * width)
        hashes = (sample_keys(draws, height, width)[cells] >> (64 - _HASH_BITS)) + (1 << (_HASH_BITS - 1))
        doubt = torch.zeros_like(label) if doubtful is None else doubtful.flatten()[cells].long()
        groups = 2 * (image * self.classes + label) + doubt
        places = _places(groups, hashes).clamp_max(self.size)  # cells further back are never kept
        keys = doubt * _DOUBTFUL + (places << _HASH_BITS) + hashes
        found, chosen = self._smallest(label, keys)
        maps = features.flatten(2)
        pixels = cells[chosen] if len(cells) else chosen
        rows = maps[pixels // maps.shape[2], :, pixels % maps.shape[2]].to(self.rows)
        self._merge(found, rows)

    def _smallest(self, label: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest keys of every class in order, (K, n) with n ≤ size, and their places in ``keys``."""
        order = keys.argsort(stable=True)
        order = order[label[order].argsort(stable=True)]
        classes = torch.arange(self.classes + 1, device=label.device)
        bounds = torch.searchsorted(label[order].contiguous(), classes)
        first, end = bounds[:-1], bounds[1:]
        most = min(int((end - first).max()), self.size)
        place = first[:, None] + torch.arange(most, device=label.device)
        chosen = order[place.clamp_max(max(len(order) - 1, 0))]
        return keys[chosen].where(place < end[:, None], _NO_KEY), chosen

    def _merge(self, keys: Tensor, rows: Tensor) -> None:
        """Keep the smallest of the keys so far and the new ones (K, n), with their rows (K, n, D)."""
        merged, source = torch.cat([self.keys, keys], 1).sort(stable=True)
        self.keys, source = merged[:, : self.size], source[:, : self.size, None]
        both = torch.cat([self.rows, rows], 1)
        self.rows = both.gather(1, source.expand(-1, -1, both.shape[2]))


def _places(groups: Tensor, hashes: Tensor) -> Tensor:
    """Return the place of every element in its group, ordered by hash: groups, hashes (n,) int64 to (n,) int64."""
    order = hashes.argsort(stable=True)
    order = order[groups[order].argsort(stable=True)]
    grouped = groups[order].contiguous()
    place = torch.arange(len(order), device=groups.device) - torch.searchsorted(grouped, grouped)
    return torch.empty_like(place).scatter_(0, order, place)
