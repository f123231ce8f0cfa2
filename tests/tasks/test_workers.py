"""Workers: the same bits as in one process, nothing lost when a worker or the scheduler is killed."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from dask_processes import OLDER, Cluster

from proba.errors import InputError
from proba.matching import MatchOptions, PairOptions, match_folder
from proba.matching.folder import Silent
from proba.synthetic import make_scene
from proba.synthetic.render import render_images
from proba.tasks import TaskError, WorkerOptions, open_engine, pack, unpack
from proba.tasks.dask_engine import DaskEngine

OPTIONS = MatchOptions(matcher="sift", pairs=PairOptions(mode="exhaustive"))


class At(Silent):
    """Calls a function once, after the first finished pair."""

    def __init__(self, call):
        self.call, self.what, self.done_pairs, self.totals = call, "", 0, {}

    def begin(self, what, total, unit):
        self.what = what
        self.totals[what] = total

    def advance(self):
        if self.what == "matching":
            self.done_pairs += 1
            if self.done_pairs == 1:
                self.call()


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("workers") / "photos"
    render_images(make_scene("object", n_images=5, seed=0), folder)
    return folder


@pytest.fixture(scope="module")
def alone(photos) -> bytes:
    """The matches of one process."""
    match_folder(photos, photos.parent / "alone.h5", OPTIONS, jobs=1)
    return (photos.parent / "alone.h5").read_bytes()


def matched(photos: Path, out: Path, cluster: Cluster, **more) -> bytes:
    with open_engine(cluster.options) as engine:
        match_folder(photos, out, OPTIONS, engine=engine, **more)
    return out.read_bytes()


def test_values_and_arrays_survive_packing_and_give_the_same_bytes():
    header, arrays = {"name": "a", "pairs": [[0, 1]]}, {"points": np.arange(6.0).reshape(2, 3)}
    content = pack(header, arrays)
    assert content == pack(header, arrays)
    found, read = unpack(content)
    assert found == header and np.array_equal(read["points"], arrays["points"])


@pytest.mark.parametrize(
    ("values", "told"),
    [({"workers": 0}, "at least 1"), ({"workers": 2, "cluster": "tcp://127.0.0.1:1"}, "not both")],
)
def test_wrong_options_are_refused(values, told):
    with pytest.raises(InputError, match=told):
        WorkerOptions(**values)


def test_a_killed_worker_and_then_the_scheduler_lose_nothing(photos, alone, tmp_path):
    """The first run loses one of two workers, the second its scheduler; both end with the bits of one process."""
    with Cluster(tmp_path, workers=2) as cluster:
        watch = At(cluster.workers[0].kill)
        assert matched(photos, tmp_path / "killed.h5", cluster, observer=watch) == alone
        assert watch.done_pairs == watch.totals["matching"] == 10
        second = At(cluster.scheduler.kill)
        with pytest.raises(TaskError, match="--resume"):
            matched(photos, tmp_path / "resumed.h5", cluster, observer=second)
    assert 1 <= second.done_pairs < 10
    third = At(lambda: None)
    match_folder(photos, tmp_path / "resumed.h5", OPTIONS, jobs=1, resume=True, observer=third)
    assert third.totals["matching"] == 10 - second.done_pairs
    assert (tmp_path / "resumed.h5").read_bytes() == alone


@pytest.mark.slow
def test_photos_are_handed_to_workers_that_do_not_see_them(photos, alone, tmp_path, monkeypatch):
    monkeypatch.setattr(DaskEngine, "see", lambda self, folder: False)
    with Cluster(tmp_path, workers=2) as cluster:
        assert matched(photos, tmp_path / "given.h5", cluster) == alone


@pytest.mark.slow
def test_local_workers_give_the_same_bits(photos, alone, tmp_path):
    with open_engine(WorkerOptions(workers=2, threads=1)) as engine:
        assert engine.at_a_time == 2
        addresses = engine.client.nthreads()
        assert all(address.startswith("tcp://127.0.0.1:") for address in addresses)
        match_folder(photos, tmp_path / "local.h5", OPTIONS, engine=engine)
    assert (tmp_path / "local.h5").read_bytes() == alone


@pytest.mark.slow
def test_a_worker_of_another_version_is_refused(tmp_path):
    with (
        Cluster(tmp_path, workers=1, code=OLDER) as cluster,
        pytest.raises(InputError, match=r"has ProBA 0\.0\.1, but this is"),
        open_engine(cluster.options),
    ):
        pass


def test_no_scheduler_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr("proba.tasks.dask_engine.SECONDS_TO_CONNECT", 1)
    with (
        pytest.raises(InputError, match=r"there is no Dask scheduler at tcp://127\.0\.0\.1:9"),
        open_engine(WorkerOptions(cluster="tcp://127.0.0.1:9")),
    ):
        pass


def test_parts_are_asked_for_one_by_one_in_one_process():
    asked = itertools.count()
    with open_engine() as engine:
        parts = engine.each(lambda payload: payload * 2, (bytes([next(asked)]) for _ in range(5)))
        assert next(parts) == (0, b"\0\0")
        assert next(asked) == 1
