"""A scan that is limited: so many windows at most, of the step's own images, spread over all that are trained on."""

from itertools import pairwise

import pytest

from faircl.labels import IGNORE
from faircl.methods.faircl import FairCL

WINDOWS, IMAGES, MEMORY = 3, 24, 6
OWN = WINDOWS * IMAGES


@pytest.fixture(scope="module")
def scanned(tiny_train, tmp_path_factory):
    """For every limit: the windows that a scan at the end of the second step visits, their images and their labels."""
    found = {}
    end_step = FairCL.end_step

    def scan_then_end(self, context):
        for most in (None, 1, 10, OWN - 1, OWN, OWN + 1) if context.step == 1 else ():
            batches = list(context.scan(WINDOWS, most))
            found[most] = [
                (number, id, bool((labels == IGNORE).all()))
                for batch in batches
                for number, id, labels in zip(batch.windows, batch.ids, batch.labels, strict=True)
            ]
        end_step(self, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FairCL, "end_step", scan_then_end)
        folder = tiny_train(
            tmp_path_factory.mktemp("scan") / "run",
            f"method.windows={WINDOWS}",
            f"memory.images={MEMORY}",
            "train.later_epochs=20",  # every window is trained on
        )
    assert len(folder.load_scenario().steps[1].images) == IMAGES
    return found


def test_without_a_limit_the_windows_of_a_memory_are_visited_too(scanned):
    numbers = [number for number, _, _ in scanned[None]]
    assert len(set(numbers)) == len(numbers) > OWN
    assert {number for number, _, hidden in scanned[None] if hidden} == {n for n in numbers if n >= OWN}


@pytest.mark.parametrize("most", [1, 10, OWN - 1, OWN, OWN + 1])
def test_a_limit_takes_evenly_spaced_windows_of_the_steps_own_images(most, scanned):
    own = [window for window in scanned[None] if window[0] < OWN]
    assert len(own) == OWN
    places = [own.index(window) for window in scanned[most]]
    assert len(places) == min(most, OWN)
    distances = {after - before for before, after in pairwise([*places, OWN])}
    assert places[0] == 0
    assert min(distances) > 0
    assert max(distances) - min(distances) <= 1
    assert not any(hidden for _, _, hidden in scanned[most])
