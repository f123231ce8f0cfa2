"""Public datasets in the layouts in which they are published. Nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

from proba.io.datasets.layout import Layout
from proba.io.datasets.phototourism import PHOTOTOURISM
from proba.io.datasets.radiance import LLFF, MIPNERF360
from proba.io.datasets.rgbd import SEVEN_SCENES, TUM
from proba.io.datasets.robots import DTU, DTU_NPZ, MIDDLEBURY
from proba.io.datasets.surveys import ETH3D, ETH3D_DISTORTED, STRECHA

LAYOUTS: tuple[Layout, ...] = (
    DTU, DTU_NPZ, MIPNERF360, ETH3D, ETH3D_DISTORTED, PHOTOTOURISM, STRECHA, MIDDLEBURY, LLFF, TUM, SEVEN_SCENES,
)  # fmt: skip


def layouts_of(folder: Path) -> list[Layout]:
    """The layouts that a folder of one scene has; ETH3D's distorted and undistorted photos are two."""
    return [layout for layout in LAYOUTS if layout.recognises(folder)]


__all__ = ["LAYOUTS", "Layout", "layouts_of"]
