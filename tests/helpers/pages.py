"""Code blocks of the pages of the documentation, and commands among them."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Command(NamedTuple):
    """A command of a page: its words, and the file that its output is written to."""

    words: list[str]
    target: str = ""


def blocks(page: str, language: str) -> list[str]:
    """Text of every code block of a language, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def commands(page: str) -> list[Command]:
    """Every command ``faircl …`` of a page, in order; comments are dropped and continued lines joined."""
    lines = "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    found = []
    for words in (words for words in split if words[:1] == ["faircl"]):
        if ">" in words:
            place = words.index(">")
            found.append(Command(words[1:place], *words[place + 1 :]))
        else:
            found.append(Command(words[1:]))
    return found
