"""Adaptive edge weighting, Section 3.3 of the paper. All functions are stop-gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


@torch.no_grad()
def node_statistics(
    edges: Tensor, edge_loss: Tensor, num_images: int, add: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Mean mu_i and deviation sigma_i, [B, N] each, of the losses [B, E] of the edges [E, 2] at a node.

    `add` sums the values [B, 2E] of both ends of all edges over the nodes, [B, N]; the default is torch's.
    """
    node = edges.long().T.reshape(-1)  # [2E]
    loss = edge_loss.repeat(1, 2)  # [B, 2E]
    add = add or (lambda values: values.new_zeros(len(values), num_images).index_add(1, node, values))
    degree = add(loss.new_ones(1, len(node))).clamp(min=1)  # [1, N]
    mean = add(loss) / degree  # [B, N]
    variance = add((loss - mean[:, node]).square()) / degree  # [B, N]
    return mean, variance.sqrt()


@torch.no_grad()
def reliability(
    edges: Tensor, edge_loss: Tensor, num_images: int, add: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Instantaneous reliability w_ij, [B, E]: an edge's loss against those of its neighbours at both ends."""
    mean, deviation = node_statistics(edges, edge_loss, num_images, add)  # [B, N] each
    score = torch.zeros_like(edge_loss)
    for node in edges.long().unbind(-1):  # [E]
        normalised = (edge_loss - mean[:, node]) / deviation[:, node].clamp(min=1e-6)  # [B, E]
        score += 0.5 * torch.sigmoid(-normalised)
    return score


@torch.no_grad()
def ema_update(weights: Tensor, reliability: Tensor, rate: float) -> Tensor:
    """W^(t) = (1 - alpha) W^(t-1) + alpha w, [B, E]."""
    return torch.lerp(weights, reliability, rate)
