"""What the data cannot tell: flat scenes, focal lengths that nothing observes, images that hang by a thread."""

from __future__ import annotations

import numpy as np

from proba.geometry.camera import FX
from proba.reconstruction import Note
from proba.refine.bundle import Bundle
from proba.refine.options import NoteOptions
from proba.refine.uncertainty import CameraUncertainty


def is_flat(xyz: np.ndarray, sigma: np.ndarray, flatness: float) -> bool:
    """Whether points [P, 3] with standard deviations [P] lie in one plane, up to noise and `flatness` extents."""
    if len(xyz) < 4:
        return True
    distance, extent = plane_distance(xyz)
    return distance < flatness * extent + 2 * float(np.median(sigma))


def plane_distance(xyz: np.ndarray) -> tuple[float, float]:
    """Distance from the best plane that holds for nine tenths of the points [P, 3], and the scene's extent."""
    centre = np.median(xyz, axis=0)
    radius = np.linalg.norm(xyz - centre, axis=1)  # [P]
    near = xyz[radius <= np.quantile(radius, 0.95)]  # far stragglers would tilt the plane
    keep = np.ones(len(near), bool)
    distance = np.zeros(len(near))
    for _ in range(5):
        mean = near[keep].mean(axis=0)
        normal = np.linalg.svd(near[keep] - mean, full_matrices=False)[2][2]
        distance = np.abs((near - mean) @ normal)  # [P']
        keep = distance <= np.quantile(distance, 0.9)
    extent = np.sqrt(((near - near.mean(axis=0)) ** 2).sum(axis=1).mean())
    return float(np.quantile(distance, 0.9)), float(extent)


def degeneracy_notes(
    bundle: Bundle, uncertainty: CameraUncertainty, sigma: np.ndarray, options: NoteOptions
) -> list[Note]:
    """Warnings with advice, for the report. `sigma` [T] are the points' standard deviations."""
    notes = []
    held = (bundle.alive_per_track() >= 2) & np.isfinite(sigma)  # [T]
    flat = is_flat(bundle.xyz[held], sigma[held], options.flatness)
    relative = uncertainty.intrinsics_std[:, FX] / bundle.intrinsics[:, FX]  # [C]
    unseen = relative > (options.flat_focal_std if flat else options.max_focal_std)  # [C]
    if unseen.any():
        worst = 100 * min(float(relative.max()), 10.0)
        cause = (
            "flat scene: it does not show the focal length" if flat else "the photos say little about the focal length"
        )
        notes.append(
            Note(
                kind="flat scene" if flat else "focal not observed",
                text=f"{cause} (standard deviation up to {worst:.0f} %, {int(unseen.sum())} of {len(unseen)} cameras)",
                advice="pass --focal fixed with a known focal length, or add images with depth and turned cameras",
                numbers={"focal_std_pct": worst, "cameras": int(unseen.sum())},
            )
        )
    elif flat and not bundle.held.all():
        notes.append(
            Note(
                kind="flat scene",
                text="flat scene: focal length and depth rest on small effects of perspective",
                advice="give a known focal length (--focal fixed) if depth must be exact",
            )
        )
    return notes
