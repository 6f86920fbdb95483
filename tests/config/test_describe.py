"""Runs in words, and what tells two of them apart."""

import pytest

from faircl.config.describe import differences, method_words
from faircl.config.run import load_config
from faircl.errors import UserError


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], "faircl"),
        (["method=mib"], "mib"),
        (["method={name: ewf, method: rcil}"], "ewf around rcil"),
        (["method={name: ewf, method: {name: awt, method: plop}}"], "ewf around awt around plop"),
        (["method=plop", "balance.loss=seesaw"], "plop, seesaw"),
        (
            ["method=ewf", "balance.sampling=rare", "memory.images=20"],
            "ewf around mib, rare-class sampling, 20 images kept",
        ),
    ],
)
def test_method_in_words(settings, expected):
    assert method_words(load_config("demo", settings).model_dump(mode="json")) == expected


def test_words_of_what_is_hardly_a_configuration():
    assert method_words({}) == "unnamed method"
    assert method_words({"method": "mib", "balance": None}) == "mib"


def test_differences_are_named_by_their_place():
    one, other = {"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 4}, "e": 5}
    assert differences(one, other) == ["b.c", "b.d", "e"]
    assert differences(one, one) == []


# The settings of a method inside another


@pytest.mark.parametrize(
    ("recipe", "settings", "inner"),
    [
        ("demo-steps-ewf", ["method.method.distill=5"], ("mib", 5)),
        ("demo", ["method=ewf", "method.method.distill=5"], ("mib", 5)),
        ("demo", ["method={name: ewf, method: {name: sdr, distill: 7}}", "method.method.match=0"], ("sdr", 7)),
        ("demo", ["method={name: ewf, method: {name: sdr, distill: 7}}", "method.method.name=lwf"], ("lwf", 100)),
        ("demo", ["method={name: ewf, method: {name: sdr, distill: 7}}", "method.method=lwf"], ("lwf", 100)),
    ],
)
def test_inner_settings_are_laid_over_those_beneath(recipe, settings, inner):
    method = load_config(recipe, settings).method.method
    assert (method.name, method.distill) == inner


def test_an_inner_method_that_is_none_is_one_sentence():
    with pytest.raises(UserError, match=r"expected the name of a method or \{name: …, …\}, found 5"):
        load_config("demo", ["method={name: ewf, method: 5}"])


@pytest.mark.parametrize(
    ("setting", "hint"), [("balance=focal", "balance.loss=…"), ("memory=20", "memory.images=…"), ("optim=1", "optim.")]
)
def test_a_value_in_the_place_of_a_section(setting, hint):
    with pytest.raises(UserError) as found:
        load_config("demo", [setting])
    assert "expected settings of its own" in str(found.value)
    assert hint in str(found.value)


def test_a_base_that_is_not_there(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: none/there.yaml\n")
    with pytest.raises(UserError, match=r"there\.yaml"):
        load_config(str(tmp_path / "mine.yaml"))
    with pytest.raises(UserError, match=r"There is no file some/where; expected a YAML file, or a recipe"):
        load_config("some/where")
