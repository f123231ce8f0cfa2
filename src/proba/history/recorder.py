"""Takes notes while it solves. Only reads: the result is the same, bit for bit, with and without it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proba.geometry import se3
from proba.graph import ViewGraph
from proba.history.evolution import (
    EVOLUTION_FILE,
    Evolution,
    WorldHistory,
    load_evolutions,
    result_frame,
    save_evolutions,
)
from proba.io.npz import read_npz, write_npz
from proba.pipeline import Observer, Piece
from proba.solver import Progress
from proba.solver.problem import Problem

MAX_POINTS = 3000
EARLY_SHARE, EARLY_STEPS, STEPS = 0.1, 240, 60
"""Frames are at least 1/EARLY_STEPS of the run apart in its first tenth, 1/STEPS later."""


@dataclass
class _Note:
    """All worlds at one iteration."""

    iteration: int
    names: list[str]
    loss: np.ndarray  # [B]
    parent_from_child: np.ndarray  # [B, N, 3, 4] float32
    log_tan: np.ndarray  # [B, C]
    edge_weight: np.ndarray  # [B, E]
    samples: np.ndarray  # [B, P, 2] float32, log-depth and log-variance


class PixelSample:
    """A few matched pixels of every image, whose Gaussians are followed."""

    def __init__(self, problem: Problem, max_points: int = MAX_POINTS):
        packed = problem.matches
        edges, count, offset = packed.edges.numpy(), packed.count.numpy(), packed.offset.numpy()
        degree = np.bincount(edges.ravel(), minlength=problem.n_images)  # [N]
        wanted = -(-max(1, max_points // problem.n_images) // np.maximum(degree, 1))  # [N], of each edge
        image, xy = [], []
        for x, y, side in ((packed.x_i, packed.y_i, 0), (packed.x_j, packed.y_j, 1)):
            both = np.column_stack([x.numpy(), y.numpy()])
            for e, node in enumerate(edges[:, side]):  # matches are shuffled: the first ones are a fair sample
                taken = both[offset[e] : offset[e] + min(count[e], wanted[node])]
                xy.append(taken)
                image.append(np.full(len(taken), node))
        keep = _thinned(sum(map(len, xy)), max_points)
        self.image = np.concatenate(image)[keep]  # [P]
        self.xy = np.concatenate(xy)[keep]  # [P, 2]
        extent = packed.extent.numpy()[self.image]  # [P, 2]
        self.relative = (self.xy / extent + 1) / 2  # [P, 2], 0..1 over width and height
        self._level = 0

    def __call__(self, maps: np.ndarray) -> np.ndarray:
        """Bilinear samples [B, P, 2] of log-depth and log-variance in padded maps [B, N, L + 1, L + 1, channels]."""
        level = maps.shape[2] - 1
        if level != self._level:
            self._level = level
            self._cells, self._weights = _corners(self.image, self.relative, level)
        flat = maps.reshape(len(maps), -1, maps.shape[-1])  # [B, N (L + 1)^2, channels]
        out = np.zeros((len(maps), len(self.image), 2), np.float32)
        for cell, weight in zip(self._cells, self._weights, strict=True):
            out += weight[:, None] * flat.take(cell, axis=1)[..., :2]
        return out


def _thinned(total: int, most: int) -> np.ndarray:
    """At most `most` of `total` indices, evenly spaced."""
    return np.arange(total) if total <= most else np.linspace(0, total - 1, most).astype(int)


def _corners(image: np.ndarray, relative: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
    """The four cells around each position [P, 2] of an image [P]: flat indices [4, P] and weights [4, P].

    The padding beyond the last cell only ever gets the weight zero, see docs/conventions.md.
    """
    grid = np.clip(relative * level - 0.5, 0, level - 1)  # [P, 2]
    low = np.floor(grid).astype(int)
    (x, y), (a, b) = low.T, (grid - low).astype(np.float32).T
    first = (image * (level + 1) + y) * (level + 1) + x  # [P]
    cells = np.stack([first, first + 1, first + level + 1, first + level + 2])
    return cells, np.stack([(1 - a) * (1 - b), a * (1 - b), (1 - a) * b, a * b])


class _Tape:
    """The notes of one search of a connected piece."""

    def __init__(self, problem: Problem, notes: list[_Note] | None = None) -> None:
        self.problem = problem
        self.sample = PixelSample(problem)
        self.notes: list[_Note] = notes or []

    def add(self, progress: Progress) -> None:
        # A search that goes on may repeat iterations that were noted already.
        while self.notes and self.notes[-1].iteration >= progress.iteration:
            self.notes.pop()
        if self.notes and progress.iteration != progress.iterations:
            last = self.notes[-1].iteration
            steps = EARLY_STEPS if last < EARLY_SHARE * progress.iterations else STEPS
            if progress.iteration < last + progress.iterations / steps:
                return
        worlds = progress.worlds
        self.notes.append(
            _Note(
                iteration=progress.iteration,
                names=list(worlds.names),
                loss=worlds.loss.numpy().copy(),
                parent_from_child=worlds.parent_from_child[..., :3, :].float().numpy().copy(),
                log_tan=worlds.log_tan[..., 0].numpy().copy(),
                edge_weight=worlds.edge_weight.numpy().copy(),
                samples=self.sample(worlds.maps.numpy()),
            )
        )

    def save(self, path: Path) -> None:
        """Keep the notes, so that a search that goes on later has its beginning too."""
        arrays = {f"{field.name}_{k}": getattr(n, field.name) for k, n in enumerate(self.notes) for field in fields(n)}
        write_npz(
            path, {name: np.asarray(value) for name, value in arrays.items()} | {"notes": np.array(len(self.notes))}
        )

    @classmethod
    def load(cls, path: Path, problem: Problem) -> _Tape:
        """The notes that `save` kept; none where the file is missing or damaged: a film is not worth a failed run."""
        notes = []
        try:
            file = read_npz(path)
            for k in range(int(file["notes"])):
                values: dict[str, Any] = {field.name: file[f"{field.name}_{k}"] for field in fields(_Note)}
                names, iteration = values.pop("names").tolist(), int(values.pop("iteration"))
                notes.append(_Note(names=names, iteration=iteration, **values))
        except Exception as error:  # damaged files raise anything
            warnings.warn(f"{path} cannot be read ({error}); the film begins where the run goes on", stacklevel=2)
        return cls(problem, notes)

    def evolution(self, piece: Piece) -> Evolution:
        worlds = self._worlds(piece)
        frames = [
            (k, note, note.names.index(world.name))
            for k, world in enumerate(worlds)
            for note in self._of_world(world.name, only_last=world.pruned_at is not None)
        ]
        rec = piece.reconstruction
        result = result_frame(rec, self.sample.image, self.sample.xy)
        log_tan = np.stack([note.log_tan[b] for _, note, b in frames])[:, self.problem.camera_of_image.numpy()]
        weight = np.stack([note.edge_weight[b] for _, note, b in frames])  # [F, E]
        log_depth, log_variance = np.stack([note.samples[b].T for _, note, b in frames], axis=1)  # [F, P]
        poses = self._cam_from_world([note.parent_from_child[b] for _, note, b in frames])
        evolution = Evolution(
            image_names=rec.image_names,
            size_px=np.array([[rec.cameras[k].width, rec.cameras[k].height] for k in rec.camera_of_image]),
            edges=self.problem.graph.edges.astype(np.int32),
            point_image=self.sample.image.astype(np.int32),
            point_xy=self.sample.xy.astype(np.float32),
            worlds=worlds,
            world=np.array([*(k for k, _, _ in frames), -1]),
            iteration=np.array([*(note.iteration for _, note, _ in frames), self.notes[-1].iteration]),
            loss=np.array([*(note.loss[b] for _, note, b in frames), np.nan], np.float32),
            cam_from_world=np.concatenate([poses, result.cam_from_world[None]]).astype(np.float32),
            tan=np.concatenate([np.exp(log_tan), result.tan[None]]).astype(np.float32),
            edge_weight=np.concatenate([weight, [[edge.weight for edge in rec.edges]]]).astype(np.float16),
            log_depth=np.concatenate([log_depth, result.log_depth[None]]).astype(np.float16),
            log_sigma=np.concatenate([log_variance / 2, result.log_sigma[None]]).astype(np.float16),
        )
        evolution.align()
        return evolution

    def _worlds(self, piece: Piece) -> list[WorldHistory]:
        """The worlds that were seen, and the chosen one even if the refinement made it."""
        first = self.notes[0]
        still = (first.iteration == 0) & (first.parent_from_child[..., 3] == 0).all((1, 2))  # [B]
        cold = dict(zip(first.names, still.tolist(), strict=True))
        return [
            WorldHistory(
                name=hypothesis.name,
                loss=hypothesis.loss,
                chosen=hypothesis.chosen,
                pruned_at=hypothesis.pruned_at,
                epipolar_share=hypothesis.epipolar_share,
                cold=cold.get(hypothesis.name, False),
            )
            for hypothesis in piece.hypotheses
            if hypothesis.chosen or any(hypothesis.name in note.names for note in self.notes)
        ]

    def _of_world(self, name: str, *, only_last: bool) -> list[_Note]:
        notes = [note for note in self.notes if name in note.names]
        return notes[-1:] if only_last else notes

    def _cam_from_world(self, parent_from_child: list[np.ndarray]) -> np.ndarray:  # [F, N, 3, 4]
        motion = np.tile(np.eye(4), (len(parent_from_child), self.problem.n_images, 1, 1))  # [F, N, 4, 4]
        motion[:, :, :3] = np.stack(parent_from_child)
        return se3.inverse(self.problem.tree.compose(torch.from_numpy(motion))).numpy()[:, :, :3]


class Recorder(Observer):
    """An observer that keeps a light history of every piece, and writes it beside the results."""

    def __init__(self) -> None:
        self.evolutions: list[Evolution] = []
        """One history for each finished piece whose search was watched."""
        self._tapes: dict[int, _Tape] = {}  # by attempt
        self._attempt = 0

    def piece(self, index: int, total: int, graph: ViewGraph) -> None:
        if index == 0:
            self.evolutions = []
        self._tapes, self._attempt = {}, 0

    def attempt(self, number: int) -> None:
        self._attempt = number

    def iteration(self, progress: Progress) -> None:
        if self._attempt not in self._tapes:
            self._tapes[self._attempt] = _Tape(progress.problem)
        self._tapes[self._attempt].add(progress)

    def saving(self, checkpoint: Path) -> None:
        if self._attempt in self._tapes:
            self._tapes[self._attempt].save(_beside(checkpoint))

    def resumed(self, checkpoint: Path, problem: Problem) -> None:
        self._tapes[self._attempt] = _Tape.load(_beside(checkpoint), problem)

    def solved(self, piece: Piece) -> None:
        tape = self._tapes.get(piece.attempt)
        if tape is not None and tape.notes:
            self.evolutions.append(tape.evolution(piece))
        self._tapes = {}

    def written(self, folder: Path) -> None:
        save_evolutions(folder / EVOLUTION_FILE, self.evolutions)


class NewEnding(Observer):
    """An observer of a refinement that starts from a solve before: it lets the history of the solve end in it."""

    def __init__(self, folder: Path) -> None:
        path = folder / EVOLUTION_FILE
        self._evolutions = load_evolutions(path) if path.is_file() else []
        self._pieces: list[Piece] = []

    def solved(self, piece: Piece) -> None:
        self._pieces.append(piece)

    def written(self, folder: Path) -> None:
        result_of = {tuple(piece.reconstruction.image_names): piece for piece in self._pieces}
        for evolution in self._evolutions:
            piece = result_of.get(tuple(evolution.image_names))
            if piece is None:
                continue
            chosen = {hypothesis.name for hypothesis in piece.hypotheses if hypothesis.chosen}
            evolution.worlds = [replace(world, chosen=world.name in chosen) for world in evolution.worlds]
            evolution.end_in(piece.reconstruction)
        if self._evolutions:
            save_evolutions(folder / EVOLUTION_FILE, self._evolutions)


def _beside(checkpoint: Path) -> Path:
    """Where the notes of a search are kept that has this checkpoint."""
    return checkpoint.with_name(f"{checkpoint.stem}-{EVOLUTION_FILE}")
