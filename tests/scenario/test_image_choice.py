"""Which images each step trains on, against a plain loop; and what makes a scenario impossible."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.scenario import build_scenario

SETTINGS = ("overlapped", "disjoint", "sequential")


def classes(count: int, background: bool) -> Classes:
    return Classes(tuple(f"c{i}" for i in range(count)), background)


def index(presence) -> LabelIndex:
    pixels = np.asarray(presence, np.int64).reshape(len(presence), -1)
    return LabelIndex(tuple(f"img{i}" for i in range(len(pixels))), pixels)


def build(presence, split, setting="overlapped", background=True, joint=False):
    labels = index(presence)
    known = classes(labels.pixels.shape[1], background)
    return build_scenario(known, split, labels, index(presence[:1]), task="t", setting=setting, joint=joint)


def plain_choice(presence, split, setting, background):
    """The rules of the three settings, one image and one class at a time."""
    chosen, learned = [], set()
    for step in split:
        learned |= set(step)
        images = []
        for name, row in zip((f"img{i}" for i in range(len(presence))), presence, strict=True):
            shown = {i for i, pixels in enumerate(row) if pixels > 0}
            if background:
                shown.discard(0)
            if not shown & set(step):
                continue
            if setting != "overlapped" and shown - learned:
                continue
            images.append(name)
        chosen.append(tuple(images))
    return chosen


@st.composite
def cases(draw):
    background = draw(st.booleans())
    count = draw(st.integers(2, 6))
    pixels = st.lists(st.sampled_from([0, 0, 1, 40]), min_size=count, max_size=count)
    presence = draw(st.lists(pixels, min_size=1, max_size=12))
    ids = draw(st.permutations(range(int(background), count)))
    kept = ids[: draw(st.integers(1, len(ids)))]  # some classes may never be learned
    cuts = sorted(draw(st.sets(st.integers(1, len(kept) - 1)))) if len(kept) > 1 else []
    split = tuple(tuple(kept[a:b]) for a, b in zip([0, *cuts], [*cuts, len(kept)], strict=True))
    return presence, split, draw(st.sampled_from(SETTINGS)), background


@given(cases())
def test_images_of_every_step_equal_the_plain_loop(case):
    presence, split, setting, background = case
    expected = plain_choice(presence, split, setting, background)
    lookup = {f"img{i}": row for i, row in enumerate(presence)}
    possible = all(
        any(lookup[name][i] for name in images) for images, step in zip(expected, split, strict=True) for i in step
    )
    if not possible:
        with pytest.raises(UserError):
            build(presence, split, setting, background)
        return
    scenario = build(presence, split, setting, background)
    assert [step.images for step in scenario.steps] == expected
    assert [step.classes for step in scenario.steps] == list(split)
    ids = ([0] if background else []) + [i for step in split for i in step]
    assert scenario.pixels == tuple(sum(row[i] for row in presence) for i in ids)


@given(cases())
def test_disjoint_is_part_of_overlapped_and_sequential_has_the_same_images(case):
    presence, split, _, background = case
    try:
        wide, narrow, sequential = (build(presence, split, setting, background).steps for setting in SETTINGS)
    except UserError:
        assume(False)
    assert [step.images for step in narrow] == [step.images for step in sequential]
    for a, b in zip(wide, narrow, strict=True):
        assert set(b.images) <= set(a.images)


#            background  1  2  3
PRESENCE = [[5, 9, 0, 0], [5, 0, 9, 0], [5, 0, 0, 9], [5, 9, 9, 0], [5, 9, 0, 9], [5, 0, 0, 0], [0, 0, 9, 9]]


def test_written_out_by_hand():
    split = ((1,), (2,), (3,))
    assert [s.images for s in build(PRESENCE, split).steps] == [
        ("img0", "img3", "img4"),
        ("img1", "img3", "img6"),
        ("img2", "img4", "img6"),
    ]
    assert [s.images for s in build(PRESENCE, split, "disjoint").steps] == [
        ("img0",),
        ("img1", "img3"),
        ("img2", "img4", "img6"),
    ]


def test_joint_takes_every_image_of_any_step():
    (step,) = build(PRESENCE, ((1,), (2,), (3,)), joint=True).steps
    assert step.classes == (1, 2, 3)
    assert step.images == ("img0", "img1", "img2", "img3", "img4", "img6")
    # A joint run of a task that leaves class 3 out is refused nothing but images that show only class 3.
    (step,) = build(PRESENCE, ((1,), (2,)), joint=True).steps
    assert step.images == ("img0", "img1", "img3", "img4", "img6")


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("joint", [False, True])
def test_a_class_without_a_single_pixel_is_named(setting, joint):
    presence = [[5, 9, 0, 0], [5, 9, 0, 0]]
    with pytest.raises(UserError, match=r"without a single pixel in the training masks: c2, c3; annotate"):
        build(presence, ((1,), (2, 3)), setting, joint=joint)
    build(presence, ((1,),), setting, joint=joint)  # fine where the task leaves them out


@pytest.mark.parametrize("setting", ["disjoint", "sequential"])
def test_a_step_emptied_by_the_setting_is_named(setting):
    presence = [[5, 9, 9, 0], [5, 0, 0, 9]]  # class 1 is never without class 2
    with pytest.raises(UserError, match=f"Step 0 has no training image with c1 under the {setting} setting"):
        build(presence, ((1,), (2,), (3,)), setting)
    build(presence, ((2,), (1,), (3,)), "overlapped")


def test_a_step_that_keeps_images_but_loses_a_class_is_refused():
    presence = [[5, 9, 0, 0], [5, 0, 9, 9]]  # step 0 keeps the first image, where class 2 is not
    with pytest.raises(UserError, match="Step 0 has no training image with c2 under"):
        build(presence, ((1, 2), (3,)), "disjoint")
