"""The unknowns of all hypotheses ("worlds"), side by side in the leading dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from proba.solver.moments import Moments
from proba.solver.options import SolverOptions
from proba.solver.problem import Problem

FOV_RANGE_DEG = (5.0, 140.0)
LOG_TAN_RANGE = tuple(math.log(math.tan(math.radians(fov) / 2)) for fov in FOV_RANGE_DEG)


@dataclass(kw_only=True)
class World:
    """How one hypothesis starts."""

    name: str
    fov_deg: float
    """Start field of view along the longest side, of cameras whose focal length is not known."""
    relative_log_tan: np.ndarray | None = None  # [C]
    """Log tangents of the cameras' half fields of view against that one; None: all alike."""
    mirror_of: int | None = None
    """Index of the primary world that this one mirrors."""
    parent_from_child: torch.Tensor | None = None  # [N, 4, 4]; None: identity up to quarter turns


@dataclass(kw_only=True)
class Worlds:
    """Parameters, optimiser state and running statistics of B worlds."""

    names: list[str]
    mirror_of: list[int | None]
    parent_from_child: torch.Tensor  # [B, N, 4, 4] float64
    start: torch.Tensor  # [B, N, 4, 4] float64, parent_from_child at twist 0, only used with twist coordinates
    twist: torch.Tensor  # [B, N, 6] float64, only used with twist coordinates
    log_tan: torch.Tensor  # [B, C, 1 or 2] float64
    maps: torch.Tensor  # [B, N, L+1, L+1, channels] float32, padded, see docs/conventions.md
    edge_weight: torch.Tensor  # [B, E] float32
    inlier_loss: torch.Tensor  # [B] float64, running mean over accepted matches
    loss: torch.Tensor  # [B] float64, running world loss
    margin: torch.Tensor  # [B] float64, distance of the outlier level from the inlier loss
    pose_moments: Moments
    focal_moments: Moments
    map_moments: Moments

    @property
    def level(self) -> int:
        """Cells a side of the maps."""
        return self.maps.shape[2] - 1

    @property
    def cells(self) -> torch.Tensor:
        """The maps without padding, a view, [B, N, L, L, channels]."""
        return self.maps[:, :, :-1, :-1]

    def select(self, keep: list[int]) -> Worlds:
        """Only these worlds; a mirror world whose primary is gone is on its own."""
        index = torch.tensor(keep).to(self.maps.device)
        where = {old: new for new, old in enumerate(keep)}
        kept: dict[str, Any] = {name: getattr(self, name)[index].clone() for name in _TENSORS}
        kept |= {name: getattr(self, name).select(index) for name in _MOMENTS}
        mirror_of = [None if (p := self.mirror_of[k]) is None else where.get(p) for k in keep]
        return Worlds(names=[self.names[k] for k in keep], mirror_of=mirror_of, **kept)

    def copy(self) -> Worlds:
        return self.select(list(range(len(self.names))))

    def to(self, device: torch.device) -> Worlds:
        """The same worlds there; what is there already is not copied."""
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in _TENSORS + _MOMENTS}
        return Worlds(names=self.names, mirror_of=self.mirror_of, **moved)

    def finite(self) -> list[bool]:
        """Whether all parameters of each world are finite numbers."""
        fine = torch.ones(len(self.names), dtype=torch.bool, device=self.maps.device)
        for tensor in (self.parent_from_child, self.log_tan, self.maps, self.edge_weight):
            fine &= tensor.reshape(len(fine), -1).isfinite().all(1)
        return fine.tolist()

    def arrays(self) -> dict[str, torch.Tensor]:
        """All state by name, for checkpoints and snapshots."""
        out = {name: getattr(self, name) for name in _TENSORS}
        for name in _MOMENTS:
            moments = getattr(self, name)
            out |= {f"{name}.first": moments.first, f"{name}.second": moments.second}
            out[f"{name}.count"] = torch.tensor(moments.count)
        return out

    @classmethod
    def from_arrays(cls, names: list[str], mirror_of: list[int | None], arrays: dict[str, torch.Tensor]) -> Worlds:
        state: dict[str, Any] = {name: arrays[name] for name in _TENSORS}
        for name in _MOMENTS:
            first, second, count = (arrays[f"{name}.{part}"] for part in ("first", "second", "count"))
            state[name] = Moments(first, second, int(count))
        return cls(names=names, mirror_of=mirror_of, **state)

    def refine_level(self, level: int) -> None:
        """Resample maps and their optimiser state to more cells; a finer cell sees a smaller share of the gradient."""
        old = self.level
        if level == old:
            return
        self.maps = _pad(_resample(self.cells, level))
        second = _resample(self.map_moments.second[:, :, :-1, :-1], level) * (old / level) ** 4
        self.map_moments = Moments(torch.zeros_like(self.maps), _pad(second), self.map_moments.count)

    def rescale(self, log_factor: torch.Tensor) -> None:
        """Shrink all translations by exp(log_factor), [B], after the maps were shifted by it."""
        factor = torch.exp(-log_factor)[:, None, None]
        self.parent_from_child[..., :3, 3] *= factor
        self.start[..., :3, 3] *= factor
        self.twist[..., :3] *= factor

    def move_focals(self, step: torch.Tensor, held: torch.Tensor) -> None:
        """Against `step` [B, C, 1 or 2], within believable bounds; not those of the cameras `held` [C] bool."""
        moved = (self.log_tan - step).clamp(*LOG_TAN_RANGE)
        self.log_tan = torch.where(held[:, None], self.log_tan, moved)


