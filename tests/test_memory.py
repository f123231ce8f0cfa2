"""Memory, and what only some systems have."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from proba import memory
from proba.dense.fusion import nearest_images
from proba.errors import InputError
from proba.graph import build_view_graphs
from proba.matches import ImageInfo, Matches, PairMatches
from proba.matching import PairOptions
from proba.matching.pairs import likely_pairs, most_alike
from proba.matching.triplets import triplet_cycles
from proba.memory import GB, Budget, allowed_bytes, available_bytes, peak_rss_mb, require, set_memory
from proba.reconstruction import Edge
from proba.refine.normal_equations import require_memory
from proba.report.facts import PairFacts, cuts

MANY = 10_000  # photos: an array of all pairs has 800 MB

WITHOUT_POSIX = """
import builtins, importlib, pkgutil, sys
whole = builtins.__import__

def on_windows(name, globals=None, *rest, **more):
    if name in ("resource", "fcntl", "termios", "pwd") and (globals or {}).get("__name__", "").startswith("proba"):
        raise ImportError(f"no module named {name} on this system")
    return whole(name, globals, *rest, **more)

builtins.__import__ = on_windows
import proba
names = [module.name for module in pkgutil.walk_packages(proba.__path__, "proba.") if "__main__" not in module.name]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_peak_memory_holds_what_was_freed():
    lines = "import numpy; from proba.memory import peak_rss_mb; numpy.ones(75_000_000); print(peak_rss_mb())"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert 600e6 / 1024**2 < float(done.stdout) < 2000


def test_peak_memory_on_windows(monkeypatch):
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(peak_wset=3 * 1024**2))
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(Process=lambda: process))
    monkeypatch.setattr(sys, "platform", "win32")
    assert peak_rss_mb() == 3.0


def test_every_module_can_be_imported_where_posix_is_not():
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def peak_mb(work: Callable[[], object]) -> float:
    """What Python and numpy hold at most during some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1024**2
    finally:
        tracemalloc.stop()


def row_of_photos(n: int, reach: int) -> Matches:
    """Each photo matches those that follow."""
    matches = Matches([ImageInfo(name=str(k), width=64, height=64) for k in range(n)])
    points, scores = np.random.default_rng(0).uniform(0, 64, (40, 2)).astype(np.float32), np.ones(40, np.float32)
    for i in range(n):
        for j in range(i + 1, min(i + 1 + reach, n)):
            matches.pairs[i, j] = PairMatches(points, points, scores)
    return matches


@pytest.mark.slow
@pytest.mark.parametrize("of_all", [0, 11 * MANY])
def test_a_shortlist_of_many_photos_needs_no_array_of_all_pairs(of_all):
    signatures = np.random.default_rng(0).normal(size=(MANY, 64)).astype(np.float32)
    assert peak_mb(lambda: likely_pairs(most_alike(signatures, 80, of_all), MANY, PairOptions())) < 650


def test_a_view_graph_of_many_photos_needs_no_array_of_all_pairs():
    matches = row_of_photos(MANY, 4)
    assert peak_mb(lambda: build_view_graphs(matches)) < 100


@pytest.mark.slow
def test_triplets_of_many_photos_need_no_array_of_all_pairs():
    matches = row_of_photos(MANY, 2)
    assert peak_mb(lambda: triplet_cycles(matches)) < 100


def test_cuts_of_many_photos_need_no_array_of_all_pairs():
    names = [str(k) for k in range(3000)]
    facts = {"matches": 40, "weight": 1.0, "explainable": 1.0, "explained": 1.0, "median_px": 1.0, "agreeing": 40}
    edges = [PairFacts(i=i, j=j, **facts) for i, j in pairwise(names)]
    assert peak_mb(lambda: cuts(names, edges)) < 10


class RowOfImages(SimpleNamespace):
    """The part of a reconstruction that says which images are neighbours."""

    def __len__(self) -> int:
        return len(self.image_names)


def test_neighbours_of_many_photos_need_no_array_of_all_pairs():
    names = [str(k) for k in range(3000)]
    facts = {"weight": 1.0, "explainable": 1.0, "explained": 1.0}
    edges = [Edge(i=i, j=j, matches=5 + k, **facts) for k, (i, j) in enumerate(pairwise(names))]
    row = RowOfImages(image_names=names, edges=edges, points=None)
    assert peak_mb(lambda: nearest_images(row, 8)) < 10
    assert nearest_images(row, 8)[:2] == [[1], [2, 0]] and nearest_images(row, 1)[1] == [2]


@pytest.fixture
def limit(monkeypatch):
    """Sets the memory for one test."""
    monkeypatch.setattr(memory, "_chosen", None)
    return set_memory


def test_memory_is_what_the_user_says_or_a_share_of_what_is_left(limit):
    assert 0 < allowed_bytes() < available_bytes()
    limit(8)
    assert allowed_bytes() == 7.5 * GB
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="--memory"):
            limit(wrong)


def test_what_cannot_fit_is_refused_with_what_is_needed_and_allowed(limit):
    limit(2)
    require(1.4 * GB, "This", "")
    with pytest.raises(InputError, match=r"This needs 2\.10 GB of memory, 2\.00 GB are allowed\. Do less\."):
        require(1.6 * GB, "This", "Do less.")
    require_memory(100)
    with pytest.raises(InputError, match="500000 photos in one piece needs 26"):
        require_memory(500_000)
    everything = np.stack(np.triu_indices(800, 1), axis=1)
    with pytest.raises(InputError, match="800 photos in one piece needs 2"):
        require_memory(800, everything)
    row = np.stack([np.arange(20_000), np.arange(20_000) + 1], axis=1)
    require_memory(20_001, row)  # images that see only their neighbours


@pytest.mark.parametrize(("need", "together"), [(3, 3), (6, 1), (100, 1)])
def test_a_budget_lets_only_so_much_be_under_way(need, together):
    budget, under_way, most = Budget(10), [], []

    def work(number: int) -> None:
        with budget.take(need):
            under_way.append(number)
            most.append(len(under_way))
            under_way.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(200)))
    assert len(most) == 200 and max(most) <= together and not under_way
