"""Matches of a run on disk: an append-only journal while the run goes on, one h5 file when it is done.

An h5 file that is open for writing when its process is killed is often lost as a whole. So each finished pair is
appended to `FILE.partial` as one record with a checksum; a kill can only cut off the last record, which is then matched
again. At the end the records become `FILE` in hloc's layout, whole or not at all. Both remember the content of the
photos and the settings behind every pair, so that stale matches are never reused, and the pairs without matches.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import struct
import threading
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

from proba.errors import InputError
from proba.io.atomic import storage_error
from proba.io.images import Photo
from proba.io.matches_h5 import META_GROUP, h5_name, new_h5, read_pair, read_text, write_graph, write_images, write_pair
from proba.io.reading import Allowance, parse_json, reading
from proba.matches import PairMatches
from proba.matching.matcher import empty_matches

_HEADER = struct.Struct("<II")  # length of the head, checksum of head and body
_LONGEST_HEAD = 1 << 16
_DATASET = "matching"  # in the h5 file's own group: what its pairs were made from


class Record(NamedTuple):
    """One matched pair."""

    one: str  # digest of the first photo
    other: str  # digest of the second photo
    settings: str  # key of the settings
    kind: str  # general, planar or none
    matches: PairMatches


def settings_key(settings: dict) -> str:
    """A short name for a set of settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


class MatchStore:
    """The matches of a set of photos, growing pair by pair."""

    def __init__(self, path: Path, photos: list[Photo], *, resume: bool = False, reuse: Sequence[Path] = ()):
        _refuse_clash(photos)
        self.path = path
        self.partial = path.with_name(path.name + ".partial")
        self.photos = photos
        self._index = {photo.digest: k for k, photo in enumerate(photos)}
        self._place: dict[tuple[str, str, str], int] = {}
        self._lock = threading.Lock()  # readers and the writer share one file position
        path.parent.mkdir(parents=True, exist_ok=True)
        sources = [*([path] if resume and path.exists() else []), *reuse]
        finished = [record for source in sources for record in _records_of_h5(source)]
        if not resume:
            self.partial.unlink(missing_ok=True)
        # Without a buffer: what could not be written must not be tried again behind the next record.
        self._file = open(self.partial, "a+b", buffering=0)  # noqa: SIM115 - held open for the whole run
        self._read_back()
        for record in finished:
            if (record.one, record.other, record.settings) not in self._place:
                self.append(record)

    def __enter__(self) -> MatchStore:
        return self

    def __exit__(self, *_) -> None:
        with contextlib.suppress(OSError):  # a full disk has been told already
            self._file.close()

    def has(self, one: Photo, other: Photo, settings: str) -> bool:
        """Whether this pair was already matched with these settings."""
        return (one.digest, other.digest, settings) in self._place

    def append(self, record: Record) -> None:
        """Add a finished pair; it is on disk when this returns."""
        points = np.hstack([record.matches.points_i, record.matches.points_j, record.matches.scores[:, None]])  # [M, 5]
        head = json.dumps([record.one, record.other, record.settings, record.kind, len(points)]).encode()
        body = points.astype("<f4").tobytes()
        content = memoryview(_HEADER.pack(len(head), zlib.crc32(head + body)) + head + body)
        with self._lock:
            place = self._file.seek(0, 2)
            try:
                while content:
                    content = content[self._file.write(content) :]
            except OSError as error:
                with contextlib.suppress(OSError):
                    self._file.truncate(place)  # half a record is none
                raise storage_error(error, self.path) or error from error
            self._place[record.one, record.other, record.settings] = place

    def read(self, one: Photo, other: Photo, settings: str) -> Record:
        """A pair that was matched before."""
        with self._lock:
            self._file.seek(self._place[one.digest, other.digest, settings])
            record = _read_record(self._file)
        assert record is not None  # it was written or checked by this very object
        return record

    def finish(
        self,
        settings: list[str],
        description: dict,
        *,
        without: Collection[tuple[int, int]] = (),
        only: Mapping[tuple[int, int], str] | None = None,
        masks: Path | None = None,
        graph: tuple[str, Mapping[tuple[int, int], int]] | None = None,
    ) -> int:
        """Write the h5 file from all pairs made with these settings; returns how many have matches.

        Pairs of `without` are remembered as pairs that have none, and the folder of the masks for who needs it later.
        Those of `only` keep what one of the settings gave. `graph` is the name of the matcher for the view graph, and
        how many matches it found for which pairs.
        """
        only = only or {}
        pairs: dict[tuple[int, int], list[Record]] = {}
        for one, other, key in self._place:
            i, j = self._index.get(one, -1), self._index.get(other, -1)
            if key in settings and 0 <= i < j and only.get((i, j), key) == key:
                record = self.read(self.photos[i], self.photos[j], key)
                if (i, j) in without:
                    record = record._replace(kind="contradicted", matches=empty_matches())
                pairs.setdefault((i, j), []).append(record)
        folder = None if masks is None else str(masks.absolute())
        kept = self._write_h5(pairs, {"settings": description, "masks": folder}, graph)
        self._file.close()
        self.partial.unlink(missing_ok=True)
        return kept

    def _write_h5(
        self,
        pairs: dict[tuple[int, int], list[Record]],
        origin: dict,
        graph: tuple[str, Mapping[tuple[int, int], int]] | None,
    ) -> int:
        kept = 0
        with new_h5(self.path) as file:
            write_images(file, [photo.info for photo in self.photos])
            for (i, j), records in sorted(pairs.items()):
                matches = join_matches([record.matches for record in records])
                if len(matches.points_i):
                    kept += 1
                    write_pair(file, self.photos[i].info.name, self.photos[j].info.name, matches)
            if graph is not None:
                write_graph(file, *graph)
            file[META_GROUP][_DATASET] = json.dumps(
                {
                    "digests": {h5_name(photo.info.name): photo.digest for photo in self.photos},
                    **origin,
                    "pairs": [
                        [i, j, [[r.settings, r.kind, len(r.matches.scores)] for r in records]]
                        for (i, j), records in sorted(pairs.items())
                    ],
                }
            )
        return kept

    def _read_back(self) -> None:
        """Find the pairs of an earlier run; what follows the first damaged record is cut off."""
        self._file.seek(0)
        while True:
            place = self._file.tell()
            record = _read_record(self._file)
            if record is None:
                break
            self._place[record.one, record.other, record.settings] = place
        self._file.truncate(place)


