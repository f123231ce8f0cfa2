"""Matching in shards on workers: the features of some photos, a look at some pairs, or their verified matches.

A shard is plain values; its answer is bytes that the process which owns the result writes to disk at once. Features are
kept in the folder of the matches where workers see that, and else made again by each worker that needs them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from proba.io.images import Photo
from proba.io.npz import write_npz
from proba.matches import ImageInfo, PairMatches
from proba.matching.background import BackgroundOptions
from proba.matching.features import FeatureCache
from proba.matching.matcher import Matcher, make_matcher
from proba.matching.pair_work import PairWork
from proba.matching.pairs import Pair
from proba.matching.sift import SELECTIVE, SELECTIVE_BOUNDS, Sift
from proba.matching.store import Record
from proba.matching.verify import VerifyOptions
from proba.memory import Budget, allowed_bytes
from proba.tasks import Engine, pack, unpack
from proba.tasks.engine import Work
from proba.tasks.worker import given, scratch

SHARDS_OF_A_WORKER = 8
"""At least, so that no worker waits long for the last one ..."""
PAIRS_OF_A_SHARD = (4, 100)
"""... within these bounds: fewer pairs cost more to send than to match, and more are lost with a worker."""
PHOTOS_OF_A_SHARD = 4
HELD_SHARE = 0.25
"""Of the memory of a worker, for features."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a worker makes a matcher."""

    name: str
    weights: Path | None = None
    selective: bool = False
    """SIFT with stricter bounds, for pairs that nothing else joins."""

    def make(self) -> Matcher:
        return Sift(SELECTIVE, SELECTIVE_BOUNDS) if self.selective else make_matcher(self.name, self.weights)

    def plain(self) -> dict[str, Any]:
        return {"name": self.name, "weights": _text(self.weights), "selective": self.selective}


