"""Numba's `njit` with a cache on disk that notices a change in any source that the compiled code is made of.

Numba's own cache looks only at the file that holds the function, but functions and constants of other modules are
compiled into it. Here the cache belongs to the contents of the module and of all modules of the package that it
imports, directly or through others.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import is_jitted


def cached_njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, ...)` whose cache notices changes in the modules that the function's module imports."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if is_jitted(dispatcher):  # not so with NUMBA_DISABLE_JIT
            with suppress(RuntimeError, OSError):  # no folder to write to, no sources: compile in every process
                dispatcher._cache = _SourceCache(function)  # type: ignore[attr-defined]
        return dispatcher

    return decorate


class _SourceCache(FunctionCache):
    """Numba's cache of one function, in numba's choice of folder, with files named by the hash of all its sources.

    Numba names them by the function's line, and so leaves the old ones behind when the line changes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = source_hash(function.__module__)
        line = f"-{self._impl.locator.get_disambiguator()}."
        self._function, _, self._python = self._impl.filename_base.rpartition(line)
        self._current = f"{self._function}-{stamp[:16]}.{self._python}"
        self._cache_file = _OverloadFiles(cache_path=self._cache_path, filename_base=self._current, source_stamp=stamp)

    def save_overload(self, sig: Any, data: Any) -> None:
        super().save_overload(sig, data)
        for path in Path(self._cache_path).glob(f"{self._function}-*.{self._python}.*"):
            if path.suffix in (".nbi", ".nbc") and not path.name.startswith(self._current):
                path.unlink(missing_ok=True)


class _OverloadFiles(IndexDataCacheFile):
    """The index of a function and a file for each of its overloads (argument types), named by the types.

    Numba numbers them. Two processes that compile two overloads at the same time then write both to the first number,
    and the index may end with one and the file with the other. Here the worst is an entry that is compiled again.
    """

    def save(self, key: Any, data: Any) -> None:
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        file = self._index_name.removesuffix("nbi") + f"{name}.nbc"
        self._save_index(self._load_index() | {key: file})
        self._save_data(file, data)


def source_hash(module: str) -> str:
    """Of the contents of a module, named with its package, and of all modules of the package that it needs."""
    package = module.partition(".")[0]
    file, root = (Path(sys.modules[name].__file__ or "") for name in (module, package))
    root = root.parent
    known, waiting = {file}, [file]
    while waiting:
        new = _imported(waiting.pop(), package, root) - known
        known |= new
        waiting += new
    digest = hashlib.sha256()
    for path in sorted(known):
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(_content(path))}\0".encode() + _content(path))
    return digest.hexdigest()


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


_IMPORT = r"^(?:from\s+{package}\b([\w.]*)\s+import\s+(\([^)]*\)|.*)|import\s+{package}\.([\w.]+))"


@cache
def _imported(path: Path, package: str, root: Path) -> set[Path]:
    """Files of the package that a file imports at its top, by absolute names: compiled code can use nothing else.

    A pattern instead of `ast`, which would take a tenth of a second at every start.
    """
    found = set()
    for place, names, module in re.findall(_IMPORT.format(package=package), _content(path).decode(), re.MULTILINE):
        for name in re.findall(r"\w+", names) or [""]:
            parts = [*place.strip(".").split("."), name] if names else module.split(".")
            found.update(_file([part for part in parts if part], root))
    return found


def _file(name: list[str], root: Path) -> list[Path]:
    """Of a module, or of the module that an imported object stands in."""
    for place in (root.joinpath(*name), root.joinpath(*name[:-1])):
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return [path]
    return []
