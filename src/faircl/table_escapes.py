r"""Text of a table's cells in markdown, LaTeX and CSV, so that a name is shown as it is and never read as a command.

Names of classes and labels are user input: ``<script>``, ``\input{…}``, ``=cmd()`` and emoji are texts like others.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
_SPECIAL = frozenset(',;\t"\r\n')
_SYMBOLS = "pm times cdot rightarrow leq geq neq infty surd in Sigma sum ell"
_GREEK = (
    "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon varphi chi "
)
_GREEK += "psi omega Gamma Delta Theta Lambda Xi Pi Phi Psi Omega"

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    "|": r"\textbar{}",
    ">": r"\textgreater{}",
    "`": r"\textasciigrave{}",
    '"': "''",  # babel gives it other meanings
    "…": r"\dots{}",
    "[": "{[}",  # at the start of a row it would be read as an option of the line break before it
    "*": "{*}",  # so would this
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{c: f"$\\{name}$" for c, name in zip("±×·→≤≥≠∞√∈Σ∑ℓ", _SYMBOLS.split(), strict=True)},
    **{c: f"$\\{name}$" for c, name in zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΦΨΩ", _GREEK.split(), strict=True)},
    **{c: f"\\textsuperscript{{{n}}}" for c, n in zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)},
    **dict(zip("‘’“”—−", ("`", "'", "``", "''", "---", "$-$"), strict=True)),
    "†": r"\textsuperscript{$\dagger$}",
    "▲": r"\textsuperscript{+}",
    "▼": r"\textsuperscript{$-$}",
}
_LATIN = frozenset(map(chr, range(0xA1, 0x180))) - frozenset("ªºµ¼½¾ħĦŀĿſŉĸŦŧ«»ÐÞðþĐđĄąĘęĮįŲųŊŋ")
_EITHER = r"\faircltext"
LATEX_HEAD = rf"\providecommand{{{_EITHER}}}[2]{{\ifdefined\Umathchar#1\else#2\fi}}"
"""Needed above a table with characters that pdfTeX has no glyph for; XeTeX and LuaTeX print them, if the font can."""


def printable(text: str) -> str:
    """Return a text with control characters replaced by U+FFFD; a terminal would obey them, a browser refuses them."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str) -> str:
    """Return a text with every run of white space replaced by one space."""
    return " ".join(text.split())


def markdown_text(text: str) -> str:
    """Return a text as GitHub-flavoured markdown shows it."""
    return re.sub(r"([\\`*<>\[\]|&])", r"\\\1", one_line(text))


def latex_text(text: str) -> str:
    r"""Return a text as LaTeX prints it.

    Characters that pdfTeX cannot print are written ``\faircltext{character}{[its name]}``; ``LATEX_HEAD`` defines that.
    """
    parts = ("".join(map(_latex_character, part)) for part in one_line(text).split("–"))
    return "--".join(re.sub(r"-(?=-)", "-{}", part) for part in parts)  # a hyphen before another would make a dash


def needs_latex_head(table: str) -> bool:
    """Whether a table's LaTeX has characters that pdfTeX cannot print."""
    return _EITHER in table


def csv_line(fields: Iterable[str | float]) -> str:
    """Return a line of CSV that no spreadsheet reads as a formula.

    A text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break (or with apostrophes and one of them) has
    an apostrophe put in front; a reader that wants the text back takes one off. Numbers stay as they are. Texts with
    a comma, semicolon, tab, quotation mark or line break are quoted, whichever of them a spreadsheet separates by.
    """
    return ",".join(_field(value) if isinstance(value, str) else str(value) for value in fields) + "\n"


def _field(text: str) -> str:
    safe = "'" + text if _FORMULA.match(text) else text
    return '"' + safe.replace('"', '""') + '"' if _SPECIAL & set(safe) else safe


def _latex_character(c: str) -> str:
    if c in _LATEX:
        return _LATEX[c]
    if c.isascii() or c in _LATIN:
        return c
    if unicodedata.category(c) in ("Mn", "Cf", "Cs", "Co", "Cn"):  # joiners, variation selectors, what has no glyph
        return ""
    base = unicodedata.normalize("NFD", c)[0]
    if base.isascii():
        return f"{_EITHER}{{{c}}}{{{_LATEX.get(base, base)}}}"
    code = f"U+{ord(c):04X}"
    shown = unicodedata.name(c, code).lower() if unicodedata.category(c).startswith("S") else code
    return f"{_EITHER}{{{c}}}{{{{[}}{shown}]}}"
