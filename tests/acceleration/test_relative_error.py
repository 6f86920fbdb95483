"""The measure by which a faster pass is accepted."""

import math

import pytest
import torch

from faircl.acceleration.relative_error import relative_error

ONES, ZEROS = torch.ones(4), torch.zeros(4)


@pytest.mark.parametrize(
    ("found", "exact", "error"),
    [
        ([ONES, 3 * ONES], [ONES, 2 * ONES], 0.5),
        ([ONES, ZEROS], [ONES, ZEROS], 0),
        ([ONES], [ZEROS], math.inf),
        ([torch.full((4,), torch.nan), ONES], [ONES, ONES], math.nan),
        ([ONES], [torch.full((4,), torch.nan)], math.nan),
    ],
)
def test_the_largest_of_all_pairs(found, exact, error):
    assert relative_error(found, exact) == pytest.approx(error, nan_ok=True)