def join_matches(parts: list[PairMatches]) -> PairMatches:
    """Matches of one pair from several matchers, one after the other."""
    return PairMatches(*(np.concatenate(columns) for columns in zip(*parts, strict=True))) if parts else empty_matches()


def _read_record(file: io.FileIO) -> Record | None:
    """The record at the file's position, None at the end or if it is cut off or damaged."""
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length, checksum = _HEADER.unpack(header)
    if length > _LONGEST_HEAD:
        return None
    head = file.read(length)
    try:
        one, other, settings, kind, count = parse_json(head)
    except (ValueError, TypeError):
        return None
    left = os.fstat(file.fileno()).st_size - file.tell()
    if not isinstance(count, int) or not 0 <= 20 * count <= left:
        return None
    body = file.read(20 * count)
    if zlib.crc32(head + body) != checksum:
        return None
    points = np.frombuffer(body, "<f4").reshape(count, 5)  # [M, 5]
    return Record(one, other, settings, kind, PairMatches(points[:, :2], points[:, 2:4], points[:, 4]))


def _records_of_h5(path: Path) -> list[Record]:
    """The pairs of a finished file with what they were made from; none if it does not say."""
    with (
        reading(path, "a matches file that can be read", "Delete it and match again."),
        h5py.File(path) as file,
    ):
        if META_GROUP not in file or _DATASET not in file[META_GROUP]:
            return []
        allowance = Allowance(path)
        origin = parse_json(read_text(file[META_GROUP][_DATASET], allowance))
        digests = list(origin["digests"].items())
        records = []
        for i, j, parts in origin["pairs"]:
            (name_i, one), (name_j, other) = digests[i], digests[j]
            has_matches = name_i in file and name_j in file[name_i]
            matches = read_pair(file[name_i][name_j], allowance) if has_matches else empty_matches()
            if sum(count for _, _, count in parts) != len(matches.scores):
                raise ValueError(f"{name_i} and {name_j} have {len(matches.scores)} matches, which is not what it says")
            start = 0
            for settings, kind, count in parts:
                part = PairMatches(*(column[start : start + count] for column in matches))
                start += count
                records.append(Record(str(one), str(other), str(settings), str(kind), part))
        return records


def _refuse_clash(photos: list[Photo]) -> None:
    keys: dict[str, str] = {}
    for photo in photos:
        other = keys.setdefault(h5_name(photo.info.name), photo.info.name)
        if other != photo.info.name:
            raise InputError(
                f"The images {other} and {photo.info.name} have one name once '/' becomes '-'. Rename one of them."
            )
