"""Damaged and foreign files of matches are read, or refused in one line, before any work begins."""

import json
import sqlite3
from contextlib import closing

import h5py
import numpy as np
import pytest
from fuzzing import counts, fuzz
from mutations import (
    HOSTILE_NAMES,
    NUMBERS,
    damaged_array,
    damaged_bytes,
    damaged_json,
    damaged_table,
    snapshot,
)
from samples import npz_arrays, small_matches, write_database

from proba.cli import main
from proba.graph import build_view_graphs
from proba.io.foreign_matches import import_matches
from proba.io.matches_h5 import load_matches, save_matches
from proba.report.matching import matching_facts


@pytest.fixture
def matches():
    return small_matches()


def use(path, folder, **options):
    """What happens to a file of matches before the solver begins, and what `proba import` makes of it."""
    matches = import_matches(path, **options)
    matching_facts(path)
    build_view_graphs(matches)
    save_matches(folder / "again.h5", matches)
    assert load_matches(folder / "again.h5").images == matches.images


@counts
def test_h5_with_damaged_bytes(tmp_path, matches, count):
    save_matches(tmp_path / "whole.h5", matches)
    whole = (tmp_path / "whole.h5").read_bytes()

    def damaged_h5_bytes(rng):
        (tmp_path / "m.h5").write_bytes(damaged_bytes(whole, rng))
        use(tmp_path / "m.h5", tmp_path)

    fuzz(count, damaged_h5_bytes)


@counts
def test_h5_of_another_structure(tmp_path, matches, count):
    def other_h5(rng):
        save_matches(tmp_path / "m.h5", matches)
        with h5py.File(tmp_path / "m.h5", "r+") as file:
            for _ in range(rng.integers(1, 3)):
                _damage_dataset(file, rng)
        use(tmp_path / "m.h5", tmp_path)

    fuzz(count, other_h5)


def _damage_dataset(file, rng):
    names = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    if not names:
        return
    name = names[rng.integers(len(names))]
    old = file[name][()] if file[name].size < 10**6 else np.zeros(3)
    del file[name]
    kind = rng.integers(8)
    if kind == 0:
        file[name] = h5py.SoftLink("/")
    elif kind == 1:
        file[name] = h5py.ExternalLink("/etc/hostname", "/")
    elif kind == 2:
        file.create_dataset(name, shape=(2**40, 2), chunks=(1024, 2), dtype="f4")  # takes no room until it is read
    elif kind == 3:
        file.create_group(name)
    elif isinstance(old, bytes):
        file[name] = damaged_json(json.loads(old), rng)
    elif kind > 4:
        new = damaged_array(old, rng)
        file[name] = new if new.dtype.kind not in "UM" else np.zeros(3)


@counts
def test_npz_with_damaged_bytes(tmp_path, matches, count):
    np.savez(tmp_path / "whole.npz", **npz_arrays(matches))
    whole = (tmp_path / "whole.npz").read_bytes()

    def damaged_npz_bytes(rng):
        (tmp_path / "m.npz").write_bytes(damaged_bytes(whole, rng))
        use(tmp_path / "m.npz", tmp_path)

    fuzz(count, damaged_npz_bytes)


@counts
def test_npz_of_another_structure(tmp_path, matches, count):
    arrays = npz_arrays(matches)

    def other_npz(rng):
        np.savez(tmp_path / "m.npz", **damaged_table(arrays, rng))
        use(tmp_path / "m.npz", tmp_path)

    fuzz(count, other_npz)


@counts
def test_database_with_damaged_bytes(tmp_path, matches, count):
    write_database(tmp_path / "whole.db", matches)
    whole = (tmp_path / "whole.db").read_bytes()

    def damaged_database_bytes(rng):
        (tmp_path / "m.db").write_bytes(whole[:16] + damaged_bytes(whole[16:], rng))
        use(tmp_path / "m.db", tmp_path)

    fuzz(count, damaged_database_bytes)


@counts
def test_database_of_another_structure(tmp_path, matches, count):
    write_database(tmp_path / "whole.db", matches)
    whole = (tmp_path / "whole.db").read_bytes()
    columns = {
        "cameras": ("camera_id", "model", "width", "height", "params", "prior_focal_length"),
        "images": ("image_id", "name", "camera_id"),
        "keypoints": ("image_id", "rows", "cols", "data"),
        "two_view_geometries": ("pair_id", "rows", "cols", "data"),
    }
    values = [number for number in NUMBERS if not isinstance(number, int) or abs(number) < 2**63]
    values += [b"", b"\0" * 7, b"\xff" * 64, None, "text", *HOSTILE_NAMES[:-1]]

    def other_database(rng):
        path = tmp_path / "m.db"
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as database:
            for _ in range(rng.integers(1, 3)):
                table = sorted(columns)[rng.integers(len(columns))]
                column = columns[table][rng.integers(len(columns[table]))]
                kind = rng.random()
                try:
                    if kind < 0.1:
                        database.execute(f"DROP TABLE {table}")
                    elif kind < 0.2:
                        database.execute(f"DELETE FROM {table} WHERE rowid = (SELECT min(rowid) FROM {table})")
                    else:
                        value = values[rng.integers(len(values))]
                        where = f"rowid = (SELECT min(rowid) FROM {table})"
                        database.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))
                except sqlite3.Error:
                    pass  # the database itself refuses some
            database.commit()
        use(path, tmp_path)

    fuzz(count, other_database)


@counts
def test_hloc_files_of_another_structure(tmp_path, count):
    rng = np.random.default_rng(0)
    points = rng.uniform(10, 400, (2, 20, 2)).astype(np.float32)

    def other_hloc(rng):
        with h5py.File(tmp_path / "features.h5", "w") as features, h5py.File(tmp_path / "m.h5", "w") as file:
            for k in range(2):
                group = features.create_group(f"photos/{k}.jpg")
                group["keypoints"], group["image_size"] = points[k], np.array([640, 480])
            pair = file.create_group("photos-0.jpg/photos-1.jpg")
            pair["matches0"], pair["matching_scores0"] = np.arange(20) - 1, np.ones(20, np.float16)
            for target in (features, file)[:: 1 if rng.random() < 0.5 else -1][: rng.integers(1, 3)]:
                _damage_dataset(target, rng)
        use(tmp_path / "m.h5", tmp_path, keypoints=tmp_path / "features.h5")

    fuzz(count, other_hloc)


@counts
def test_the_command_touches_nothing_but_its_out(tmp_path, matches, count):
    np.savez(tmp_path / "whole.npz", **npz_arrays(matches))
    out = tmp_path / "out"
    out.mkdir()

    def import_command(rng):
        np.savez(tmp_path / "m.npz", **damaged_table(npz_arrays(matches), rng))
        before = snapshot(tmp_path, without=out)
        try:
            main(["import", str(tmp_path / "m.npz"), "--out", str(out / "m.h5")])
        finally:
            assert snapshot(tmp_path, without=out) == before

    fuzz(count // 3, import_command)


@pytest.mark.parametrize("name", ["a%20b.db", "a#b.db", "a?mode=rwc.db", "ä ö.db"])
def test_databases_of_any_name_are_found(tmp_path, matches, name):
    write_database(tmp_path / name, matches)
    assert len(import_matches(tmp_path / name).pairs) == 3
    assert [path.name for path in tmp_path.iterdir()] == [name]
