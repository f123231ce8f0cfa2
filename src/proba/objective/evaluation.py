"""Losses of all edges of all worlds and their gradients, by autograd: the oracle of the fused kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proba.objective import terms
from proba.objective.options import ObjectiveOptions
from proba.objective.packed import MatchWindow, PackedMatches


@dataclass(frozen=True, kw_only=True)
class Minibatch:
    """What one evaluation needs: a window of every edge's matches, and the unknowns of B worlds."""

    packed: PackedMatches
    """Matches of all edges."""
    start: Tensor  # [E] int64
    """First match of each edge's window."""
    batch: int
    """Largest number of matches of an edge in the window."""
    maps: Tensor  # [B, N, L+1, L+1, 2]
    """Log depth and log variance; with anisotropic Gaussians 8 channels."""
    log_tan: Tensor  # [B, N, 2]
    """Log tangent of half the field of view along the longest side."""
    j_from_i: Tensor  # [B, E, 4, 4] or [B, E, 3, 4]
    """Relative poses T_ji; the upper left 3 x 3 must be rotations."""
    edge_weight: Tensor  # [E] or [B, E]
    """Already normalised."""
    outlier_level: Tensor  # [B]
    """Loss at which a match is as likely an outlier; infinite: no outliers."""

    def to(self, device: torch.device) -> Minibatch:
        """The same there; what is there already is not copied."""
        names = ("packed", "start", "maps", "log_tan", "j_from_i", "edge_weight", "outlier_level")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


@dataclass(frozen=True, kw_only=True)
class EdgeEvaluation:
    """Loss of every edge, and the gradient of the world losses sum_e W_e edge_loss_e."""

    edge_loss: Tensor  # [B, E] mean robust loss of the window's matches
    inlier_share: Tensor  # [B, E] mean inlier posterior
    inlier_loss: Tensor  # [B, E] loss averaged with the inlier posteriors as weights
    grad_pose: Tensor  # [B, E, 3, 4] with respect to the upper rows of j_from_i
    grad_maps: Tensor  # [B, N, L+1, L+1, C]
    grad_log_tan: Tensor  # [B, N, 2]


def edge_losses(
    matches: MatchWindow,
    edges: Tensor,
    extent: Tensor,
    maps: Tensor,
    log_tan: Tensor,
    j_from_i: Tensor,
    outlier_level: Tensor,
    options: ObjectiveOptions,
) -> tuple[Tensor, Tensor, Tensor]:
    """Differentiable `edge_loss`, and `inlier_share`, `inlier_loss`, [B, E] each; shapes as in `Minibatch`."""
    image_i, image_j = edges.long().unbind(-1)  # [E] each
    x_i, y_i, x_j, y_j = (c.to(maps.dtype) for c in (matches.x_i, matches.y_i, matches.x_j, matches.y_j))  # [E, W]
    sampled_i = terms.sample_maps(maps, image_i, x_i, y_i, extent)  # [B, E, C, W]
    sampled_j = terms.sample_maps(maps, image_j, x_j, y_j, extent)  # [B, E, C, W]
    log_tan_i, log_tan_j = log_tan[:, image_i], log_tan[:, image_j]  # [B, E, 2]
    nll = terms.match_nll(
        terms.unproject(x_i, y_i, log_tan_i, sampled_i),
        terms.unproject(x_j, y_j, log_tan_j, sampled_j),
        (x_i, y_i, x_j, y_j),
        log_tan_i,
        log_tan_j,
        j_from_i,
        measure=options.measure,
        w_3d=options.w_3d,
        z_min=options.z_min,
    )  # [B, E, W]
    robust, posterior = terms.inlier_posterior(nll, outlier_level)  # [B, E, W] each
    posterior = torch.where(matches.inside, posterior, 0.0).detach()
    size = matches.size.clamp(min=1).to(maps.dtype)  # [E]
    edge_loss = torch.where(matches.inside, robust, 0.0).sum(-1) / size  # [B, E]
    inliers = posterior.sum(-1)  # [B, E]
    inlier_loss = (posterior * nll.detach()).sum(-1) / inliers.clamp(min=1e-6)  # [B, E]
    return edge_loss, inliers / size, inlier_loss


def world_losses(edge_weight: Tensor, edge_loss: Tensor) -> Tensor:
    """Eq. `world_loss`: sum_e sg(W_e) L^e of each world, [B], of weights [E] or [B, E] and losses [B, E]."""
    return (edge_weight.detach() * edge_loss).sum(-1)


def evaluate(
    at: Minibatch,
    options: ObjectiveOptions | None = None,
    *,
    losses: Callable[..., tuple[Tensor, Tensor, Tensor]] = edge_losses,
) -> EdgeEvaluation:
    """Losses and gradients of one minibatch in the precision of its maps. `losses` may be `edge_losses`, compiled."""
    options = options or ObjectiveOptions()
    expected = {"isotropic": 2, "anisotropic": 8}[options.gaussians]
    packed, maps = at.packed, at.maps
    assert maps.ndim == 5 and maps.shape[-1] == expected, f"{options.gaussians} maps, got shape {tuple(maps.shape)}"
    leaves = [t.detach().to(maps.dtype).requires_grad_() for t in (maps, at.log_tan, at.j_from_i[..., :3, :])]
    with torch.enable_grad():
        matches = packed.window(at.start, at.batch)
        edge_loss, inlier_share, inlier_loss = losses(
            matches, packed.edges, packed.extent, *leaves, at.outlier_level, options
        )  # [B, E] each
        total = world_losses(at.edge_weight.to(maps.dtype), edge_loss).sum()  # []
        grad_maps, grad_log_tan, grad_pose = torch.autograd.grad(total, leaves)
    return EdgeEvaluation(
        edge_loss=edge_loss.detach(),
        inlier_share=inlier_share,
        inlier_loss=inlier_loss,
        grad_pose=grad_pose,
        grad_maps=grad_maps,
        grad_log_tan=grad_log_tan,
    )
