"""The `proba` command. One file a command."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import tyro

from proba._version import __version__
from proba.cli import align, bench, demo, evaluate, export, import_, match, run, solve
from proba.errors import ProbaError

COMMANDS: dict[str, Callable[..., None]] = {
    "run": run.main,
    "match": match.main,
    "solve": solve.main,
    "import": import_.main,
    "eval": evaluate.main,
    "export": export.main,
    "align": align.main,
    "demo": demo.main,
    "bench": bench.main,
}
DESCRIPTION = """ProBA: camera poses, focal lengths and a point cloud with uncertainties from pairwise matches, with
unknown cameras and no initial poses. Try `proba demo --out demo` first."""


def main(argv: list[str] | None = None) -> None:
    """Entry point. Exit code 0: done. 2: wrong usage or unusable input, said in one line."""
    argv = sys.argv[1:] if argv is None else argv
    warnings.formatwarning = lambda message, *_, **__: f"proba: warning: {message}\n"
    if argv in (["--version"], ["-V"]):
        print(f"proba {__version__}")
        return
    try:
        if argv[:1] == ["bench"]:
            bench.main(argv[1:])
        else:
            tyro.extras.subcommand_cli_from_dict(
                COMMANDS, prog="proba", description=DESCRIPTION, args=argv or ["--help"]
            )
    except ProbaError as error:
        print(f"proba: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"proba: {error.filename or 'input/output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("proba: interrupted; run the same command with --resume to go on", file=sys.stderr)
        sys.exit(130)
