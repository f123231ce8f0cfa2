"""Camera models in COLMAP's conventions, numpy float64: pixels, first pixel centre at (0.5, 0.5).

Every model is one of two lenses with some parameters left out. Both have the columns fx, fy, cx, cy, k1, k2, p1, p2, k3
and k4, and then k5 and k6, or sx1 and sy1; what a model lacks is zero, and fy is fx. On the plane of the lens a
direction (x, y, z) has the place (x/z, y/z); on that of a fisheye, whose directions may lie behind it, the angle from
the axis is the distance from the centre. Distortion moves the place:

    perspective  radial = (1 + k1 r^2 + k2 r^4 + k3 r^6) / (1 + k4 r^2 + k5 r^4 + k6 r^6)
    fisheye      radial = 1 + k1 r^2 + k2 r^4 + k3 r^6 + k4 r^8
    right = a radial + 2 p1 a b + p2 (r^2 + 2 a^2) + sx1 r^2
    down  = b radial + 2 p2 a b + p1 (r^2 + 2 b^2) + sy1 r^2
    pixel = (fx right + cx, fy down + cy)
"""

from __future__ import annotations

import numpy as np

FX, FY, CX, CY, K1, K2, P1, P2, K3, K4, K5, K6 = range(12)
SX, SY = K5, K6
"""The last two columns of a fisheye."""
WIDTH = 12
PERSPECTIVE = {
    "SIMPLE_PINHOLE": (FX, CX, CY),
    "PINHOLE": (FX, FY, CX, CY),
    "SIMPLE_RADIAL": (FX, CX, CY, K1),
    "RADIAL": (FX, CX, CY, K1, K2),
    "OPENCV": (FX, FY, CX, CY, K1, K2, P1, P2),
    "FULL_OPENCV": (FX, FY, CX, CY, K1, K2, P1, P2, K3, K4, K5, K6),
}
FISHEYE = {
    "SIMPLE_FISHEYE": (FX, CX, CY),
    "FISHEYE": (FX, FY, CX, CY),
    "SIMPLE_RADIAL_FISHEYE": (FX, CX, CY, K1),
    "RADIAL_FISHEYE": (FX, CX, CY, K1, K2),
    "OPENCV_FISHEYE": (FX, FY, CX, CY, K1, K2, K3, K4),
    "THIN_PRISM_FISHEYE": (FX, FY, CX, CY, K1, K2, P1, P2, K3, K4, SX, SY),
}
MODELS = PERSPECTIVE | FISHEYE
"""The parameters of each model in their order, as columns."""
N_PARAMS = {model: len(columns) for model, columns in MODELS.items()}
"""Number of parameters of each supported model."""
UNIT_SIDE_PX = 1024.0
"""Bounds and deviations in pixels are meant for an image of this longest side, and grow with larger ones."""
_NEAR_AXIS = 1e-9
"""Sine of the angle from the axis below which the formulas divide by too little; the limit is used."""
_ROUNDING = 4 * np.finfo(np.float64).eps
_NEWTON_STEPS, _LONGEST_STEP = 30, 0.3
Polynomial = tuple[np.ndarray, ...]


def focal_from_fov(fov_deg: float | np.ndarray, side_px: float | np.ndarray) -> np.ndarray:
    """Focal length in pixels of a side of `side_px` pixels seen under `fov_deg` degrees."""
    return np.asarray(side_px) / (2 * np.tan(np.radians(fov_deg) / 2))


def fov_from_focal(focal_px: float | np.ndarray, side_px: float | np.ndarray) -> np.ndarray:
    """Field of view in degrees along a side of `side_px` pixels."""
    return np.degrees(2 * np.arctan(np.asarray(side_px) / (2 * np.asarray(focal_px))))


def is_fisheye(model: str) -> bool:
    """Whether the model places directions by their angle from the axis."""
    return model in FISHEYE


def has_one_focal(model: str) -> bool:
    """Whether the model has one focal length for both axes."""
    return FY not in MODELS[model]


def widened(model: str, params: np.ndarray) -> np.ndarray:  # [WIDTH]
    """The parameters of a model as columns."""
    if model not in MODELS:
        raise ValueError(f"camera model {model} is not supported; use one of {', '.join(MODELS)}")
    params = np.asarray(params, np.float64)
    if params.shape != (N_PARAMS[model],):
        raise ValueError(f"{model} has {N_PARAMS[model]} parameters, got shape {params.shape}")
    k = np.zeros(WIDTH)
    k[list(MODELS[model])] = params
    if has_one_focal(model):
        k[FY] = k[FX]
    return k


def narrowed(model: str, k: np.ndarray) -> np.ndarray:  # [P]
    """The parameters of a model, of columns [WIDTH]."""
    return np.asarray(k, np.float64)[list(MODELS[model])]


