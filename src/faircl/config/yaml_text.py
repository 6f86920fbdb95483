"""Reading the YAML that users write: a key that is given twice is an error, where plain YAML takes the last."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """Return the plain values of a YAML text; raise yaml.YAMLError for a mistake, also for a key given twice."""
    return yaml.load(text, _Loader)


def yaml_problem(error: yaml.YAMLError) -> str:
    """Return what is wrong with a YAML text and, where it is known, the place."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"{getattr(error, 'problem', None) or 'mistake'} at line {mark.line + 1}, column {mark.column + 1}"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse keys that the text repeats, then build the mapping; a key may change one that ``<<`` brings in."""
        first: dict[tuple[str, str], yaml.Node] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and first.setdefault((key.tag, key.value), key) is not key:
                line = first[key.tag, key.value].start_mark.line + 1
                problem = f"key '{key.value}' is given twice, first at line {line} and again"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        return super().construct_mapping(node, deep)
