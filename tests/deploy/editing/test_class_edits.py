"""What renaming, merging and dropping make of a list of classes, and what they refuse."""

import pytest

from faircl.data.sample import Classes
from faircl.deploy.editing.class_edits import drop, merge, rename
from faircl.deploy.matching import Known, match_classes
from faircl.errors import UserError

NAMES = ("background", "road", "Car", "van", "tree", "truck")
KNOWN = Known(Classes(NAMES, background=True), (0, 3, 1, 2, 4))  # truck is not learned
BARE = Known(Classes(("road", "car", "van"), background=False), (0, 1, 2))


# ---- what comes of it


def test_renaming_changes_names_alone():
    edit = rename(KNOWN, {"car": "vehicle", "tree": " Tree "})
    assert edit.classes.names == ("background", "road", "vehicle", "van", "Tree", "truck")
    assert edit.learned == KNOWN.learned
    assert edit.groups == ((0,), (1,), (2,), (3,), (4,))
    assert edit.what == "renamed Car to vehicle, tree to Tree"
    assert not edit.regroups


def test_names_are_exchanged():
    assert rename(KNOWN, {"van": "tree", "tree": "van"}).classes.names[3:5] == ("tree", "van")


@pytest.mark.parametrize(
    ("names", "into", "learned", "groups", "after"),
    [
        (
            ["van", "tree"],
            "thing",
            (0, 3, 1, 2),
            ((0,), (1, 4), (2,), (3,)),
            {3: "thing", 4: "tree (merged into thing)"},
        ),
        (["van", "Car"], "car", (0, 1, 2, 4), ((0,), (2,), (3, 1), (4,)), {2: "car", 3: "van (merged into car)"}),
        (["tree", "van", "road"], "x", (0, 2, 4), ((0,), (3,), (4, 1, 2)), {4: "x", 1: "road (merged into x)"}),
        (
            ["van", "background"],
            "van",
            (0, 1, 2, 4),
            ((0, 1), (2,), (3,), (4,)),
            {0: "van", 3: "van (merged into van)"},
        ),
    ],
)
def test_merging_keeps_the_place_of_one_class(names, into, learned, groups, after):
    edit = merge(KNOWN, names, into)
    assert (edit.learned, edit.groups) == (learned, groups)
    assert {id: edit.classes.names[id] for id in after} == after
    assert edit.what == f"merged {', '.join(names)} into {into}"
    assert len(edit.classes.names) == len(NAMES)


def test_dropping_leaves_the_order_of_the_others():
    edit = drop(KNOWN, ["van", "road"])
    assert (edit.learned, edit.groups) == ((0, 2, 4), ((0,), (3,), (4,)))
    assert edit.classes.names[:4] == ("background", "road (dropped)", "Car", "van (dropped)")
    assert drop(BARE, ["road"]).learned == (1, 2)


def test_a_dropped_name_comes_back_under_another_id():
    edit = drop(KNOWN, ["van"])
    matching = match_classes(Known(edit.classes, edit.learned), Classes(("background", "van"), background=True))
    assert matching.new == (6,)
    assert rename(Known(edit.classes, edit.learned), {"Car": "van"}).classes.names[2] == "van"


# ---- what is refused


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({}, "No class to rename"),
        ({"trea": "x"}, "Unknown class 'trea'. Did you mean 'tree'?"),
        ({"truck": "x"}, "Unknown class 'truck'"),
        ({"van": "CAR"}, "Another class is called 'Car' already"),
        ({"van": "truck"}, "which it has not learned"),
        ({"van": "x", "tree": "X"}, "Two classes are to be called 'x'"),
        ({"car": "x", "Car": "y"}, "One class is to have two names"),
        ({"van": "van"}, "has that name already"),
        ({"van": " "}, "cannot be the name"),
        ({"van": "a\nb"}, "cannot be the name"),
    ],
)
def test_wrong_renaming(names, message):
    with pytest.raises(UserError) as error:
        rename(KNOWN, names)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("known", "names", "into", "message"),
    [
        (KNOWN, ["van"], "x", "two classes or more, found van"),
        (KNOWN, [], "x", "two classes or more, found none"),
        (KNOWN, ["van", "VAN"], "x", "named twice"),
        (KNOWN, ["van", "vam"], "x", "Did you mean 'van'?"),
        (KNOWN, ["van", "tree"], "car", "Another class is called 'Car' already"),
        (KNOWN, ["van", "tree"], "", "cannot be the name"),
        (KNOWN, ["background", "road", "Car", "van", "tree"], "x", "leaves no class beside the background"),
    ],
)
def test_wrong_merging(known, names, into, message):
    with pytest.raises(UserError) as error:
        merge(known, names, into)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("known", "names", "message"),
    [
        (KNOWN, [], "No class to drop"),
        (KNOWN, ["background"], "cannot be dropped"),
        (KNOWN, ["van", "van"], "named twice"),
        (KNOWN, ["bike"], "Unknown class 'bike'"),
        (KNOWN, ["road", "Car", "van", "tree"], "at least one must remain"),
        (BARE, ["road", "car", "van"], "at least one must remain"),
    ],
)
def test_wrong_dropping(known, names, message):
    with pytest.raises(UserError) as error:
        drop(known, names)
    assert message in str(error.value)


def test_all_classes_of_a_model_without_background_may_become_one():
    assert merge(BARE, ["road", "car", "van"], "all").groups == ((0, 1, 2),)
