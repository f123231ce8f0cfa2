"""Depth and its uncertainty at every pixel: maps fitted to the refined points of an image, and samples of them.

The solver's maps are only rough where the refinement moved things: their depths miss held-out points by 4 % on
llff_fern and by 3 % on eth3d_pipes (medians), maps fitted to the points alone by 1.2 % and 1.0 %.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.spatial import cKDTree

from proba.reconstruction import Camera, Reconstruction

SIDE = 64
"""Cells along each side of a fitted map; 32 cells miss held-out points by a fifth more."""
BAND = SIDE + 2
"""Cells from one to the one below and to the right, with both."""
MIN_OBSERVATIONS = 8
"""Images that see fewer points keep the map they had."""
SMOOTHNESS = 0.03
"""Weight of the squared difference of neighbouring cells against one observation's; 0.01 and 0.1 are worse held out."""
_ROUNDS = 5
_FLOOR = 1e-4  # log-depth: residuals below it are as good as zero
_UNKNOWN_LOG_STD = 1.0  # of a depth that nothing tells


def sample_maps(maps: np.ndarray, image: np.ndarray, relative: np.ndarray) -> np.ndarray:
    """Bilinear samples [K] of `maps` [N, m, m] at `relative` [K, 2] positions (0..1 over width and height)."""
    index, weight = _corners(maps.shape[1], relative)
    return (maps.reshape(len(maps), -1)[np.asarray(image)[:, None], index] * weight).sum(axis=1)


def pixel_grid(camera: Camera, step_px: float) -> tuple[np.ndarray, int, int]:
    """Pixels [rows * columns, 2], row by row, at the centres of equal cells of about `step_px`; rows and columns."""
    columns, rows = (max(1, round(side / step_px)) for side in (camera.width, camera.height))
    x = (np.arange(columns) + 0.5) * camera.width / columns
    y = (np.arange(rows) + 0.5) * camera.height / rows
    return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2), rows, columns