Recipes = tuple[Recipe, Recipe]
"""Of the matcher, and of the one whose features it matches."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shards:
    """The photos of a set on the workers of an engine."""

    engine: Engine
    photos: Sequence[Photo]
    features_folder: Path | None
    """Where all keep features; None: not all see that folder, and each worker has one of its own."""
    given: str | None
    """Name under which the photos were handed to the workers; None: they see them."""

    @staticmethod
    def of(engine: Engine, photos: Sequence[Photo], folder: Path, masks: Path | None, features: Path) -> Shards:
        """Photos are read where they are if all workers see them, and else handed to each worker once."""
        shared = engine.see(folder) and (masks is None or engine.see(masks))
        name = None
        if not shared:
            name = f"photos-{hashlib.sha256(''.join(photo.digest for photo in photos).encode()).hexdigest()[:16]}"
            engine.give(name, _files(photos))
        return Shards(
            engine=engine,
            photos=photos,
            features_folder=features if engine.see(features.parent) else None,
            given=name,
        )

    def features(self, recipe: Recipe, cache: FeatureCache, wanted: Sequence[Photo]) -> Iterator[None]:
        """Features of photos, as files that `cache` finds; one after the other is done."""
        index = {photo.digest: k for k, photo in enumerate(self.photos)}
        todo = [index[photo.digest] for photo in wanted if not cache.file(photo).is_file()]
        yield from [None] * (len(wanted) - len(todo))
        shards = [todo[k : k + PHOTOS_OF_A_SHARD] for k in range(0, len(todo), PHOTOS_OF_A_SHARD)]
        payloads = (self._payload(recipe, recipe, cache.key, shard) for shard in shards)
        for number, result in self.engine.each(extract_shard, payloads):
            _, arrays = unpack(result)
            for k, photo in enumerate(shards[number]):
                prefix = f"{k}/"
                mine = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
                if mine:  # else the worker has written the file itself
                    write_npz(cache.file(self.photos[photo]), mine)
                yield None

    def looks(self, recipe: Recipe, work: PairWork, pairs: Sequence[Pair], count: int) -> Iterator[tuple[int, int]]:
        """Number of each pair and how many matches a quick look finds."""
        for first, header, _ in self._of_pairs(look_shard, (recipe, recipe), work, pairs, {"look": count}):
            yield from enumerate(header["counts"], first)

    def records(self, recipes: Recipes, work: PairWork, pairs: Sequence[Pair]) -> Iterator[tuple[int, Record]]:
        """Number of each pair and its verified matches."""
        for first, header, arrays in self._of_pairs(match_shard, recipes, work, pairs, {}):
            start = 0
            for number, (one, other, kind, count) in enumerate(header["records"], first):
                points = arrays["points"][start : start + count]  # [M, 5]
                start += count
                yield (
                    number,
                    Record(one, other, work.key, kind, PairMatches(points[:, :2], points[:, 2:4], points[:, 4])),
                )

    def _of_pairs(
        self, task: Work, recipes: Recipes, work: PairWork, pairs: Sequence[Pair], more: dict[str, Any]
    ) -> Iterator[tuple[int, dict[str, Any], dict[str, np.ndarray]]]:
        size = int(np.clip(len(pairs) // (SHARDS_OF_A_WORKER * self.engine.at_a_time), *PAIRS_OF_A_SHARD))

        def payload(shard: Sequence[Pair]) -> bytes:
            photos = sorted({k for pair in shard for k in pair})
            place = {k: n for n, k in enumerate(photos)}
            header = {
                "pairs": [[place[i], place[j]] for i, j in shard],
                "key": work.key,
                "bounds": asdict(work.bounds),
                "previews": work.previews,
                "standing": asdict(work.standing),
                **more,
            }
            places = {str(place[k]): work.background[k].data for k in photos if k in work.background}
            return self._payload(*recipes, work.cache.key, photos, header, places)

        shards = [pairs[k : k + size] for k in range(0, len(pairs), size)]
        for number, result in self.engine.each(task, (payload(shard) for shard in shards)):
            yield number * size, *unpack(result)

    def _payload(
        self,
        matcher: Recipe,
        extractor: Recipe,
        cache_key: str,
        photos: Sequence[int],
        more: dict[str, Any] | None = None,
        arrays: dict[str, np.ndarray] | None = None,
    ) -> bytes:
        header = {
            "matcher": matcher.plain(),
            "extractor": extractor.plain(),
            "cache": cache_key,
            "features": _text(self.features_folder),
            "given": self.given,
            "photos": [
                [asdict(photo.info), _text(photo.path), photo.digest, _text(photo.mask_path)]
                for photo in (self.photos[k] for k in photos)
            ],
            **(more or {}),
        }
        return pack(header, arrays)


def extract_shard(payload: bytes) -> bytes:
    """Task: the features of some photos; as the answer itself where no folder is shared."""
    header, _ = unpack(payload)
    cache = _cache(header)
    found: dict[str, np.ndarray] = {}
    for k, photo in enumerate(_photos(header)):
        features = cache.get(photo)
        if header["features"] is None:
            found |= {f"{k}/{name}": values for name, values in features.items()}
    return pack({}, found)


def look_shard(payload: bytes) -> bytes:
    """Task: how many matches a quick look at each of some pairs finds."""
    header, arrays = unpack(payload)
    work = _work(header, arrays)
    return pack({"counts": [work.look((i, j), header["look"]) for i, j in header["pairs"]]})


def match_shard(payload: bytes) -> bytes:
    """Task: the verified matches of some pairs."""
    header, arrays = unpack(payload)
    work = _work(header, arrays)
    records = [work.record((i, j)) for i, j in header["pairs"]]
    points = [np.hstack([r.matches.points_i, r.matches.points_j, r.matches.scores[:, None]]) for r in records]
    told = [[r.one, r.other, r.kind, len(r.matches.scores)] for r in records]
    return pack({"records": told}, {"points": np.concatenate([np.zeros((0, 5)), *points]).astype(np.float32)})


def _work(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> PairWork:
    return PairWork(
        photos=_photos(header),
        matcher=_matcher(header),
        cache=_cache(header),
        key=header["key"],
        bounds=VerifyOptions(**header["bounds"]),
        previews=header["previews"],
        background={int(k): cKDTree(places) for k, places in arrays.items()},
        standing=BackgroundOptions(**header["standing"]),
    )


def _cache(header: dict[str, Any]) -> FeatureCache:
    folder = scratch() / "features" if header["features"] is None else Path(header["features"])
    room = allowed_bytes()
    return FeatureCache(
        _matcher(header, features=True), folder, header["cache"], held_bytes=HELD_SHARE * room, budget=Budget(room / 2)
    )


def _matcher(header: dict[str, Any], *, features: bool = False) -> Matcher:
    values = header["extractor" if features else "matcher"]
    return _made(Recipe(name=values["name"], weights=_path(values["weights"]), selective=values["selective"]))


@cache
def _made(recipe: Recipe) -> Matcher:
    """Once in a worker: networks take a while to load."""
    return recipe.make()


def _photos(header: dict[str, Any]) -> list[Photo]:
    """The photos where this worker finds them."""
    folder = None if header["given"] is None else given(header["given"])
    photos = []
    for info, path, digest, mask in header["photos"]:
        place, white = Path(path), _path(mask)
        if folder is not None:
            place = folder / _name(digest, place)
            white = None if white is None else folder / _mask_name(digest, white)
        photos.append(Photo(info=ImageInfo(**info), path=place, digest=digest, mask_path=white))
    return photos


def _files(photos: Sequence[Photo]) -> Iterator[tuple[str, Path]]:
    for photo in photos:
        yield _name(photo.digest, photo.path), photo.path
        if photo.mask_path is not None:
            yield _mask_name(photo.digest, photo.mask_path), photo.mask_path


def _name(digest: str, path: Path) -> str:
    return f"{digest}{path.suffix}"


def _mask_name(digest: str, path: Path) -> str:
    return f"{digest}.mask{path.suffix}"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
