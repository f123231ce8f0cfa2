"""The cache of compiled functions follows the sources."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import proba

SOURCES = Path(proba.__file__).parent
MODULES = {
    "jit": (SOURCES / "jit.py").read_text(),  # alone, because `import proba` takes seconds
    "__init__": "",
    "constants": "FACTOR = 3\n",
    "inner": "import numba\nfrom mini.constants import FACTOR\n\n@numba.njit\ndef inner(x):\n    return FACTOR * x\n",
    "outer": (
        "from mini import inner\nfrom mini.jit import cached_njit\n\n"
        "@cached_njit(nogil=True)\ndef outer(x):\n    return inner.inner(x)\n"
    ),
}

PROGRAM = "from mini.outer import outer; print(outer({}), sum(outer.stats.cache_hits.values()))"


@pytest.fixture
def package(tmp_path):
    """A package with a compiled function that needs two other modules; all files bear the same date for ever."""
    (tmp_path / "mini").mkdir()
    for name, text in MODULES.items():
        write(tmp_path / "mini" / f"{name}.py", text)
    return tmp_path / "mini"


def write(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, (1e9, 1e9))


def call(package: Path, **variables: str) -> tuple[int, int]:
    """(outer(7), how often the cache on disk had it) in a new process."""
    result, hits = run(package, PROGRAM.format(7), **variables)
    return int(result), int(hits)


def run(package: Path, program: str, **variables: str) -> list[str]:
    """What a program prints in a new process, word by word."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def compiled(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.nb[ic]"))


def test_a_change_in_an_imported_module_is_noticed_and_old_code_is_removed(package):
    assert call(package) == (21, 0)
    write(package / "other.py", "FACTOR = 4\n")  # is not imported
    assert call(package) == (21, 1)
    before = compiled(package)
    write(package / "constants.py", "FACTOR = 5\n")  # same size, same date
    assert call(package) == (35, 0)
    after = compiled(package)
    assert len(before) == len(after) == 2 and not set(before) & set(after)


def test_two_processes_that_compile_at_once_do_not_mix_their_code(package):
    """Both read the empty index, and the one that names its overload first writes its code last."""
    program = (
        "from mini.outer import outer; file = outer._cache._cache_file; write, waiting = file._save_data, [];"
        "file._load_index = dict; file._save_data = lambda *args: waiting.append(args);"
        "outer(7); outer(7.5); write(*waiting[1]); write(*waiting[0])"
    )
    run(package, program)
    assert run(package, PROGRAM.format(7.5)) == ["22.5", "1"]


def test_code_goes_to_the_folder_that_numba_was_told(package, tmp_path):
    folder = tmp_path / "elsewhere"
    assert call(package, NUMBA_CACHE_DIR=str(folder)) == (21, 0)
    assert len(compiled(folder)) == 2 and not compiled(package)


def test_without_a_folder_to_write_to_it_still_compiles(package, tmp_path):
    """A file stands where each of numba's folders would be: so nobody can write there, not even root."""
    (tmp_path / "file").touch()
    (package / "__pycache__").touch()
    nowhere = str(tmp_path / "file" / "folder")
    assert call(package, XDG_CACHE_HOME=nowhere, HOME=nowhere, LOCALAPPDATA=nowhere) == (21, 0)


def test_nobody_uses_the_cache_that_looks_at_one_file_only():
    assert [path for path in SOURCES.rglob("*.py") if re.search(r"\(.*\bcache=True", path.read_text())] == [
        SOURCES / "jit.py"  # its documentation
    ]
