"""Reads a command line; what is wrong with it is said in one line, with a hint."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from difflib import get_close_matches
from functools import partial, wraps

import tyro

from proba.errors import InputError

PLAIN_WORDS = (
    (r"Error parsing (\S+): invalid literal for int\(\).*: ('.*')", r"\1: \2 is not a whole number"),
    (r"Error parsing (\S+): could not convert string to float: ('.*')", r"\1: \2 is not a number"),
    (r"invalid choice '(.*)' for argument '(\S+)'\. Expected one of \((.*?),?\)\.", r"\2 cannot be \1; choose from \3"),
    (r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*)\]", r"\1 cannot be \2"),
    (r"Missing value for argument '(-\S+)'.*", r"\1 needs a value"),
    (r"Missing value for argument '(\S+)'.*", r"\1 is missing"),
)
"""What tyro says of a wrong value, and what is said instead."""


def read_arguments(function: Callable[..., None], *, prog: str, argv: list[str]) -> Callable[[], None]:
    """The function with the arguments of a command line. Help is printed and ends the program."""

    @wraps(function)
    def later(*args: object, **kwargs: object) -> Callable[[], None]:
        return partial(function, *args, **kwargs)

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(later, prog=prog, args=argv, config=(tyro.conf.FlagCreatePairsOff,))
    except SystemExit as error:
        if error.code == 2:
            text, said = said.getvalue(), io.StringIO()
            raise InputError(f"{_explained(text, lambda: _options(later, prog))}. See {prog} --help") from None
        raise
    finally:
        print(said.getvalue(), end="", file=sys.stderr)


def check_command(word: str, commands: Iterable[str], *, prog: str) -> None:
    """Refuse a word that is not among the commands."""
    commands = list(commands)
    if word not in commands:
        near = get_close_matches(word, commands, n=1)
        hint = f"did you mean {prog} {near[0]}?" if near else f"it has {', '.join(commands)}."
        raise InputError(f"{prog} has no command {word}; {hint} See {prog} --help")


def _explained(box: str, options: Callable[[], set[str]]) -> str:
    """What tyro's box says of a command line, in one line without a full stop."""
    sections = _sections(box)
    reasons: list[str] = []
    for title, *rows in sections:
        words = [row.strip() for row in rows if re.match(r" {4}\S", row)]
        if title.startswith("Unrecognized options:"):
            words += re.findall(r"[^\s,]+", title.partition(":")[2])
            reasons.insert(0, _unknown(words, options))
        elif title.startswith("Missing from"):
            reasons.append("missing: " + ", ".join(_with_help(words, rows)))
    if reasons:
        return "; ".join(reasons)
    text = " ".join(row.strip() for row in sections[0]) if sections else "wrong usage"
    for pattern, plain in PLAIN_WORDS:
        text = re.sub(pattern, plain, text)
    return text.rstrip(".")


def _sections(box: str) -> list[list[str]]:
    """The rows of each part of the box, without its title; indented rows belong to the one above.

    The frame takes two columns; it is drawn with spaces and hyphens where the terminal has no UTF-8.
    """
    parts: list[list[str]] = [[]]
    for row in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]:
        text = row[2:].rstrip("│ ")
        if text.strip("─-╯"):
            parts[-1].append(text)
        else:
            parts.append([])
    return [part for part in parts if part]


def _with_help(names: list[str], rows: list[str]) -> list[str]:
    """Names of arguments, each with the beginning of its help where the name alone, PATH for one, says little."""
    found = []
    for name in names:
        if not name.startswith("-"):
            after = rows[[row.strip() for row in rows].index(name) + 1].strip()
            name += f" ({re.split(r'[.,;:(]', after)[0].strip().lower()})"
        found.append(name.rpartition(", ")[2])
    return found


def _unknown(words: list[str], options: Callable[[], set[str]]) -> str:
    """That nothing knows these words, and for an option which one looks like it."""
    flags = [word for word in words if word.startswith("-")]
    if not flags:
        return f"nothing is expected here: {' '.join(words)}"
    flag = flags[0].partition("=")[0]
    name = flag.lstrip("-")
    known = sorted(options())
    ends = {option.rpartition(".")[2]: option for option in known} | {option: option for option in known}
    near = get_close_matches(name, ends, n=1, cutoff=0.7)
    return f"{flag} is not an option" + (f" (did you mean --{ends[near[0]]}?)" if near else "")


def _options(function: Callable, prog: str) -> set[str]:
    """Names of all options of a command, from its help."""
    page = io.StringIO()
    with redirect_stdout(page), suppress(SystemExit):
        tyro.cli(function, prog=prog, args=["--help"], config=(tyro.conf.FlagCreatePairsOff,))
    return set(re.findall(r"(?<![\w-])--([\w.-]+)", page.getvalue()))
