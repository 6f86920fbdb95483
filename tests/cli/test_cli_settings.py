"""What ``faircl methods NAME`` and its like say of settings: choices and bounds, beside pydantic's own schema."""

import json

import pytest

from faircl.cli.settings_view import settings_json
from faircl.registry import METHODS, MODELS, READERS

PARTS = [(table, name) for table in (METHODS, MODELS, READERS) for name in table.builtin]
SIGNS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


@pytest.mark.parametrize(("table", "name"), PARTS, ids=[name for _, name in PARTS])
def test_choices_and_bounds_are_those_that_are_validated(table, name):
    config = table.get(name).Config
    schema = config.model_json_schema()
    for setting in settings_json(config):
        declared = schema["properties"][setting["name"]]
        kinds = [kind for kind in declared.get("anyOf", [declared]) if kind.get("type") != "null"]
        if "enum" in kinds[0]:
            assert setting["choices"] == kinds[0]["enum"]
            assert setting["values"] == ", ".join(map(str, kinds[0]["enum"]))
        elif kinds[0].get("type") == "boolean":
            assert setting["choices"] == [True, False]
        else:
            assert setting["choices"] is None
        for inner in [*kinds, *kinds[0].get("prefixItems", [])]:
            for key, sign in SIGNS.items():
                assert (f"{sign} {inner[key]:g}" in setting["values"]) if key in inner else True
        bounded = any(key in inner for inner in [*kinds, *kinds[0].get("prefixItems", [])] for key in SIGNS)
        assert bounded == any(sign in setting["values"] for sign in SIGNS.values())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            ("methods", "faircl"),
            ("importance, adjust, kl, literal", "number ≥ 0, < 1", "whole number ≥ 1", "2 numbers"),
        ),
        (("models", "segformer"), ("b0, b1, b2, b3, b4, b5",)),
        (("data", "list", "folder"), ("auto, first, none", "3 whole numbers ≥ 0, ≤ 255")),
    ],
)
def test_the_table_and_json_have_them(command, words, cli):
    table, printed = cli(*command).out, json.loads(cli(*command, "--json").out)
    values = [setting["values"] for setting in printed["settings"]]
    assert all(word in table and word in values for word in words)
