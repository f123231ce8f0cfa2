"""From a folder of photos to a file of verified matches, resumable at any moment."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from proba.errors import GeometryError, InputError
from proba.io.images import Photo, find_photos
from proba.matches import ImageInfo, Matches, PairMatches, symmetric_counts
from proba.matching.background import (
    BackgroundOptions,
    background_points,
    holds_pair,
    in_place,
    joins_subject,
    without_background,
)
from proba.matching.densify import Densifier
from proba.matching.features import FeatureCache, working_bytes
from proba.matching.matcher import Extractor, Features, Matcher, check_matcher, empty_matches
from proba.matching.nearest import MAX_DIMENSIONS
from proba.matching.pair_work import PairWork
from proba.matching.pairs import (
    ROWS_AT_A_TIME,
    VOCABULARY_SEED,
    Candidates,
    Pair,
    PairFilter,
    PairOptions,
    choose_pairs,
    chooses_by_looks,
    from_other_places,
    likely_pairs,
    listed_pairs,
    looks_for_loops,
    most_alike,
    pairs_by_name,
    places_of,
    signature,
    unit_sample,
    vocabulary,
    without_common,
)
from proba.matching.shards import Recipe, Shards
from proba.matching.store import MatchStore, Record, join_matches, settings_key
from proba.matching.triplets import false_pairs
from proba.matching.verify import VerifyOptions, verify
from proba.memory import Budget, allowed_bytes, require
from proba.tasks import Engine, InProcess

Item = TypeVar("Item")
Result = TypeVar("Result")
SAMPLE_OF_IMAGE = 300  # descriptors of an image that the visual vocabulary is made from ...
SAMPLE_OF_ALL = 300_000  # ... and of all images, which bounds memory from 1,000 images on
PAIR_BYTES = 250  # of a pair in lists and dictionaries, without its matches
HELD_BYTES = 1024**3  # features of a matcher in memory at most; the others wait on disk
AUTO = "auto"
FIRST, SECOND = "sift", "xfeat"
"""What `auto` begins with, and what it adds."""


@dataclass(frozen=True, kw_only=True)
class MatchOptions:
    """Settings of the matching stage."""

    matcher: str = AUTO
    """Name of a matcher, see `proba match --list`. auto: SIFT, and XFeat where SIFT finds little."""
    masks: Path | None = None
    """Folder of masks named like the photos: white counts, black is ignored."""
    weights: Path | None = None
    """The matcher's weights file."""
    graph_matcher: str | None = None
    """Makes the view graph; the matcher then runs on its edges."""
    graph_weights: Path | None = None
    """The weights file of the matcher for the view graph."""
    graph_neighbours: int | None = None
    """With a matcher for the graph: N_neig of the edges that are matched. None: as the solver has it in `proba run`,
    else the paper's 20."""
    pairs: PairOptions = field(default_factory=PairOptions)
    """Which pairs of photos are compared."""
    pair_filter: PairFilter | None = None
    """Python function of the images and the pairs, returns the pairs to match."""
    densify: bool = False
    """Add matches on a 64 x 64 grid, interpolated between the others and refined on the pixels."""
    triplets: bool = True
    """Drop pairs that third images contradict, or should confirm and do not."""
    background: BackgroundOptions = field(default_factory=BackgroundOptions)
    """What is done where the camera stood still and its subject turned."""
    verify: VerifyOptions | None = None
    """When a pair is kept. Without any of these, each matcher has its own bounds."""
    weak_below: int = 100
    """auto: a pair with fewer verified matches does not count as strong."""
    strong_pairs: int = 2
    """auto: photos with fewer strong pairs are weak, and their pairs are matched with XFeat too."""
    enough: int = 400
    """auto: a photo with this many verified matches in all its pairs is not weak, strong pairs or not."""
    weak_share: float = 0.2
    """auto: where more of the photos that match some other are weak, all pairs get XFeat: half the pairs with ten times
    the matches of the others make a lopsided graph."""
    preview_from: int = 20
    """Sets with fewer photos are matched in full, without a first look at the most telling features."""

    def __post_init__(self) -> None:
        for name in ("masks", "weights", "graph_weights"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, Path(getattr(self, name)))


