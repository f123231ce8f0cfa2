"""Matches of all edges in the flat arrays that the objective walks through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PackedMatches:
    """Every edge's matches, edge after edge, shuffled within an edge so that a window is a random sample."""

    edges: Tensor  # [E, 2] int32, image indices i < j
    offset: Tensor  # [E] int64, first match of the edge
    count: Tensor  # [E] int64, may be 0
    x_i: Tensor  # [M] float32, normalised image coordinates: longest side is [-1, 1]
    y_i: Tensor  # [M] float32
    x_j: Tensor  # [M] float32
    y_j: Tensor  # [M] float32
    extent: Tensor  # [N, 2] float32, half width and half height of each image in normalised units

    def __post_init__(self) -> None:
        num_edges, num_matches = len(self.edges), len(self.x_i)
        assert self.edges.shape == (num_edges, 2), self.edges.shape
        assert self.offset.shape == self.count.shape == (num_edges,), (self.offset.shape, self.count.shape)
        for flat in (self.x_i, self.y_i, self.x_j, self.y_j):
            assert flat.shape == (num_matches,), (flat.shape, num_matches)
        assert self.extent.ndim == 2 and self.extent.shape[1] == 2, self.extent.shape

    @property
    def num_images(self) -> int:
        return len(self.extent)

    @property
    def num_edges(self) -> int:
        return len(self.edges)

    @cached_property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Edges, offset, count, x_i, y_i, x_j, y_j, extent as numpy views, for the CPU kernel."""
        return tuple(field.numpy() for field in self.fields)

    @cached_property
    def fields(self) -> tuple[Tensor, ...]:
        """The same as contiguous tensors, for a kernel of the device where they are."""
        fields = (self.edges, self.offset, self.count, self.x_i, self.y_i, self.x_j, self.y_j, self.extent)
        return tuple(field.contiguous() for field in fields)

    def to(self, device: torch.device) -> PackedMatches:
        """The same matches there; these ones if they are there already."""
        if self.edges.device == device:
            return self
        return replace(self, **{field.name: getattr(self, field.name).to(device) for field in dataclass_fields(self)})

    def window_size(self, batch: int) -> Tensor:
        """Matches of each edge in a minibatch, [E]."""
        return self.count.clamp(max=batch)

    def window(self, start: Tensor, batch: int) -> MatchWindow:
        """Gather a minibatch: of each edge `min(batch, count)` matches from `start` [E] on, cyclically."""
        size = self.window_size(batch)  # [E]
        width = int(size.max()) if len(size) else 0
        step = torch.arange(width, device=size.device)  # [W]
        inside = step < size[:, None]  # [E, W]
        index = self.offset[:, None] + (start[:, None] + step) % self.count.clamp(min=1)[:, None]  # [E, W]
        index = torch.where(inside, index, 0)
        if len(self.x_i) == 0:
            empty = self.x_i.new_zeros(len(size), width)
            return MatchWindow(x_i=empty, y_i=empty, x_j=empty, y_j=empty, inside=inside, size=size)
        return MatchWindow(
            x_i=self.x_i[index],
            y_i=self.y_i[index],
            x_j=self.x_j[index],
            y_j=self.y_j[index],
            inside=inside,
            size=size,
        )


@dataclass(frozen=True, kw_only=True)
class MatchWindow:
    """A minibatch as rectangles; edges with fewer matches are padded on the right."""

    x_i: Tensor  # [E, W] float32
    y_i: Tensor  # [E, W] float32
    x_j: Tensor  # [E, W] float32
    y_j: Tensor  # [E, W] float32
    inside: Tensor  # [E, W] bool, False on padding
    size: Tensor  # [E] int64, number of matches before the padding
