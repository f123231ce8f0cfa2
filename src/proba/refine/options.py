"""Options of the refinement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class RefineOptions:
    """How a rough world becomes an accurate reconstruction."""

    focal: Literal["free", "init", "fixed"] = "free"
    """`fixed` keeps the focal lengths of the solution; `free` and `init` refine them."""
    share: Literal["camera", "folder", "all", "none"] = "camera"
    """`camera`: photos that share intrinsics by their size alone get a focal length each where the matches ask for it;
    the others are taken at their word."""
    principal_point: Literal["auto", "centre"] = "auto"
    """`auto` frees the principal point when the likelihood gains, and with a prior in small sets; `centre` keeps it."""
    distortion: Literal["auto", "none", "simple", "radial"] = "auto"
    """`auto` decides by the likelihood; `simple` and `radial` estimate one or two coefficients in any case."""
    photometric: bool = True
    """Where the matches are coarse and the photos are at hand, observations move to where the grey values agree."""
    max_tracks: int = 3000
    """Tracks while worlds are compared and rescued. 2,500 found the same worlds as 4,000 on castle_p19 and fern. Of
    more than 50 images, more in proportion."""
    final_tracks: int = 8000
    """The same in the last adjustment. 13,000 were not more accurate than 8,000 on the Strecha sets."""
    max_points: int = 100_000
    """Tracks that become points of the result, triangulated with the final cameras."""
    max_worlds: int = 3
    """Worlds that are polished at most."""
    good_share: float = 0.97
    """A world that explains a larger share of the explainable matches is taken without looking at others."""
    rescue_rounds: int = 3
    """How often badly placed images are peeled off and placed again; 0 turns it off."""
    seed: int = 0
    """Seed of the choice among equally good tracks."""

    def __post_init__(self) -> None:
        if min(self.max_tracks, self.final_tracks, self.max_points) < 100:
            raise ValueError("max_tracks, final_tracks and max_points must be at least 100")
        if self.max_worlds < 1:
            raise ValueError(f"max_worlds must be at least 1, got {self.max_worlds}")
