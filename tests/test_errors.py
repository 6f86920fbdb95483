"""Words that errors share: lists of names, and the closest one."""

import pytest

from faircl.data.sample import Classes
from faircl.errors import UserError, listed, unknown_name
from faircl.scenario.tasks import class_id


@pytest.mark.parametrize(
    ("count", "end"),
    [(1, "n0"), (2, "n0, n1"), (20, "n18, n19"), (21, "n19, … and 1 more"), (150, "n19, … and 130 more")],
)
def test_a_list_of_names_ends_after_twenty(count, end):
    text = listed([f"n{number}" for number in range(count)])
    assert text.endswith(end)
    assert text.count(", ") == min(count, 20) - (count <= 20)


def test_errors_do_not_list_a_hundred_and_fifty_classes():
    classes = Classes(tuple(f"class {number}" for number in range(151)), background=True)
    with pytest.raises(UserError, match=r"^Unknown class 'zebra'\. Known: class 0, .*, class 19, … and 131 more\.$"):
        class_id("zebra", classes)
    assert str(unknown_name("part", "x", ["b", "a"])) == "Unknown part 'x'. Known: a, b."