def check_match_options(options: MatchOptions) -> None:
    """Refuse settings that cannot work, before any work is done."""
    for name, weights in ((options.matcher, options.weights), (options.graph_matcher, options.graph_weights)):
        check_matcher(FIRST if name in (AUTO, None) else name, weights)
    if options.graph_neighbours is not None and options.graph_neighbours < 2:
        raise InputError(f"graph_neighbours must be at least 2, not {options.graph_neighbours}")
    if options.masks is not None and not options.masks.is_dir():
        raise InputError(f"There is no masks folder {options.masks}. Check the path.")
    listed_pairs(options.pairs)


@dataclass(frozen=True, kw_only=True)
class MatchSummary:
    """What a run has found."""

    photos: int
    pairs_tried: int
    pairs_kept: int
    matches: int
    alone: list[str]
    """Photos that match no other."""
    contradicted: list[tuple[str, str]] = field(default_factory=list)
    """Pairs that were dropped because third images contradict or do not confirm them."""
    subject_alone: bool = False
    """Whether a background that stands still with the camera was left out."""
    graph_pairs: int = 0
    """Pairs tried by the matcher for the view graph, if there was one."""


@dataclass(frozen=True, kw_only=True)
class ViewGraphMatches:
    """What another matcher has found before, for the view graph."""

    matcher: str
    matches: Matches
    agree: Callable[[PairMatches, PairMatches, ImageInfo, ImageInfo], bool]
    """Whether new matches of a pair are compatible with those of the graph."""


class Observer(Protocol):
    """Who wants to see how far it is."""

    def begin(self, what: str, total: int, unit: str) -> None:
        """A step of `total` units begins."""

    def advance(self) -> None:
        """One unit is done."""

    def done(self, summary: MatchSummary) -> None:
        """All is done, and this was found."""


class Silent:
    """The observer that does not look."""

    def begin(self, what: str, total: int, unit: str) -> None: ...
    def advance(self) -> None: ...
    def done(self, summary: MatchSummary) -> None: ...


def match_with_one(
    folder: Path,
    out: Path,
    options: MatchOptions,
    *,
    resume: bool = False,
    jobs: int | None = None,
    observer: Observer | None = None,
    graph: ViewGraphMatches | None = None,
    engine: Engine | None = None,
    reuse: Sequence[Path] = (),
) -> MatchSummary:
    """The same as `match_folder` with one matcher, for all pairs or for the edges of a graph that another has made."""
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs must be at least 1, not {jobs}")
    jobs = jobs or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    torch.set_num_threads(1)  # several pairs at a time make better use of the cores than several threads for a pair
    check_match_options(options)
    auto = options.matcher == AUTO
    recipe = Recipe(name=FIRST if auto else options.matcher, weights=options.weights)
    first = recipe.make()
    photos = find_photos(folder, masks=options.masks, jobs=jobs)
    _check_memory(photos, first, options)
    with MatchStore(out, photos, resume=resume, reuse=reuse) as store, ThreadPoolExecutor(jobs) as pool:
        run = _Run(photos, store, options, pool, jobs, observer or Silent())
        run.send_to(engine, folder)
        run.know(recipe, first)
        pairs = run.choose(first)
        run.match(first, pairs)
        if run.stands_still():
            pairs = run.match_subject(first, pairs)
        if auto:
            if apart := run.between_pieces(pairs):
                run.match(run.know(Recipe(name=FIRST, selective=True)), apart, features_of=first)
            if needy := run.needy(pairs):
                run.match(run.know(Recipe(name=SECOND)), needy)
        if options.triplets:
            run.drop_contradicted()
        if options.densify:
            run.densify(Densifier())
        if graph is not None:
            run.fill(graph, pairs)
        summary = run.summary(len(pairs))
        if not summary.pairs_kept:
            run.clear()
            raise GeometryError(
                f"no two of the {len(photos)} images in {folder} have matches that agree; "
                "check that they show the same scene, overlap, and are sharp"
            )
        store.finish(
            list(run.descriptions),
            run.descriptions,
            without=run.contradicted,
            only=run.only,
            masks=options.masks,
            graph=None if graph is None else (graph.matcher, graph.matches.pair_counts()),
        )
    run.clear()
    run.observer.done(summary)
    return summary


