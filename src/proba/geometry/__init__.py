"""Rotations, rigid motions, cameras, pose trees and similarities. Knows nothing of images or files.

Modules are loaded when they are asked for: some need torch, which takes seconds, and the viewer does without it.
"""

from typing import TYPE_CHECKING

from proba.geometry.sim3 import Sim3

if TYPE_CHECKING:
    from proba.geometry.tree import Tree

__all__ = ["Sim3", "Tree"]


def __getattr__(name: str):
    if name == "Tree":
        from proba.geometry.tree import Tree

        return Tree
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
