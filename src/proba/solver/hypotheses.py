"""Which worlds are tried, and how they are ranked."""

from __future__ import annotations

from dataclasses import replace

import torch

from proba.geometry import so3
from proba.geometry.camera import UNIT_SIDE_PX
from proba.geometry.epipolar import sampson
from proba.objective import PackedMatches
from proba.solver.given_start import given_start
from proba.solver.options import SolverOptions
from proba.solver.problem import Problem
from proba.solver.two_view import estimate_log_tan, two_view_start
from proba.solver.worlds import World

SAMPSON_PX = 3.0
"""Epipolar distance of a supporting match, for an image of 1024 px."""
SAMPLES_PER_EDGE = 256
MAX_SAMPLES = 400_000


def portfolio(problem: Problem, options: SolverOptions) -> list[World]:
    """The start of every world; a mirror world follows its primary."""
    fovs = (options.cold_fov_deg,) if options.hypotheses == "cold" else options.start_fov_deg
    if problem.cameras.known.all():
        fovs = (options.cold_fov_deg,)  # the known focals replace it
    two_view = options.hypotheses == "portfolio" and options.two_view_world
    estimate = estimate_log_tan(problem) if two_view else None
    relative = None if estimate is None else estimate[1]  # [C]
    worlds: list[World] = []
    for fov in fovs:
        worlds.append(World(name=f"fov{fov:g}", fov_deg=fov, relative_log_tan=relative))
        if options.mirror != "off":
            worlds.append(replace(worlds[-1], name=f"fov{fov:g}-mirror", mirror_of=len(worlds) - 1))
    if estimate is not None:
        worlds.append(two_view_start(problem, *estimate))
    if problem.known is not None and problem.known.starts:
        worlds.append(given_start(problem, problem.known, options.cold_fov_deg))
    return worlds


class EpipolarScore:
    """Support of a world by its matches: epipolar distance and positive depth, whatever depth and variance say.

    The likelihood cannot rank worlds of different field of view at the coarse stage (it favours wide ones); this can.
    """

    def __init__(self, matches: PackedMatches, max_samples: int = MAX_SAMPLES):
        edges = matches.edges.long()
        per_edge = max(8, min(SAMPLES_PER_EDGE, max_samples // max(1, len(edges))))
        slot = torch.arange(per_edge, device=edges.device)
        take = matches.count[:, None].clamp(max=per_edge)  # [E, 1]
        self.valid = slot < take  # [E, K]
        index = (matches.offset[:, None] + torch.where(self.valid, slot, 0)).clamp(max=max(0, len(matches.x_i) - 1))
        self.xy_i = torch.stack([matches.x_i[index], matches.y_i[index]], -1)  # [E, K, 2]
        self.xy_j = torch.stack([matches.x_j[index], matches.y_j[index]], -1)
        self.i, self.j = edges[:, 0], edges[:, 1]
        self.weight = self.valid.float() * (matches.count.clamp(max=300).float()[:, None] / take.clamp(min=1))

    def errors(self, j_from_i: torch.Tensor, tan: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Sampson distance in 1024ths of the longest side, and whether a match is in front of both cameras.

        [..., E, K] of poses [..., E, 4, 4] and tangents [..., N, 2].
        """
        pose, tan = j_from_i.float(), tan.float()
        ray_i = _homogeneous(self.xy_i * tan[..., self.i, None, :])  # [..., E, K, 3]
        ray_j = _homogeneous(self.xy_j * tan[..., self.j, None, :])
        rotation, translation = pose[..., :3, :3], pose[..., :3, 3]
        essential = so3.hat(translation) @ rotation
        distance = sampson(ray_j, ray_j @ essential, ray_i @ essential.transpose(-1, -2))  # [..., E, K]
        focal = UNIT_SIDE_PX / 2 / (tan[..., self.i, 0] * tan[..., self.j, 0]).sqrt()  # [..., E]
        turned = ray_i @ rotation.transpose(-1, -2)
        t = translation[..., None, :].expand_as(turned)
        normal = torch.linalg.cross(ray_j, turned)
        depth_i = -(normal * torch.linalg.cross(ray_j, t)).sum(-1)
        depth_j = -(torch.linalg.cross(turned, t) * normal).sum(-1)
        return distance * focal[..., None], (depth_i > 0) & (depth_j > 0)

    def shares(self, j_from_i: torch.Tensor, tan: torch.Tensor) -> list[tuple[float, float]]:
        """Of each world: weighted share of supporting matches, and their median epipolar distance in 1024ths of the
        longest side; of poses [B, E, 4, 4] and tangents [B, N, 2]. As many worlds at a time as memory should hold."""
        together = max(1, MAX_SAMPLES // max(1, self.valid.numel()))
        parts = zip(j_from_i.split(together), tan.split(together), strict=True)
        return [share for poses, tangents in parts for share in self._shares(poses, tangents)]

    def _shares(self, j_from_i: torch.Tensor, tan: torch.Tensor) -> list[tuple[float, float]]:
        error, front = self.errors(j_from_i, tan)  # [B, E, K]
        good = (error < SAMPSON_PX) & front
        share = (good * self.weight).sum((1, 2)) / self.weight.sum().clamp(min=1e-9)  # [B]
        if not bool(self.valid.any()):
            return [(value, float("nan")) for value in share.tolist()]
        return list(zip(share.tolist(), error[:, self.valid].median(1).values.tolist(), strict=True))


def _homogeneous(xy: torch.Tensor) -> torch.Tensor:
    return torch.cat([xy, torch.ones_like(xy[..., :1])], -1)