def project(model: str, params: np.ndarray, points_cam: np.ndarray) -> np.ndarray:
    """Pixels [..., 2] of points or directions [..., 3] in the camera's frame; NaN where the lens does not see them.

    A perspective lens sees what is in front of it, a fisheye what is not straight behind it and within the angle up to
    which its distortion grows.
    """
    k, points_cam = widened(model, params), np.asarray(points_cam, np.float64)
    plane = plane_of_points(points_cam, is_fisheye(model))
    if is_fisheye(model):
        seen = np.linalg.norm(plane, axis=-1, keepdims=True) <= _reach(*_radial(k, True), True)
        plane = np.where(seen, plane, np.nan)
    return pixels_of_plane(plane, k, is_fisheye(model))


def unproject(model: str, params: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Unit directions [..., 3] of pixels [..., 2].

    A pixel outside the range of a barrel distortion gets the direction at its rim.
    """
    return directions(plane_of_pixels(model, params, xy), is_fisheye(model))


def plane_of_pixels(model: str, params: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Places [..., 2] on the plane of the lens, distortion undone, of pixels [..., 2]."""
    k = widened(model, params)
    distorted = (np.asarray(xy, np.float64) - k[[CX, CY]]) / k[[FX, FY]]
    return undistorted(distorted, k, is_fisheye(model))


def directions(plane: np.ndarray, fisheye: bool) -> np.ndarray:
    """Unit directions [..., 3] of places [..., 2] on the plane of the lens."""
    if not fisheye:
        ray = np.concatenate([plane, np.ones_like(plane[..., :1])], axis=-1)
        return ray / np.linalg.norm(ray, axis=-1, keepdims=True)
    angle = np.linalg.norm(plane, axis=-1, keepdims=True)  # [..., 1]
    return np.concatenate([plane * np.sinc(angle / np.pi), np.cos(angle)], axis=-1)


def plane_of_points(points_cam: np.ndarray, fisheye: bool) -> np.ndarray:
    """Places [..., 2] on the plane of the lens of points [..., 3] in the camera's frame; NaN where there is none."""
    xy, z = points_cam[..., :2], points_cam[..., 2:]  # [..., 2], [..., 1]
    if not fisheye:
        return xy / np.where(z > 0, z, np.nan)
    radius = np.linalg.norm(xy, axis=-1, keepdims=True)  # [..., 1]
    near = radius <= _NEAR_AXIS * np.abs(z)
    scale = np.arctan2(radius, z) / np.where(near, 1.0, radius)
    return xy * np.where(near, 1 / np.where(z > 0, z, np.nan), scale)


def pixels_of_plane(plane: np.ndarray, k: np.ndarray, fisheye: bool) -> np.ndarray:
    """Pixels [..., 2] of places [..., 2] on the plane of the lens, with columns [WIDTH] or [..., WIDTH]."""
    return distorted(plane, k, fisheye) * k[..., [FX, FY]] + k[..., [CX, CY]]


def distorted(plane: np.ndarray, k: np.ndarray, fisheye: bool) -> np.ndarray:
    """Places [..., 2] after distortion, with columns [WIDTH] or [..., WIDTH]."""
    a, b = plane[..., 0], plane[..., 1]
    r2 = a * a + b * b
    if not k[..., P1:].any():
        return plane * (1 + r2 * (k[..., K1] + r2 * k[..., K2]))[..., None]
    above, below = _radial(k, fisheye)
    radial = _polynomial(above, r2) / _polynomial(below, r2)
    p1, p2 = k[..., P1], k[..., P2]
    right = a * radial + (2 * p1 * a * b + p2 * (r2 + 2 * a * a))
    down = b * radial + (2 * p2 * a * b + p1 * (r2 + 2 * b * b))
    if fisheye:
        right, down = right + k[..., SX] * r2, down + k[..., SY] * r2
    return np.stack([right, down], axis=-1)


def derivatives(model: str, params: np.ndarray, points_cam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the pixel of points [..., 3]: by the point [..., 2, 3] and by the parameters of the model [..., 2, P]."""
    k, fisheye = widened(model, params), is_fisheye(model)
    points_cam = np.asarray(points_cam, np.float64)
    plane = plane_of_points(points_cam, fisheye)  # [..., 2]
    by_plane = k[[FX, FY], None] * _distorted_by_plane(plane, k, fisheye)  # [..., 2, 2]
    by_params = _by_columns(plane, k, fisheye)[..., list(MODELS[model])]
    if has_one_focal(model):
        by_params[..., 1, 0] = distorted(plane, k, fisheye)[..., 1]
    return by_plane @ _plane_by_point(points_cam, plane, fisheye), by_params


def _plane_by_point(points_cam: np.ndarray, plane: np.ndarray, fisheye: bool) -> np.ndarray:  # [..., 2, 3]
    xy, z = points_cam[..., :2, None], points_cam[..., 2, None, None]
    if not fisheye:
        z = np.where(z > 0, z, np.nan)
        return np.concatenate([np.eye(2) / z, -plane[..., None] / z], axis=-1)
    radius2 = (xy * xy).sum(axis=-2, keepdims=True)  # [..., 1, 1]
    square = radius2 + z * z
    near = radius2 <= _NEAR_AXIS**2 * z * z
    safe = np.where(near, 1.0, radius2)
    stretch = np.where(near, 1 / z, np.arctan2(np.sqrt(radius2), z) / np.sqrt(safe))
    bend = np.where(near, 0.0, (z / square - stretch) / safe)
    return np.concatenate([stretch * np.eye(2) + bend * xy * xy.swapaxes(-1, -2), -xy / square], axis=-1)


def _distorted_by_plane(plane: np.ndarray, k: np.ndarray, fisheye: bool) -> np.ndarray:  # [..., 2, 2]
    a, b = plane[..., 0], plane[..., 1]
    r2 = a * a + b * b
    above, below = _radial(k, fisheye)
    top, bottom = _polynomial(above, r2), _polynomial(below, r2)
    radial = top / bottom
    slope = (_slope(above, r2) - radial * _slope(below, r2)) / bottom  # by r^2
    p1, p2 = k[..., P1], k[..., P2]
    sx, sy = (k[..., SX], k[..., SY]) if fisheye else (0.0, 0.0)
    cross = 2 * a * b * slope + 2 * p1 * a + 2 * p2 * b
    return np.stack(
        [
            radial + 2 * a * a * slope + 2 * p1 * b + 6 * p2 * a + 2 * sx * a,
            cross + 2 * sx * b,
            cross + 2 * sy * a,
            radial + 2 * b * b * slope + 2 * p2 * a + 6 * p1 * b + 2 * sy * b,
        ],
        axis=-1,
    ).reshape(*a.shape, 2, 2)


def _by_columns(plane: np.ndarray, k: np.ndarray, fisheye: bool) -> np.ndarray:  # [..., 2, WIDTH]
    a, b = plane[..., 0], plane[..., 1]
    r2 = a * a + b * b
    above, below = _radial(k, fisheye)
    top, bottom = _polynomial(above, r2), _polynomial(below, r2)
    result = np.zeros((*a.shape, 2, WIDTH))
    place = distorted(plane, k, fisheye)
    result[..., 0, FX], result[..., 1, FY] = place[..., 0], place[..., 1]
    result[..., 0, CX] = result[..., 1, CY] = 1.0
    upper = (K1, K2, K3, K4) if fisheye else (K1, K2, K3)
    lower = () if fisheye else (K4, K5, K6)
    for row, along in enumerate((a, b)):
        focal = k[..., FX + row]
        for power, column in enumerate(upper, 1):
            result[..., row, column] = focal * along * r2**power / bottom
        for power, column in enumerate(lower, 1):
            result[..., row, column] = -focal * along * top * r2**power / bottom**2
        result[..., row, P1 + row] = focal * 2 * a * b
        result[..., row, P2 - row] = focal * (r2 + 2 * along * along)
        if fisheye:
            result[..., row, SX + row] = focal * r2
    return result


def undistorted(distorted_plane: np.ndarray, k: np.ndarray, fisheye: bool) -> np.ndarray:
    """Places [..., 2] on the plane of the lens that distortion moves to these, with the columns [WIDTH] of one camera.

    Beyond the radius where a barrel turns around: those of the rim.
    """
    if not k[K1:].any() and not fisheye:
        return distorted_plane
    radius = np.linalg.norm(distorted_plane, axis=-1, keepdims=True)  # [..., 1]
    safe = np.where(radius > 0, radius, 1.0)
    plane = distorted_plane * (_undistorted_radius(radius, *_radial(k, fisheye), fisheye) / safe)
    if not (k[[P1, P2]].any() or (fisheye and k[[SX, SY]].any())):
        return plane
    for _ in range(_NEWTON_STEPS):
        (p, q), (r, s) = np.moveaxis(_distorted_by_plane(plane, k, fisheye), (-2, -1), (0, 1))  # [...] each
        right, down = np.moveaxis(distorted_plane - distorted(plane, k, fisheye), -1, 0)
        determinant = p * s - q * r
        safe = np.where(determinant > 0, determinant, np.inf)  # where the lens folds over, the place stays
        step = np.stack([s * right - q * down, p * down - r * right], axis=-1) / safe[..., None]
        length = np.linalg.norm(step, axis=-1, keepdims=True)
        plane = plane + step * np.minimum(1.0, _LONGEST_STEP / np.maximum(length, _LONGEST_STEP))
        if (length <= _ROUNDING).all():
            break
    return plane


def undistorted_of_many(distorted_plane: np.ndarray, k: np.ndarray, iterations: int = 20) -> np.ndarray:
    """Places [K, 2] on the planes of perspective lenses with columns [K, WIDTH], by OpenCV's fixed-point iteration.

    For many cameras at once; `undistorted` is exact where distortion is strong.
    """
    start, plane = distorted_plane, distorted_plane
    above, below = _radial(k, False)
    p1, p2 = k[:, P1], k[:, P2]
    for _ in range(iterations):
        x, y = plane.T
        r2 = x * x + y * y
        factor = np.clip(_polynomial(above, r2) / _polynomial(below, r2), 0.3, 3.0)
        across, down = 2 * p1 * x * y + p2 * (r2 + 2 * x * x), p1 * (r2 + 2 * y * y) + 2 * p2 * x * y
        plane = np.stack([(start[:, 0] - across) / factor, (start[:, 1] - down) / factor], axis=-1)
    return plane


def reach(model: str, params: np.ndarray) -> float:
    """Radius on the plane of the lens up to which its radial distortion grows: tangent of an angle, of a fisheye the
    angle itself."""
    return _reach(*_radial(widened(model, params), is_fisheye(model)), is_fisheye(model))


def _undistorted_radius(
    distorted_radius: np.ndarray, above: Polynomial, below: Polynomial, fisheye: bool, iterations: int = 60
) -> np.ndarray:
    """Solve r above(r^2) / below(r^2) = distorted_radius [...] on the branch that begins at r = 0.

    Newton's method, kept inside a bracket by bisection, as the function may turn around.
    """
    low = np.zeros_like(distorted_radius)
    high = np.minimum(_reach(above, below, fisheye), _upper_radius(distorted_radius, above, below))
    r = np.minimum(distorted_radius, high)
    for _ in range(iterations):
        r2 = r * r
        bottom = _polynomial(below, r2)
        radial = _polynomial(above, r2) / bottom
        excess = r * radial - distorted_radius
        slope = radial + 2 * r2 * (_slope(above, r2) - radial * _slope(below, r2)) / bottom
        low, high = np.where(excess < 0, r, low), np.where(excess > 0, r, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = r - excess / slope
        inside = (newton >= low) & (newton <= high)
        step_to = np.where(inside, newton, (low + high) / 2)
        done = (np.abs(step_to - r) <= _ROUNDING * r).all()  # the last bits may go back and forth
        r = step_to
        if done:
            break
    return r


def _reach(above: Polynomial, below: Polynomial, fisheye: bool) -> float:
    """Smallest positive r where r above(r^2) / below(r^2) stops growing, or infinity; of a fisheye at most pi."""
    top, bottom = ([1.0, *(float(c) for c in part)] for part in (above, below))
    n, d = np.polynomial.Polynomial(top), np.polynomial.Polynomial(bottom)
    t2 = np.polynomial.Polynomial([0.0, 2.0])
    turning = (n + t2 * n.deriv()) * d - t2 * n * d.deriv()
    roots = [root for part in (turning, d) for root in np.atleast_1d(part.trim(1e-12).roots())]
    positive = [root.real for root in roots if abs(root.imag) < 1e-12 and root.real > 0]
    first = float(np.sqrt(min(positive))) if positive else float("inf")
    return min(first, np.pi) if fisheye else first


def _upper_radius(distorted_radius: np.ndarray, above: Polynomial, below: Polynomial) -> np.ndarray:
    """A radius [...] at or above the solution, where there is one; found by doubling."""
    high = np.maximum(distorted_radius, 1e-12)
    for _ in range(60):
        r2 = high * high
        short = high * _polynomial(above, r2) / _polynomial(below, r2) < distorted_radius
        if not short.any():
            break
        high = np.where(short, np.minimum(2 * high, 1e6), high)
    return high


def _radial(k: np.ndarray, fisheye: bool) -> tuple[Polynomial, Polynomial]:
    """Coefficients [...] of r^2, r^4 and so on above and below the line, without the leading 1."""
    if fisheye:
        return (k[..., K1], k[..., K2], k[..., K3], k[..., K4]), ()
    return (k[..., K1], k[..., K2], k[..., K3]), (k[..., K4], k[..., K5], k[..., K6])


def _polynomial(coefficients: Polynomial, t: np.ndarray) -> np.ndarray:
    """1 + c1 t + c2 t^2 + ..."""
    value = np.zeros_like(t)
    for c in reversed(coefficients):
        value = t * (c + value)
    return 1 + value


def _slope(coefficients: Polynomial, t: np.ndarray) -> np.ndarray:
    """Its derivative."""
    value = np.zeros_like(t)
    for power, c in reversed(list(enumerate(coefficients, 1))):
        value = power * c + t * value
    return value
