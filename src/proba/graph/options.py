"""Options of the view graph stage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GraphOptions:
    """Which image pairs the solver looks at, and how much it trusts them at first."""

    n_neig: int = 8
    """Each image is joined to its n_neig - 1 most similar ones; 8 did as well as the paper's 20, faster."""
    min_matches: int = 30
    """Pairs with fewer matches are dropped unless the tree needs them (most false pairs have fewer)."""
    weight_power: float = 0.5
    """A pair starts with weight similarity ** weight_power; the paper has 1."""
    aux_factor: float | None = 0.3
    """Weight factor of pairs outside the tree; None is the paper's 1 / n_neig."""

    def __post_init__(self) -> None:
        if self.n_neig < 2:
            raise ValueError(f"n_neig must be at least 2 so that an image has a neighbour, got {self.n_neig}")
        if self.min_matches < 1:
            raise ValueError(f"min_matches must be at least 1, got {self.min_matches}")
