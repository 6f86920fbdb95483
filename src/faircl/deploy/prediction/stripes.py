"""Segmenting images as they come: stripes of windows of a large one, batches of small ones.

Only the part of a window around its centre counts (`faircl.deploy.prediction.windows`). Blending the logits of
overlapping windows would mix in values from near a window's border, where the network saw padding in place of the
image: then not even a network with a small receptive field would give the mask of the whole image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from faircl.data.sample import Image
from faircl.deploy.prediction.inference import Inference, Maps
from faircl.deploy.prediction.options import PredictOptions
from faircl.deploy.prediction.windows import Window, windows

T = TypeVar("T")


class Stripe(NamedTuple):
    """Rows of an image from ``top`` on: their pixels (h, W, 3) and maps (h, W)."""

    top: int
    image: Image
    maps: Maps


def stripe_count(height: int, options: PredictOptions) -> int:
    """Return the number of stripes of an image."""
    return 1 if options.tile is None else len(windows(height, options.tile, options.shared))


def tiled(inference: Inference, image: Image, options: PredictOptions) -> Iterator[Stripe]:
    """Segment an image in windows; yield it from top to bottom, one row of windows at a time."""
    assert options.tile is not None
    height, width = image.shape[:2]
    columns = windows(width, options.tile, options.shared)
    for row in windows(height, options.tile, options.shared):
        parts: list[Maps] = []
        counted = slice(row.first - row.start, row.last - row.start)
        groups = _column_groups(columns, inference.batch(options))
        for group, maps in _in_flight(groups, _starter(inference, image, row, options)):
            for k, one in enumerate(group):
                parts.append(maps.part(k, counted, slice(one.first - one.start, one.last - one.start)))
        yield Stripe(row.first, image[row.first : row.last], Maps.joined(parts, axis=1))


def segmented(
    inference: Inference, images: Iterable[tuple[T, Image]], options: PredictOptions
) -> Iterator[tuple[T, Image, Iterator[Stripe]]]:
    """Segment images, each with something that names it; yield them in order, each with its stripes."""
    if options.tile is not None:
        for name, image in images:
            yield name, image, tiled(inference, image, options)
        return

    def start(group: Sequence[tuple[T, Image]]) -> Callable[[], Maps]:
        return inference.start([image for _, image in group], options)

    for group, maps in _in_flight(_same_size(images, inference.batch(options)), start):
        for k, (name, image) in enumerate(group):
            yield name, image, iter([Stripe(0, image, maps.part(k))])


def joined(stripes: Sequence[Stripe]) -> Maps:
    """Return the maps of a whole image."""
    return Maps.joined([stripe.maps for stripe in stripes], axis=0)


def _starter(
    inference: Inference, image: Image, row: Window, options: PredictOptions
) -> Callable[[Sequence[Window]], Callable[[], Maps]]:
    def start(group: Sequence[Window]) -> Callable[[], Maps]:
        return inference.start([image[row.start : row.stop, one.start : one.stop] for one in group], options)

    return start


def _in_flight(groups: Iterable[T], start: Callable[[T], Callable[[], Maps]]) -> Iterator[tuple[T, Maps]]:
    """Start every group before the result of the one before it is waited for."""
    before: tuple[T, Callable[[], Maps]] | None = None
    for group in groups:
        now = (group, start(group))
        if before is not None:
            yield before[0], before[1]()
        before = now
    if before is not None:
        yield before[0], before[1]()


def _column_groups(columns: Sequence[Window], batch: int) -> Iterator[Sequence[Window]]:
    """Group windows for a batch; the last one may be narrower and is alone then."""
    full = columns[0].stop - columns[0].start
    equal = [one for one in columns if one.stop - one.start == full]
    for k in range(0, len(equal), batch):
        yield equal[k : k + batch]
    if len(equal) < len(columns):
        yield columns[-1:]


def _same_size(images: Iterable[tuple[T, Image]], batch: int) -> Iterator[list[tuple[T, Image]]]:
    """Group up to ``batch`` consecutive images of one size."""
    group: list[tuple[T, Image]] = []
    for name, image in images:
        if group and (len(group) == batch or group[0][1].shape != image.shape):
            yield group
            group = []
        group.append((name, image))
    if group:
        yield group
