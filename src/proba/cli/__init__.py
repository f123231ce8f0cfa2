"""The `proba` command. One file a command."""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

import tyro

from proba._version import __version__
from proba.cli.settings import option_rules, with_tidy_help
from proba.cli.usage import check_command, read_arguments
from proba.errors import ProbaError

if TYPE_CHECKING:
    from proba.solve_options import SolveOptions

COMMANDS = {
    "run": "run",
    "match": "match",
    "graph": "graph",
    "solve": "solve",
    "refine": "refine",
    "dense": "dense",
    "import": "import_",
    "eval": "evaluate",
    "export": "export",
    "align": "align",
    "view": "view",
    "localize": "localize",
    "add": "add",
    "merge": "merge",
    "render": "render",
    "demo": "demo",
    "doctor": "doctor",
    "bench": "bench",
}
"""Module of each command. Only the one that is asked for is loaded: some take seconds."""
BROKEN_PIPE = 128 + 13
"""Exit code of a process that SIGPIPE ended; Windows has no such signal to ask for its number."""
TERMINATED = 128 + 15
HELP_ALL = "--help-all"
PRESET = "--preset"
DESCRIPTION = """ProBA: camera poses, focal lengths and a point cloud with uncertainties from photos or pairwise
matches, with unknown cameras and no initial poses. Begin with `proba run PHOTOS --out result`, or try `proba demo`."""


def main(argv: list[str] | None = None) -> None:
    """Entry point. Exit code 0: done. 2: wrong usage or unusable input, said in one line."""
    argv = sys.argv[1:] if argv is None else argv
    _leave_on_request()
    warnings.formatwarning = lambda message, *_, **__: f"proba: warning: {message}\n"
    try:
        try:
            _dispatch(argv)
        finally:
            if sys.stdout is not None:  # a program that was started without one
                sys.stdout.flush()
    except ProbaError as error:
        print(f"proba: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # whoever read the output, `head` for one, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python still wants to write at its end
        sys.exit(BROKEN_PIPE)
    except OSError as error:
        from proba.io.atomic import storage_error  # loads libraries that `proba --help` can do without

        place = error.filename or "input/output"
        print(f"proba: {storage_error(error, place) or f'{place}: {error.strerror or error}'}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("proba: interrupted; run the same command with --resume to go on", file=sys.stderr)
        sys.exit(130)


def _leave_on_request() -> None:
    """Whoever ends the program (a scheduler, a shutdown) gets one line, and nothing is left behind."""

    def leave(*_: object) -> None:
        print("proba: ended from outside; run the same command with --resume to go on", file=sys.stderr)
        raise SystemExit(TERMINATED)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, leave)


def _dispatch(argv: list[str]) -> None:
    if argv in (["--version"], ["-V"]):
        print(f"proba {__version__}")
        return
    brief = bool({"-h", "--help"} & set(argv))
    argv = ["--help" if word == HELP_ALL else word for word in argv]
    with option_rules(everything=not brief, start=_start(argv)):
        if not argv or argv[0] in ("-h", "--help"):
            outlines = {name: _outline(name) for name in COMMANDS}
            tyro.extras.subcommand_cli_from_dict(outlines, prog="proba", description=DESCRIPTION, args=["--help"])
        check_command(argv[0], COMMANDS, prog="proba")
        if argv[0] == "bench":
            import_module("proba.cli.bench").main(argv[1:])
        else:
            read_arguments(_function(argv[0], brief=brief), prog=f"proba {argv[0]}", argv=argv[1:])()


def _start(argv: list[str]) -> list[SolveOptions]:
    """The settings that the command line begins with where it names a preset; what else it says overrides them."""
    words = [word for pair in argv for word in pair.split("=", 1)] if argv[:1] in (["run"], ["solve"]) else []
    names = [after for word, after in pairwise(words) if word == PRESET]
    if not names:
        return []
    from proba.presets import preset  # loads libraries that other commands can do without

    return [preset(names[-1])]


def _outline(command: str) -> Callable[[], None]:
    """A stand-in with the first line of the command's description, for the overview of all."""
    source = Path(__file__).with_name(f"{COMMANDS[command]}.py").read_text(encoding="utf-8")
    body = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}

    def outline() -> None: ...

    outline.__doc__ = (ast.get_docstring(body["main"]) or "").split("\n")[0]
    return outline


def _function(command: str, *, brief: bool) -> Callable[..., None]:
    function = import_module(f"proba.cli.{COMMANDS[command]}").main
    if brief and any(is_dataclass(kind) for kind in get_type_hints(function).values()):
        more = f"All settings: `proba {command} {HELP_ALL}`."
        function.__doc__ = function.__doc__.replace("\n\n    Args:", f"\n\n    {more}\n\n    Args:")
    return with_tidy_help(function)
