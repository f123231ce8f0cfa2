"""Camera models in COLMAP's conventions, numpy float64: pixels, first pixel centre at (0.5, 0.5).

SIMPLE_PINHOLE (f, cx, cy), PINHOLE (fx, fy, cx, cy), SIMPLE_RADIAL (f, cx, cy, k) and
RADIAL (f, cx, cy, k1, k2).
"""

from __future__ import annotations

import numpy as np

N_PARAMS = {"SIMPLE_PINHOLE": 3, "PINHOLE": 4, "SIMPLE_RADIAL": 4, "RADIAL": 5}
"""Number of parameters of each supported model."""
UNIT_SIDE_PX = 1024.0
"""Bounds and deviations in pixels are meant for an image of this longest side, and grow with larger ones."""


def focal_from_fov(fov_deg: float | np.ndarray, side_px: float | np.ndarray) -> np.ndarray:
    """Focal length in pixels of a side of `side_px` pixels seen under `fov_deg` degrees."""
    return np.asarray(side_px) / (2 * np.tan(np.radians(fov_deg) / 2))


def fov_from_focal(focal_px: float | np.ndarray, side_px: float | np.ndarray) -> np.ndarray:
    """Field of view in degrees along a side of `side_px` pixels."""
    return np.degrees(2 * np.arctan(np.asarray(side_px) / (2 * np.asarray(focal_px))))


def project(model: str, params: np.ndarray, points_cam: np.ndarray) -> np.ndarray:
    """Pixels [..., 2] of points [..., 3] in the camera's frame; NaN where the point is not in front of it."""
    focal, centre, k1, k2 = _unpack(model, params)
    points_cam = np.asarray(points_cam, np.float64)
    z = np.where(points_cam[..., 2:] > 0, points_cam[..., 2:], np.nan)  # [..., 1]
    return distort(points_cam[..., :2] / z, k1, k2) * focal + centre


def unproject(model: str, params: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Ray (x/z, y/z) [..., 2] of pixels [..., 2].

    A pixel outside the range of a barrel distortion gets the ray at its rim.
    """
    focal, centre, k1, k2 = _unpack(model, params)
    distorted = (np.asarray(xy, np.float64) - centre) / focal  # [..., 2]
    if k1 == 0 and k2 == 0:
        return distorted
    radius = np.linalg.norm(distorted, axis=-1, keepdims=True)  # [..., 1]
    safe = np.where(radius > 0, radius, 1.0)
    return distorted * (undistort_radius(radius, k1, k2) / safe)


def distort(ray: np.ndarray, k1: float | np.ndarray, k2: float | np.ndarray) -> np.ndarray:
    """Rays x/z, y/z [..., 2] after radial distortion with coefficients that are numbers or [...]."""
    r2 = (ray * ray).sum(-1)
    return ray * (1 + r2 * (k1 + r2 * k2))[..., None]


def undistort(
    distorted: np.ndarray,
    k1: float | np.ndarray,
    k2: float | np.ndarray,
    p1: float = 0.0,
    p2: float = 0.0,
    k3: float = 0.0,
    *,
    iterations: int = 20,
) -> np.ndarray:
    """Rays x/z, y/z [..., 2] of distorted ones, by the fixed-point iteration of OpenCV and with its coefficients.

    For many cameras at once, and tangential distortion; `unproject` is exact where distortion is strong.
    """
    x, y = start_x, start_y = distorted[..., 0], distorted[..., 1]
    for _ in range(iterations):
        r2 = x * x + y * y
        factor = np.clip(1 + r2 * (k1 + r2 * (k2 + r2 * k3)), 0.3, 3.0)
        across, down = 2 * p1 * x * y + p2 * (r2 + 2 * x * x), p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
        x, y = (start_x - across) / factor, (start_y - down) / factor
    return np.stack([x, y], axis=-1)


def undistort_radius(distorted: np.ndarray, k1: float, k2: float, iterations: int = 60) -> np.ndarray:
    """Solve r (1 + k1 r^2 + k2 r^4) = distorted [...] on the branch that begins at r = 0.

    Newton's method, kept inside a bracket by bisection, as the polynomial may turn around.
    """
    low = np.zeros_like(distorted)
    high = np.minimum(_turning_radius(k1, k2), _upper_radius(distorted, k1, k2))
    r = np.minimum(distorted, high)
    for _ in range(iterations):
        r2 = r * r
        excess = r * (1 + r2 * (k1 + r2 * k2)) - distorted
        slope = 1 + r2 * (3 * k1 + 5 * k2 * r2)
        low, high = np.where(excess < 0, r, low), np.where(excess > 0, r, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = r - excess / slope
        inside = (newton >= low) & (newton <= high)
        step_to = np.where(inside, newton, (low + high) / 2)
        done = (np.abs(step_to - r) <= 4 * np.finfo(np.float64).eps * r).all()  # the last bits may go back and forth
        r = step_to
        if done:
            break
    return r


def _turning_radius(k1: float, k2: float) -> float:
    """Smallest positive r where d/dr of r (1 + k1 r^2 + k2 r^4) vanishes, or infinity."""
    roots = np.roots([5 * k2, 3 * k1, 1.0]) if k2 != 0 else np.roots([3 * k1, 1.0])
    turning = [root.real for root in np.atleast_1d(roots) if abs(root.imag) < 1e-12 and root.real > 0]
    return float(np.sqrt(min(turning))) if turning else float("inf")


def _upper_radius(distorted: np.ndarray, k1: float, k2: float) -> np.ndarray:
    """A radius [...] at or above the solution, where there is one; found by doubling."""
    high = np.maximum(distorted, 1e-12)
    for _ in range(60):
        short = high * (1 + high**2 * (k1 + high**2 * k2)) < distorted
        if not short.any():
            break
        high = np.where(short, np.minimum(2 * high, 1e6), high)
    return high


def _unpack(model: str, params: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Focal lengths [2], principal point [2], k1 and k2."""
    if model not in N_PARAMS:
        raise ValueError(f"camera model {model} is not supported; use one of {', '.join(N_PARAMS)}")
    params = np.asarray(params, np.float64)
    if params.shape != (N_PARAMS[model],):
        raise ValueError(f"{model} has {N_PARAMS[model]} parameters, got shape {params.shape}")
    if model == "PINHOLE":
        return params[:2], params[2:], 0.0, 0.0
    k1, k2, *_ = [*params[3:], 0.0, 0.0]
    return params[[0, 0]], params[1:3], float(k1), float(k2)