def _check_memory(photos: list[Photo], matcher: Matcher, options: MatchOptions) -> None:
    """Refuse a set that cannot fit, before its first pair."""
    largest = max(working_bytes(photo, matcher.max_side_px) for photo in photos)
    require(
        fixed_bytes(len(photos), options) + largest,
        f"Matching these {len(photos)} photos",
        "Allow more with --memory, give fewer or smaller photos, or use --pairs shortlist or sequential.",
    )


def fixed_bytes(n_photos: int, options: MatchOptions) -> float:
    """What matching holds that grows with the number of photos, however few of them are worked on at a time."""
    chosen = options.pairs
    if chosen.file is not None or chosen.listed is not None:
        return 0.0  # as many pairs as the user could write down
    if not chooses_by_looks(n_photos, chosen) and not looks_for_loops(n_photos, chosen):
        near = n_photos * (chosen.window + 32)
        every = n_photos * (n_photos - 1) / 2
        return PAIR_BYTES * (min(near, every) if chosen.mode == "sequential" else every)
    descriptor = 4 * MAX_DIMENSIONS  # float32
    samples = min(SAMPLE_OF_ALL, n_photos * SAMPLE_OF_IMAGE) * descriptor
    signatures = n_photos * chosen.words * descriptor
    # The samples twice: one by one, and joined. A row of products is also sorted.
    return 2 * samples + signatures + n_photos * (PAIR_BYTES * chosen.proposals + 16 * ROWS_AT_A_TIME)


