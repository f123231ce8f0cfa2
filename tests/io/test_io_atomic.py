"""Files of one result take their names together, even if the process is killed while it gives them."""

import json
import os

import pytest

from proba.errors import InputError
from proba.io import atomic
from proba.io.atomic import (
    TEMPORARY_PREFIX,
    TODO_FILE,
    all_or_nothing,
    atomic_write_text,
    finish_naming,
    remove,
    remove_leftovers,
)

NAMES = ("a.txt", "deep/b.txt", "c.txt")


def write_all(folder, text: str) -> None:
    with all_or_nothing(folder):
        for name in NAMES:
            atomic_write_text(folder / name, text)
        remove(folder / "stale.txt")


def read_all(folder) -> set[str]:
    return {(folder / name).read_text() for name in NAMES}


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the program may act on it."""


@pytest.mark.parametrize("after", range(7))
def test_killed_between_any_two_names_the_result_is_old_or_new(tmp_path, monkeypatch, after):
    write_all(tmp_path, "old")
    (tmp_path / "stale.txt").write_text("old")
    renames, real = [], os.replace
    unlink = type(tmp_path).unlink

    def replace(source, target):
        if len(renames) == after:
            monkeypatch.setattr(type(tmp_path), "unlink", lambda *_, **__: None)  # a dead process removes nothing
            raise Killed
        renames.append(target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    try:
        write_all(tmp_path, "new")
        finished = True
    except Killed:
        finished = False
    monkeypatch.setattr(os, "replace", real)
    monkeypatch.setattr(type(tmp_path), "unlink", unlink)
    finish_naming(tmp_path)
    assert read_all(tmp_path) == ({"new"} if finished or after >= 1 else {"old"})
    assert (tmp_path / "stale.txt").exists() == (not finished and after == 0)
    remove_leftovers(tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith((TEMPORARY_PREFIX, TODO_FILE))]


def test_what_fails_leaves_the_old_files_and_nothing_else(tmp_path):
    write_all(tmp_path, "old")
    with pytest.raises(ValueError, match="on the way"), all_or_nothing(tmp_path):
        atomic_write_text(tmp_path / "a.txt", "new")
        raise ValueError("on the way")
    assert read_all(tmp_path) == {"old"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "c.txt", "deep"]


@pytest.mark.parametrize(
    "content",
    [
        "{", "[]", "{}", '{"written": [["a"]], "stale": []}', '{"written": [], "stale": ["../outside"]}',
        '{"written": [["x", "/outside"]], "stale": []}', '{"written": 3, "stale": []}',
    ],
)  # fmt: skip
def test_a_damaged_or_hostile_list_is_refused(tmp_path, content):
    (tmp_path / "outside").write_text("mine")
    folder = tmp_path / "result"
    folder.mkdir()
    (folder / TODO_FILE).write_text(content)
    (folder / "x").write_text("x")
    with pytest.raises(InputError, match="damaged"):
        finish_naming(folder)
    assert (tmp_path / "outside").read_text() == "mine"


def test_a_file_that_is_written_again_is_not_removed_as_stale(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with all_or_nothing(tmp_path):
        remove(tmp_path / "a.txt")
        atomic_write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    assert not (tmp_path / TODO_FILE).exists()


def test_the_list_names_only_files_below_its_folder(tmp_path):
    seen = []
    real = atomic._write_todo

    def look(todo, waiting):
        real(todo, waiting)
        seen.append(json.loads(todo.read_text()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "_write_todo", look)
        write_all(tmp_path, "new")
    assert [path for _, path in seen[0]["written"]] == [str(os.path.join(*name.split("/"))) for name in NAMES]