def depth_at(reconstruction: Reconstruction, image: int, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Depth and its standard deviation [K], in scene units, at pixels `xy` [K, 2] of one image, corner0.5.

    Depth is z, or the distance from a fisheye.
    """
    log_depth, log_variance = maps_of(reconstruction)
    camera = reconstruction.cameras[reconstruction.camera_of_image[image]]
    relative = np.asarray(xy, np.float64) / [camera.width, camera.height]  # [K, 2]
    which = np.full(len(relative), image)
    return np.exp(sample_maps(log_depth, which, relative)), np.exp(sample_maps(log_variance, which, relative) / 2)


def maps_of(reconstruction: Reconstruction) -> tuple[np.ndarray, np.ndarray]:
    """Log-depth and log-variance [N, m, m]: those it carries, else (e.g. COLMAP's own models) fitted to its points."""
    if reconstruction.log_depth is None or reconstruction.log_variance is None:
        reconstruction.log_depth, reconstruction.log_variance = fit_maps(reconstruction)
    return reconstruction.log_depth, reconstruction.log_variance


def fit_maps(reconstruction: Reconstruction) -> tuple[np.ndarray, np.ndarray]:
    """Log-depth and log-variance [N, SIDE, SIDE] float32 that agree with the points each image observes.

    The variance is that of the depth in scene units: what the map misses points by that it was not fitted to, and
    more with the distance to the next point.
    """
    from proba.threads import in_parallel  # viewers, which only read maps, need not wait for torch and numba

    points = reconstruction.points
    depth = observed_depths(reconstruction)  # [K]
    sizes = np.array([[camera.width, camera.height] for camera in reconstruction.cameras], np.float64)  # [C, 2]
    relative = points.obs_xy / sizes[reconstruction.camera_of_image[points.obs_image]]  # [K, 2]
    front = depth > 0
    typical = float(np.median(np.log(depth[front]))) if front.any() else 0.0
    log_depth, log_variance = _previous_maps(reconstruction, typical)
    order = np.argsort(points.obs_image, kind="stable")
    bounds = np.searchsorted(points.obs_image[order], np.arange(len(log_depth) + 1))  # [N + 1]

    def fit(n: int) -> None:
        mine = order[bounds[n] : bounds[n + 1]]
        mine = mine[front[mine]]
        if len(mine) >= MIN_OBSERVATIONS:
            log_depth[n], variance = _fit_with_variance(relative[mine], np.log(depth[mine]))
            log_variance[n] = np.log(variance) + 2 * log_depth[n]

    in_parallel(fit, range(len(log_depth)))
    return log_depth.astype(np.float32), log_variance.astype(np.float32)


def observed_depths(reconstruction: Reconstruction) -> np.ndarray:
    """Depth [K] of each observation's point in its camera: z, or the distance from a fisheye."""
    points = reconstruction.points
    pose, xyz = reconstruction.cam_from_world[points.obs_image], points.xyz[points.obs_point]  # [K, 4, 4], [K, 3]
    fisheye = np.array([camera.is_fisheye for camera in reconstruction.cameras], bool)  # [C]
    z = np.einsum("ki,ki->k", pose[:, 2, :3], xyz) + pose[:, 2, 3]  # [K]
    if not fisheye.any():
        return z
    distance = np.linalg.norm(xyz - reconstruction.centres[points.obs_image], axis=1)  # [K]
    return np.where(fisheye[reconstruction.camera_of_image[points.obs_image]], distance, z)


def _previous_maps(reconstruction: Reconstruction, typical: float) -> tuple[np.ndarray, np.ndarray]:
    """The maps as they are, resampled to SIDE cells; a typical log-depth where there are none."""
    n_images = len(reconstruction.image_names)
    maps = []
    for values, unknown in (
        (reconstruction.log_depth, typical),
        (reconstruction.log_variance, 2 * (typical + np.log(_UNKNOWN_LOG_STD))),
    ):
        if values is None:
            maps.append(np.full((n_images, SIDE, SIDE), unknown))
            continue
        centre = (np.arange(SIDE) + 0.5) / SIDE
        relative = np.stack(np.meshgrid(centre, centre), axis=-1).reshape(-1, 2)  # [SIDE * SIDE, 2]
        image = np.repeat(np.arange(n_images), SIDE * SIDE)
        maps.append(sample_maps(values, image, np.tile(relative, (n_images, 1))).reshape(n_images, SIDE, SIDE))
    return maps[0], maps[1]


def _fit_with_variance(relative: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Map [SIDE, SIDE] of `values` [K] and its variance, both of the logarithm."""
    fitted = _Fit(relative, values)
    # Residuals of points that take part in a fit flatter it, so each half is judged by the other half's map.
    even = np.arange(len(values)) % 2 == 0
    residual = np.empty(len(values))
    for half in (even, ~even):
        other = _Fit(relative[half], values[half], fitted.trust[half], fitted.bond)
        residual[~half] = values[~half] - other.at(relative[~half])
    limit = 10 * max(1.4826 * np.median(np.abs(residual)), _FLOOR)
    local = fitted.smoothed(np.minimum(residual**2, limit**2))  # [SIDE, SIDE]
    seen = np.zeros((SIDE, SIDE), bool)
    column, row = np.clip((relative * SIDE).astype(int), 0, SIDE - 1).T
    seen[row, column] = True
    # Gaps as wide as those between the halves are in the residuals already.
    known_gap = float(np.median(cKDTree(relative[even]).query(relative[~even])[0])) * SIDE
    cells_away = np.maximum(distance_transform_edt(~seen) - known_gap, 0.0)  # [SIDE, SIDE]
    # Beyond the last points a surface may go on at any slope; typical ones are those of the map where it is known.
    steps = [np.diff(fitted.map, axis=axis)[a & b] for axis, a, b in _neighbours(seen)]
    step2 = float(np.mean(np.concatenate(steps) ** 2)) if sum(map(len, steps)) else _UNKNOWN_LOG_STD**2
    return fitted.map, np.clip(local + step2 * cells_away**2, _FLOOR**2, _UNKNOWN_LOG_STD**2)


def _neighbours(seen: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """For each axis: whether a cell, and the next one along it, are seen."""
    return [(0, seen[:-1], seen[1:]), (1, seen[:, :-1], seen[:, 1:])]


class _Fit:
    """Robust least squares of a bilinear map to scattered values [K], neighbouring cells alike.

    Both parts are reweighted: an observation may be wrong or of another surface, and depth may jump between cells.
    With weights of observations `trust` [K] and of neighbours `bond` [E] that are known, one solution is enough.
    """

    def __init__(
        self, relative: np.ndarray, values: np.ndarray, trust: np.ndarray | None = None, bond: np.ndarray | None = None
    ) -> None:
        self.index, self.weight = _corners(SIDE, relative)  # [K, 4]
        cells = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
        across, down = (cells[:, :-1], cells[:, 1:]), (cells[:-1], cells[1:])
        self.edges = np.stack([np.concatenate([a.ravel(), b.ravel()]) for a, b in zip(across, down, strict=True)])
        # Of the products of an observation's corner weights, the ones on and below the diagonal, and their places
        # in a lower band matrix: a cell meets at most the one below and to the right.
        offset = self.index[:, :, None] - self.index[:, None, :]  # [K, 4, 4]
        self.observation, row, column = np.nonzero(offset >= 0)  # [M]
        self.product = self.weight[self.observation, row] * self.weight[self.observation, column]  # [M]
        self.place = (self.index[:, None, :] * BAND + offset)[self.observation, row, column]  # [M]
        flat = np.full(SIDE * SIDE, np.median(values))
        if trust is None or bond is None:
            trust, bond = np.ones(len(values)), np.full(self.edges.shape[1], SMOOTHNESS)
            for _ in range(_ROUNDS - 1):
                flat = self._solve(trust, bond, values, flat)
                trust = _cauchy(values - (flat[self.index] * self.weight).sum(axis=1), 2)
                bond = SMOOTHNESS * _cauchy(flat[self.edges[1]] - flat[self.edges[0]], 3)
        self.trust, self.bond = trust, bond
        self.map = self._solve(trust, bond, values, flat).reshape(SIDE, SIDE)

    def at(self, relative: np.ndarray) -> np.ndarray:
        """Samples [K]."""
        return sample_maps(self.map[None], np.zeros(len(relative), int), relative)

    def smoothed(self, values: np.ndarray) -> np.ndarray:
        """Local mean [SIDE, SIDE] of further values [K] at the same places."""
        even = np.full(self.edges.shape[1], 10 * SMOOTHNESS)
        flat = self._solve(np.ones(len(values)), even, values, np.full(SIDE * SIDE, np.mean(values)))
        return flat.reshape(SIDE, SIDE)

    def _solve(self, trust: np.ndarray, bond: np.ndarray, values: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The normal equations: observations weigh `trust` [K], differences of neighbours `bond` [E]."""
        from proba.dense.banded import solve_banded

        n_cells, (first, second) = SIDE * SIDE, self.edges
        weight = trust[self.observation] * self.product  # [M]
        band: np.ndarray = np.bincount(self.place, weight, n_cells * BAND).reshape(n_cells, BAND)
        band[:, 0] += np.bincount(first, bond, n_cells) + np.bincount(second, bond, n_cells) + 1e-6
        band[first, second - first] -= bond
        right = np.bincount(self.index.ravel(), ((trust * values)[:, None] * self.weight).ravel(), n_cells)
        return solve_banded(band, right + 1e-6 * start)


def _cauchy(residual: np.ndarray, width: float) -> np.ndarray:
    """Weights in (0, 1] of residuals against their own robust scale."""
    scale = max(1.4826 * float(np.median(np.abs(residual))), _FLOOR)
    return 1 / (1 + (residual / (width * scale)) ** 2)


def _corners(side: int, relative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The four cells [K, 4] (row-major) around `relative` [K, 2] positions and their bilinear weights [K, 4]."""
    grid = np.clip(np.asarray(relative, np.float64) * side - 0.5, 0, side - 1)  # [K, 2]
    low = np.floor(grid).astype(np.int64)
    (ax, ay), (x0, y0) = (grid - low).T, low.T
    (x1, y1) = np.minimum(low + 1, side - 1).T
    index = np.stack([y0 * side + x0, y0 * side + x1, y1 * side + x0, y1 * side + x1], axis=1)
    weight = np.stack([(1 - ay) * (1 - ax), (1 - ay) * ax, ay * (1 - ax), ay * ax], axis=1)
    return index, weight
