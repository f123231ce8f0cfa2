"""Which variant of the objective is minimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions:
    """Choices that change the loss of a match."""

    measure: Literal["neutral", "paper"] = "neutral"
    """Volume element of the 3D term. `paper`: as printed, which rewards shrinking the scene and raising the
    focal length; `neutral`: density per pixel-sized cube at the point, which rewards neither."""
    w_3d: float = 1.0
    """Weight of the 3D term against the two 2D terms."""
    z_min: float = 0.02
    """Depth (mean scene depth is about 1) below which a point has no 2D term; the 3D term pulls it back."""
    gaussians: Literal["isotropic", "anisotropic"] = "isotropic"
    """`anisotropic` (reference only) has three log variances and a quaternion in each cell, for the ablation."""