_TENSORS = (
    "parent_from_child",
    "start",
    "twist",
    "log_tan",
    "maps",
    "edge_weight",
    "inlier_loss",
    "loss",
    "margin",
)
_MOMENTS = ("pose_moments", "focal_moments", "map_moments")


def start_worlds(problem: Problem, starts: list[World], options: SolverOptions) -> Worlds:
    """Strict cold start: identity poses (up to quarter turns), depth 1, variance 1; seeded worlds bring poses."""
    n_worlds, n_images = len(starts), problem.n_images
    poses = torch.stack([problem.start if s.parent_from_child is None else s.parent_from_child for s in starts])
    log_tan = torch.tensor([math.log(math.tan(math.radians(s.fov_deg) / 2)) for s in starts])
    alike = np.zeros(problem.n_cameras)
    relative = np.stack([alike if s.relative_log_tan is None else s.relative_log_tan for s in starts])  # [B, C]
    log_tan = log_tan.double()[:, None] + torch.from_numpy(relative)  # [B, C]
    log_tan = log_tan[..., None].repeat(1, 1, 1 if options.square_pixels else 2)  # [B, C, 1 or 2]
    if options.start_fov_sides == "both":
        log_tan = log_tan - problem.camera_extent.log()
    known = problem.known_log_tan[:, None]
    log_tan = torch.where(known.isnan(), log_tan, known)
    channels = 2 if options.objective.gaussians == "isotropic" else 8
    maps = torch.zeros(n_worlds, n_images, 2, 2, channels)
    if channels == 8:
        maps[:, :, 0, 0, 4] = 1.0  # unit quaternion
    weight = torch.from_numpy(problem.graph.initial_weight).float().repeat(n_worlds, 1)
    n_generators = 9 if options.pose_steps == "pivot" else 6
    infinite = torch.full((n_worlds,), math.inf, dtype=torch.float64)
    margin = math.inf if options.outlier_margin is None else options.outlier_margin
    return Worlds(
        names=[s.name for s in starts],
        mirror_of=[s.mirror_of for s in starts],
        parent_from_child=poses,
        start=poses.clone(),
        twist=torch.zeros(n_worlds, n_images, 6, dtype=torch.float64),
        log_tan=log_tan,
        maps=maps,
        edge_weight=weight,
        inlier_loss=infinite.clone(),
        loss=infinite.clone(),
        margin=torch.full((n_worlds,), margin, dtype=torch.float64),
        pose_moments=Moments.like(torch.zeros(n_worlds, n_images, n_generators, dtype=torch.float64)),
        focal_moments=Moments.like(log_tan),
        map_moments=Moments.like(maps),
    )


def _resample(cells: torch.Tensor, level: int) -> torch.Tensor:
    """Bilinear, cell centres aligned: [B, N, L, L, C] -> [B, N, level, level, C]."""
    b, n, size, _, c = cells.shape
    flat = cells.reshape(b * n, size, size, c).permute(0, 3, 1, 2)
    fine = F.interpolate(flat, size=(level, level), mode="bilinear", align_corners=False)
    return fine.permute(0, 2, 3, 1).reshape(b, n, level, level, c).contiguous()


def _pad(cells: torch.Tensor) -> torch.Tensor:
    return F.pad(cells, (0, 0, 0, 1, 0, 1)).contiguous()