class _Run:
    """One matching run: photos, store, and the caches that go with it."""

    def __init__(
        self,
        photos: list[Photo],
        store: MatchStore,
        options: MatchOptions,
        pool: ThreadPoolExecutor,
        jobs: int,
        observer: Observer,
    ):
        self.photos, self.store, self.options = photos, store, options
        self.pool, self.jobs, self.observer = pool, jobs, observer
        self.descriptions: dict[str, dict] = {}
        self.counts: Counter[Pair] = Counter()  # verified matches of the pairs that have some
        self.in_place: set[Pair] = set()  # pairs that a background holds
        self.background: dict[int, cKDTree] = {}  # its places in each photo, once it is left out
        self.contradicted: set[Pair] = set()
        self.only: dict[Pair, str] = {}  # pairs that keep what one of the settings gave
        self.features_folder = store.path.with_name(store.path.name + ".features")
        self.caches: dict[str, FeatureCache] = {}
        self.shards: Shards | None = None
        self.recipes: dict[int, Recipe] = {}  # of matchers, which live as long as this
        room = allowed_bytes() - fixed_bytes(len(photos), options)
        self.held_bytes = min(HELD_BYTES, room / 4)  # of each cache
        self.budget = Budget(room / 2)

    def send_to(self, engine: Engine | None, folder: Path) -> None:
        """Let workers look at the photos, instead of threads of this process."""
        if engine is not None and not isinstance(engine, InProcess):
            self.shards = Shards.of(engine, self.photos, folder, self.options.masks, self.features_folder)

    def know(self, recipe: Recipe, matcher: Matcher | None = None) -> Matcher:
        """A matcher that workers can make too. Those that the user has registered are known in this process alone."""
        matcher = matcher or recipe.make()
        if type(matcher).__module__.startswith("proba."):
            self.recipes[id(matcher)] = recipe
        return matcher

    def choose(self, matcher: Matcher) -> list[Pair]:
        """The pairs to match; large sets are shortlisted by the matcher's own features."""
        images = [photo.info for photo in self.photos]
        place = places_of([image.name for image in images], self.options.pairs)  # [N]
        pairs = [(i, j) for i, j in self._proposed(matcher, images, place) if place[i] != place[j]]
        if self.options.pair_filter is None:
            return pairs
        chosen = self.options.pair_filter(images, pairs)
        return sorted({(min(pair), max(pair)) for pair in chosen if pair[0] != pair[1]})

    def _proposed(self, matcher: Matcher, images: list[ImageInfo], place: np.ndarray) -> list[Pair]:
        listed = listed_pairs(self.options.pairs)
        if listed is not None:
            return pairs_by_name(listed, [image.name for image in images])
        options, n = self.options.pairs, len(self.photos)
        if not matcher.keep_features or not (chooses_by_looks(n, options) or looks_for_loops(n, options)):
            return choose_pairs(n, options)
        if not looks_for_loops(n, options):
            return likely_pairs(self._alike(matcher, round(options.pairs_per_photo * n), place), n, options)
        loops = replace(options, candidates=options.loops, pairs_per_photo=0)
        found = self._alike(matcher, 0, place, apart=options.window)
        return sorted({*choose_pairs(n, options), *likely_pairs(found, n, loops)})

    def _alike(self, matcher: Matcher, of_all: int, place: np.ndarray, *, apart: int = 0) -> Candidates:
        """Pairs of photos that look alike, more than `apart` photos from each other and not of one `place` [N]."""
        options = self.options.pairs
        signatures = self._signatures(matcher)  # [N, C]
        if not matcher.preview:
            each = max(options.candidates, options.loops)
            return from_other_places(most_alike(signatures, each, of_all, apart=apart), place)
        proposed = from_other_places(most_alike(signatures, options.proposals, apart=apart), place)
        del signatures
        cache = self._cache(matcher)
        self.observer.begin("quick look", len(proposed.pairs), "pair")
        seen = np.float32(options.signature_weight) * proposed.alike  # [P]
        for k, count in self._looks(self._work(matcher, cache), [(i, j) for i, j in proposed.pairs.tolist()]):
            seen[k] += count
            self.observer.advance()
        return Candidates(proposed.pairs, seen)

    def _looks(self, work: PairWork, pairs: list[Pair]) -> Iterator[tuple[int, int]]:
        """Number of each pair and how many matches a quick look finds."""
        look, recipe = self.options.pairs.look, self._recipe(work.matcher)
        if self.shards is not None and recipe is not None:
            return self.shards.looks(recipe, work, pairs, look)
        return enumerate(self._parallel(lambda pair: work.look(pair, look), pairs))

    def _make_features(self, matcher: Matcher, cache: FeatureCache, photos: list[Photo]) -> None:
        """The features of photos on disk."""
        recipe = self._recipe(matcher)
        self.observer.begin("features", len(photos), "image")
        if self.shards is not None and recipe is not None:
            done: Iterator = self.shards.features(recipe, cache, photos)
        else:
            done = self._parallel(cache.get, photos)
        for _ in done:
            self.observer.advance()

    def _signatures(self, matcher: Matcher) -> np.ndarray:  # [N, C]
        """What each photo looks like, from a vocabulary of the set's own features."""
        cache, options = self._cache(matcher), self.options.pairs
        self._make_features(matcher, cache, self.photos)
        random = np.random.default_rng(VOCABULARY_SEED)
        telling = matcher.preview or None  # on dtu_scan24 they find as many of the verified pairs as all, or more
        samples, of_image = [], min(SAMPLE_OF_IMAGE, -(-SAMPLE_OF_ALL // len(self.photos)))
        for features in self._parallel(lambda k: self._features(cache, k), range(len(self.photos))):
            samples.append(unit_sample(features["descriptors"][:telling], of_image, random))
        centres = vocabulary(np.concatenate(samples), options.words)
        del samples
        self.observer.begin("signatures", len(self.photos), "image")
        signatures = np.zeros((len(self.photos), centres.size), np.float32)
        for k in range(len(self.photos)):
            descriptors = self._features(cache, k)["descriptors"][:telling]
            signatures[k] = signature(unit_sample(descriptors, len(descriptors), random), centres)
            self.observer.advance()
        return without_common(signatures)

    def match(self, matcher: Matcher, pairs: list[Pair], *, features_of: Matcher | None = None) -> None:
        """Match and verify pairs, and store each as soon as it is done. Features may be those of another matcher."""
        cache = self._cache(features_of or matcher)
        key = self._described(matcher, {"subject": True} if self.background else None)
        todo = [(i, j) for i, j in pairs if not self.store.has(self.photos[i], self.photos[j], key)]
        if matcher.keep_features and todo:
            source = features_of or matcher
            self._make_features(source, cache, [self.photos[k] for k in sorted({k for pair in todo for k in pair})])
        work, recipe, source_recipe = (
            self._work(matcher, cache, key),
            self._recipe(matcher),
            self._recipe(cache.matcher),
        )
        shards = self.shards
        if shards is None or recipe is None or source_recipe is None:
            self._store_all("matching", lambda todo: enumerate(self._parallel(work.record, todo)), key, pairs)
            return
        recipes = recipe, source_recipe
        self._store_all("matching", lambda todo: shards.records(recipes, work, todo), key, pairs)

    def _store_all(
        self, what: str, work: Callable[[list[Pair]], Iterator[tuple[int, Record]]], key: str, pairs: list[Pair]
    ) -> None:
        """Do the work on all pairs that an earlier run has not finished, and count the matches of all.

        `work` gives the number of each pair of a list with its matches, in any order.
        """
        todo = []
        for i, j in pairs:
            if self.store.has(self.photos[i], self.photos[j], key):
                self._count((i, j), self.store.read(self.photos[i], self.photos[j], key))
            else:
                todo.append((i, j))
        self.observer.begin(what, len(todo), "pair")
        for number, record in work(todo):
            self.store.append(record)
            self._count(todo[number], record)
            self.observer.advance()

    def _count(self, pair: Pair, record: Record) -> None:
        if len(record.matches.scores):
            self.counts[pair] += len(record.matches.scores)
            one, other = (self.photos[k].info for k in pair)
            if holds_pair(in_place(record.matches, one, other, self.options.background), self.options.background):
                self.in_place.add(pair)

    def stands_still(self) -> bool:
        """Whether a background that does not move holds most pairs."""
        options = self.options.background
        return options.enabled and 0 < len(self.counts) <= len(self.in_place) / options.pairs_share

    def match_subject(self, matcher: Matcher, pairs: list[Pair]) -> list[Pair]:
        """Match once more without the background; the pairs to go on with are the old ones if no subject is found."""
        images = [photo.info for photo in self.photos]
        found = {pair: self._joined(pair) for pair in self._kept()}
        self.background = background_points(found, images, self.options.background)
        before = self.counts, self.descriptions
        self.counts, self.descriptions = Counter(), {}
        again = self.choose(matcher)
        self.match(matcher, again)
        if joins_subject(self.counts, len(images), self.options.background):
            return again
        self.background = {}
        self.counts, self.descriptions = before
        return pairs

    def drop_contradicted(self) -> None:
        """Take out the pairs that third images speak against."""
        matches = Matches([photo.info for photo in self.photos])
        for i, j in self._kept():
            matches.add(i, j, *self._joined((i, j)))
        self.contradicted = false_pairs(matches)
        for pair in self.contradicted:
            self.counts.pop(pair, None)

    def densify(self, densifier: Densifier) -> None:
        """Add a denser field to every pair that was kept."""
        sources = list(self.descriptions)
        cache, key = self._cache(densifier, {"from": sources}), self._described(densifier, {"from": sources})

        def work(pair: Pair) -> Record:
            one, other = (self.photos[k] for k in pair)
            raw = densifier.densify(self._joined(pair, sources), cache.get(one), cache.get(other))
            result = verify(raw, one.info, other.info, densifier.bounds)
            return Record(one.digest, other.digest, key, result.kind, result.matches)

        self._store_all("densifying", lambda todo: enumerate(self._parallel(work, todo)), key, self._kept())

    def fill(self, graph: ViewGraphMatches, pairs: list[Pair]) -> None:
        """Give the pairs for which nothing was found, or something else than for the graph, the graph's matches."""
        key = settings_key(description := {"matcher": graph.matcher, "role": "graph"})
        for pair in pairs:
            one, other = (self.photos[k] for k in pair)
            sparse = graph.matches.pairs.get(pair, empty_matches())
            if graph.agree(self._joined(pair), sparse, one.info, other.info):
                continue
            self.store.append(Record(one.digest, other.digest, key, "graph", sparse))
            self.only[pair], self.counts[pair] = key, len(sparse.scores)
        if self.only:
            self.descriptions[key] = description

    def _kept(self) -> list[Pair]:
        return sorted(self.counts)

    def _joined(self, pair: Pair, settings: list[str] | None = None) -> PairMatches:
        """Verified matches of a pair by all matchers."""
        one, other = (self.photos[k] for k in pair)
        keys = [key for key in settings or self.descriptions if self.store.has(one, other, key)]
        return join_matches([self.store.read(one, other, key).matches for key in keys])

    def needy(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs of photos with too few well supported pairs to be placed safely, and those between pieces."""
        weak = weak_photos(self._symmetric(), self.options)  # [N]
        apart = set(self.between_pieces(pairs))
        return [pair for pair in pairs if weak[pair[0]] or weak[pair[1]] or pair in apart]

    def between_pieces(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs whose photos no chain of verified pairs joins."""
        piece = self._pieces()  # [N]
        return [(i, j) for i, j in pairs if piece[i] != piece[j]]

    def _pieces(self) -> np.ndarray:  # [N]
        """Number of the connected piece of each photo."""
        return connected_components(self._symmetric(), directed=False)[1]

    def _symmetric(self) -> csr_array:  # [N, N]
        return symmetric_counts(self.counts, len(self.photos))

    def summary(self, pairs_tried: int) -> MatchSummary:
        joined = {image for pair in self.counts for image in pair}
        return MatchSummary(
            photos=len(self.photos),
            pairs_tried=pairs_tried,
            pairs_kept=len(self.counts),
            matches=self.counts.total(),
            alone=[photo.info.name for k, photo in enumerate(self.photos) if k not in joined],
            contradicted=[(self.photos[i].info.name, self.photos[j].info.name) for i, j in sorted(self.contradicted)],
            subject_alone=bool(self.background),
        )

    def clear(self) -> None:
        for cache in self.caches.values():
            cache.clear()

    def _features(self, cache: FeatureCache, k: int) -> Features:
        """Features of photo k, without those of a background that is left out."""
        photo = self.photos[k]
        return without_background(cache.get(photo), self.background.get(k), photo.info, self.options.background)

    def _work(self, matcher: Matcher, cache: FeatureCache, key: str = "") -> PairWork:
        return PairWork(
            photos=self.photos,
            matcher=matcher,
            cache=cache,
            key=key,
            bounds=self._bounds(matcher),
            previews=self._previews(matcher),
            background=self.background,
            standing=self.options.background,
        )

    def _recipe(self, matcher: Extractor) -> Recipe | None:
        """How workers make this matcher; None: the work stays here, or only this process knows the matcher."""
        return None if self.shards is None else self.recipes.get(id(matcher))

    def _previews(self, matcher: Extractor) -> bool:
        return matcher.preview > 0 and len(self.photos) >= self.options.preview_from

    def _bounds(self, matcher: Extractor) -> VerifyOptions:
        return self.options.verify or matcher.bounds

    def _cache(self, matcher: Extractor, more: dict | None = None) -> FeatureCache:
        key = settings_key(self._description(matcher, more))
        if key not in self.caches:
            self.caches[key] = FeatureCache(
                matcher, self.features_folder, key, held_bytes=self.held_bytes, budget=self.budget
            )
        return self.caches[key]

    def _described(self, matcher: Extractor, more: dict | None = None) -> str:
        """Name of everything that the matcher's results depend on; what it stands for is remembered."""
        description = self._description(matcher, more)
        key = settings_key(description)
        self.descriptions[key] = description
        return key

    def _description(self, matcher: Extractor, more: dict | None) -> dict:
        return {
            **matcher.settings(),
            **(more or {}),
            "verify": asdict(self._bounds(matcher)),
            "preview": matcher.preview if self._previews(matcher) else 0,
        }

    def _parallel(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Results in order, with only a few under way, so that memory stays bounded and Ctrl-C takes effect soon."""
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(self.pool.submit(work, item))
                if len(waiting) > 2 * self.jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def weak_photos(counts: csr_array, options: MatchOptions) -> np.ndarray:  # [N] bool
    """Photos with too few well supported pairs to be placed safely, of verified matches [N, N]; all photos where such
    are many. What matches no other photo may be a stranger, and says nothing of the texture of the rest."""
    n = counts.shape[0]
    strong, total = (counts >= options.weak_below).sum(axis=1), counts.sum(axis=1)  # [N] each
    weak = (strong < min(options.strong_pairs, n - 1)) & (total < options.enough)
    joined = total > 0  # [N]
    many = np.count_nonzero(weak & joined) > options.weak_share * np.count_nonzero(joined)
    return np.ones(n, bool) if many else weak
