"""One world for a large piece: its clusters are solved as tasks, joined, and handed to the refinement together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proba._version import __version__
from proba.clusters.averaging import Joined, join_parts
from proba.clusters.joining import joined_solution
from proba.clusters.solving import Part, Solved, cluster_payload, read_solved, solve_cluster
from proba.errors import GeometryError
from proba.graph import ViewGraph
from proba.graph.partition import Partition, make_partition
from proba.io.atomic import atomic_file
from proba.matches import Matches
from proba.pipeline import Together
from proba.solution import CLUSTERS, ClusterReport, Hypothesis, SolverRun
from proba.solve_options import SolveOptions
from proba.tasks import Engine


@dataclass(frozen=True, kw_only=True)
class Dividing:
    """Divides pieces that are large enough, or all if that was asked for. `proba.pipeline.solve_matches` takes it."""

    engine: Engine
    checkpoints: Path | None = None
    """Where solved clusters wait for the others, so that `resume` finds them."""
    resume: bool = False

    def wants(self, graph: ViewGraph, options: SolveOptions) -> bool:
        return options.clusters.count_for(graph.n_images) > 1

    def solved(self, matches: Matches, graph: ViewGraph, options: SolveOptions, watch: Together) -> SolverRun:
        """One world of the piece from those of its clusters."""
        begin = time.perf_counter()
        wanted, alone = options.clusters, replace(options, clusters=replace(options.clusters, count="off"))
        counts = matches.similarity_counts()[graph.images][:, graph.images]
        partition = make_partition(counts, wanted.count_for(graph.n_images), wanted)
        members = [graph.images[nodes] for nodes in partition.members]
        sizes = ", ".join(str(len(images)) for images in members)
        watch.stage(f"{len(members)} clusters of {sizes} images")
        solved: list[Solved | None] = [None] * len(members)
        joined, parts = None, _Parts([])
        for try_ in range(wanted.tries):
            todo = [k for k, one in enumerate(solved) if one is None or k in parts.outvoted(joined)]
            if not todo:
                break
            # The other search begins elsewhere, and is longer: the same one would end where it did.
            later = replace(alone, seed=alone.seed + try_, solver=replace(
                alone.solver, iterations=alone.solver.iterations * (1 + try_)))  # fmt: skip
            payloads = [cluster_payload(matches, members[k], later, try_) for k in todo]
            for number, found in self._all(payloads, watch):
                solved[todo[number]] = found
            parts = _Parts([one for one in solved if one is not None])
            joined = join_parts(parts.all, wanted, trusted=parts.trusted)
            watch.stage(f"{int(joined.kept.sum())} of {len(parts.all)} parts joined")
        assert joined is not None
        if not joined.kept.any():
            raise GeometryError(f"none of the {len(members)} clusters could be reconstructed; try --clusters off")
        return self._run(matches, graph, options, partition, parts, joined, time.perf_counter() - begin)

    def _all(self, payloads: Sequence[bytes], watch: Together) -> list[tuple[int, Solved]]:
        """All clusters: those that wait on disk, and the others by the engine, each on disk as soon as it is done."""
        found: dict[int, Solved] = {}
        for number, payload in enumerate(payloads):
            if self.resume and (before := self._waiting(payload)) is not None:
                found[number] = before
        todo = [number for number in range(len(payloads)) if number not in found]
        done = len(found)
        for part in self.engine.each(solve_cluster, (payloads[number] for number in todo)):
            solved = read_solved(part.result)
            if solved.interrupted:
                raise KeyboardInterrupt
            self._keep(payloads[todo[part.number]], part.result)
            found[todo[part.number]] = solved
            done += 1
            watch.stage(f"cluster {done} of {len(payloads)}: {solved.text.split(':')[0]}")
        return sorted(found.items())

    def _file(self, payload: bytes) -> Path | None:
        if self.checkpoints is None:
            return None
        key = hashlib.sha256(__version__.encode() + payload).hexdigest()[:24]
        return self.checkpoints / f"cluster-{key}.npz"

    def _waiting(self, payload: bytes) -> Solved | None:
        path = self._file(payload)
        if path is None or not path.is_file():
            return None
        try:
            return read_solved(path.read_bytes())
        except Exception:  # damaged in any way: it is solved again
            return None

    def _keep(self, payload: bytes, result: bytes) -> None:
        path = self._file(payload)
        if path is not None:
            with atomic_file(path) as file:
                file.write(result)

    def _run(
        self,
        matches: Matches,
        graph: ViewGraph,
        options: SolveOptions,
        partition: Partition,
        parts: _Parts,
        joined: Joined,
        seconds: float,
    ) -> SolverRun:
        solution = joined_solution(matches, graph, options.cameras, partition, parts.all, joined)
        hypothesis = Hypothesis(name=CLUSTERS, loss=None, pruned_at=None, epipolar_share=None)
        return SolverRun(
            solutions=[solution],
            hypotheses=[hypothesis],
            iterations=max(one.iterations for one in parts.solved),
            interrupted=False,
            seconds=seconds,
            clusters=parts.reports(matches, joined),
        )


class _Parts:
    """The parts of all clusters in one list; a cluster that falls apart has several."""

    def __init__(self, solved: Sequence[Solved]):
        self.solved = list(solved)
        self.all: list[Part] = [part for one in solved for part in one.parts]
        self.cluster_of = [k for k, one in enumerate(solved) for _ in one.parts]

    @property
    def trusted(self) -> list[bool]:
        return [self.solved[k].level != "distrust" for k in self.cluster_of]

    def outvoted(self, joined: Joined | None) -> set[int]:
        """Clusters of which no part is in the world."""
        if joined is None:
            return set()
        kept = {k for k, keep in zip(self.cluster_of, joined.kept.tolist(), strict=True) if keep}
        return set(range(len(self.solved))) - kept

    def reports(self, matches: Matches, joined: Joined) -> list[ClusterReport]:
        out, reports = self.outvoted(joined), []
        for k, one in enumerate(self.solved):
            mine = [p for p, cluster in enumerate(self.cluster_of) if cluster == k]
            images = sorted({int(i) for p in mine for i in self.all[p].images})
            why = next((joined.reason[p] for p in mine if p in joined.reason), one.text)
            reports.append(
                ClusterReport(
                    images=[matches.images[i].name for i in images],
                    level=one.level,
                    text=one.text,
                    explained_share=max((self.all[p].explained for p in mine), default=0.0),
                    voted_out=why if k in out else "",
                    seconds=one.seconds,
                )
            )
        return reports
