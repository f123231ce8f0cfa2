"""What there is to show of a result, ready for any front end: browser, page, film."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from proba.dense import observed_depths
from proba.errors import InputError
from proba.history.evolution import EVOLUTION_FILE, Evolution, load_evolutions
from proba.io.dense_folder import load_dense
from proba.io.ground_truth import GroundTruth, load_ground_truth
from proba.io.photo_folder import find_photo_folder
from proba.io.ply import read_ply
from proba.io.reconstruction_folder import load_reconstruction
from proba.reconstruction import Reconstruction
from proba.viewer import palette
from proba.viewer.chunks import Chunks, cut
from proba.viewer.framing import Framing, align_cameras, frame_scene
from proba.viewer.photos import Photos

COLOURINGS = ("photo", "depth", "sigma", "image")
MAX_POINTS = 1_000_000
SAMPLE_SIDE_PX = 400
"""Size of the copies of the photos that colour the Gaussians of the timeline."""


@dataclass(frozen=True, kw_only=True)
class EdgeFacts:
    """One neighbour of a camera in the view graph."""

    name: str
    weight: float
    matches: int
    shared: int
    """Points of the result that both see."""
    error_px: float
    """Median reprojection error of those, in this camera."""


class PieceScene:
    """One connected reconstruction with its history, photos and true cameras.

    The points shown are its own, or a `cloud` in the same frame, as `read_ply` gives it. They come chunk by chunk.
    """

    def __init__(
        self,
        rec: Reconstruction,
        evolution: Evolution | None,
        photos: Photos,
        truth: GroundTruth | None = None,
        *,
        cloud: dict[str, np.ndarray] | None = None,
        max_points: int = MAX_POINTS,
    ):
        self.rec, self.evolution, self.photos = rec, evolution, photos
        self.max_points = max_points
        self.truth = None if truth is None else _aligned_truth(rec, truth)
        own = {"xyz": rec.points.xyz, "rgb": rec.points.rgb, "sigma": rec.points.sigma}
        self._cloud = own if cloud is None else cloud
        self.colourings = tuple(by for by in COLOURINGS if cloud is None or by == "photo" or by in cloud)

    # ---- points

    @cached_property
    def chunks(self) -> Chunks:
        return cut(self._cloud["xyz"], self.max_points)

    @property
    def points_text(self) -> str:
        shown, total = len(self.xyz), len(self._cloud["xyz"])
        return f"{shown:,}\xa0points" if shown == total else f"{shown:,} of {total:,}\xa0points"

    @cached_property
    def xyz(self) -> np.ndarray:  # [P, 3] float32
        return self._cloud["xyz"][self.chunks.order].astype(np.float32)

    @cached_property
    def sigma(self) -> np.ndarray:  # [P]
        return self._cloud["sigma"][self.chunks.order]

    @cached_property
    def _observers(self) -> tuple[np.ndarray, np.ndarray]:
        """An image that sees each point, and the mean depth of the point in all of them, [P]."""
        points, depth = self.rec.points, observed_depths(self.rec)  # [K]
        count = np.bincount(points.obs_point, minlength=len(points.xyz))
        mean = np.bincount(points.obs_point, depth, minlength=len(points.xyz)) / np.maximum(count, 1)
        image = np.zeros(len(points.xyz), int)
        image[points.obs_point[::-1]] = points.obs_image[::-1]
        return image[self.chunks.order], mean[self.chunks.order]

    @property
    def point_image(self) -> np.ndarray:  # [P] int
        return self._observers[0]

    @property
    def depth(self) -> np.ndarray:  # [P]
        return self._observers[1]

    def colours(self, by: str) -> np.ndarray:  # [P, 3] uint8
        """Colours of the points by their photo, depth, sigma, or an image that sees them."""
        if by == "photo":
            return self._cloud["rgb"][self.chunks.order]
        if by == "image":
            return palette.of_images(len(self.rec))[self.point_image]
        return palette.on_scale(palette.ranked(self.depth if by == "depth" else self.sigma))

    # ---- cameras

    @cached_property
    def framing(self) -> Framing:
        return frame_scene(self.rec.world_from_cam, self.rec.points.xyz)

    @cached_property
    def aspect(self) -> np.ndarray:  # [N], width over height
        return np.array([camera.width / camera.height for camera in self._camera_of])

    @cached_property
    def tan(self) -> np.ndarray:  # [N]
        """Tangent of half the field of view along the longest side."""
        return np.array([max(c.width, c.height) / 2 / c.focal_px[0] for c in self._camera_of])

    @property
    def _camera_of(self):
        return [self.rec.cameras[k] for k in self.rec.camera_of_image]

    @cached_property
    def edges(self) -> np.ndarray:  # [E, 2] int
        index = {name: k for k, name in enumerate(self.rec.image_names)}
        pairs = [(index[edge.i], index[edge.j]) for edge in self.rec.edges]
        return np.array(pairs, int).reshape(-1, 2)

    @cached_property
    def edge_weight(self) -> np.ndarray:  # [E]
        return np.array([edge.weight for edge in self.rec.edges], np.float64)

    @cached_property
    def _seen_by(self) -> list[np.ndarray]:
        return self.rec.points.seen_by(len(self.rec))

    @cached_property
    def _edges_of(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(len(self.rec))]
        for e, (i, j) in enumerate(self.edges.tolist()):
            found[i].append(e)
            found[j].append(e)
        return found

    def observations(self, image: int) -> tuple[np.ndarray, np.ndarray]:
        """Where points were seen and where they project, [K, 2] each, original pixels."""
        points, mine = self.rec.points, self._seen_by[image]
        observed = points.obs_xy[mine].astype(np.float64)
        return observed, self.rec.project(image, points.xyz[points.obs_point[mine]])

    def neighbours(self, image: int) -> list[EdgeFacts]:
        """Edges of a camera, heaviest first."""
        points = self.rec.points
        observed, projected = self.observations(image)
        seen, error = points.obs_point[self._seen_by[image]], np.linalg.norm(projected - observed, axis=1)
        error_of_point = dict(zip(seen.tolist(), error.tolist(), strict=True))
        facts = []
        for e in self._edges_of[image]:
            edge, (i, j) = self.rec.edges[e], self.edges[e]
            other = int(j if image == i else i)
            theirs = points.obs_point[self._seen_by[other]].tolist()
            errors = np.array([error_of_point.get(point, np.nan) for point in theirs], float)
            errors = errors[np.isfinite(errors)]
            facts.append(
                EdgeFacts(
                    name=self.rec.image_names[other],
                    weight=edge.weight,
                    matches=edge.matches,
                    shared=len(errors),
                    error_px=float(np.median(errors)) if len(errors) else float("nan"),
                )
            )
        return sorted(facts, key=lambda fact: -fact.weight)

    def camera_facts(self, image: int) -> dict[str, str]:
        """What is known of a camera, in words."""
        camera = self.rec.camera(image)
        rotation, centre = np.degrees(self.rec.pose_std[image, :3].max()), self.rec.pose_std[image, 3:].max()
        observed, projected = self.observations(image)
        error = np.linalg.norm(projected - observed, axis=1)
        fov = np.degrees(2 * np.arctan(self.tan[image]))
        return {
            "size": f"{camera.width} x {camera.height} px",
            "focal": f"{camera.focal_px.mean():.1f}{_plus_minus(camera.focal_std_px, '.2f')} px ({fov:.2f}°)",
            "model": camera.model,
            "rotation std": f"{rotation:.4f}°" if np.isfinite(rotation) else "unknown",
            "centre std": f"{centre:.2g} (scene units)" if np.isfinite(centre) else "unknown",
            "points": f"{len(observed)}, median error {np.nanmedian(error):.2f} px" if len(observed) else "0",
        }

    # ---- history

    @cached_property
    def sample_colours(self) -> np.ndarray:  # [P, 3] uint8
        """Colours of the pixels whose Gaussians the history follows."""
        assert self.evolution is not None
        image, xy = self.evolution.point_image, self.evolution.point_xy
        colours = palette.of_images(len(self.rec))[image].copy()
        for n, rgb in enumerate(self.photos.load(SAMPLE_SIDE_PX)):
            mine = image == n
            if rgb is not None and mine.any():
                height, width = rgb.shape[:2]
                column, row = (xy[mine] * max(width, height) / 2 + [width / 2, height / 2]).astype(int).T
                colours[mine] = rgb[row.clip(0, height - 1), column.clip(0, width - 1)]
        return colours

    def world_label(self, index: int) -> str:
        """One line on a hypothesis."""
        assert self.evolution is not None
        world = self.evolution.worlds[index]
        loss = f"loss {world.loss:.2f}" if world.loss is not None and np.isfinite(world.loss) else "no loss"
        dropped = f"dropped at iteration {world.pruned_at}" if world.pruned_at is not None else "followed to the end"
        fate = "chosen" if world.chosen else dropped
        return f"{world.name} ({loss}, {fate})"


def _plus_minus(std: float, form: str) -> str:
    return f" ± {std:{form}}" if np.isfinite(std) else ""


def _load_cloud(path: Path) -> dict[str, np.ndarray]:
    """A cloud as it is shown: every point somewhere and of some colour."""
    cloud = read_ply(path)
    cloud.setdefault("rgb", np.tile(np.array(palette.PLAIN, np.uint8), (len(cloud["xyz"]), 1)))
    good = np.isfinite(cloud["xyz"]).all(1)
    return {key: values[good] for key, values in cloud.items()}


def _aligned_truth(rec: Reconstruction, truth: GroundTruth) -> np.ndarray:  # [N, 4, 4] world_from_cam, NaN if unknown
    """True cameras in the frame and scale of the result."""
    from proba.evaluation.poses import match_names

    found = match_names(rec.image_names, truth.names)
    known = np.array([k for k, n in enumerate(found) if n is not None], int)
    out = np.full((len(rec), 4, 4), np.nan)
    if len(known) >= 2:
        true = np.linalg.inv(truth.cam_from_world[[n for n in found if n is not None]])
        result_from_truth = align_cameras(true, rec.world_from_cam[known])
        out[known] = np.linalg.inv(result_from_truth.apply_to_poses(np.linalg.inv(true)))
    return out


def _cloud_of(
    folder: Path, rec: Reconstruction, k: int, given: Path | None, *, sparse: bool
) -> dict[str, np.ndarray] | None:
    """The cloud to show for piece k instead of its own points."""
    if given is not None and k == 0:
        return _load_cloud(given)
    dense = None if sparse else load_dense(folder, rec, k)
    return None if dense is None else _load_cloud(dense.cloud)


def load_scene(
    folder: Path,
    *,
    images: Path | None = None,
    gt: Path | None = None,
    cloud: Path | None = None,
    max_points: int = MAX_POINTS,
    sparse: bool = False,
) -> list[PieceScene]:
    """All pieces of a result folder, largest first, with their dense clouds, where there are any and not `sparse`.

    A PLY file `cloud` stands for the points of the first one.
    """
    if max_points < 1:
        raise InputError(f"--max-points must be 1 or more, not {max_points}.")
    recs = load_reconstruction(folder)
    truth = None if gt is None else load_ground_truth(gt)
    history = folder / EVOLUTION_FILE
    evolutions = {tuple(e.image_names): e for e in load_evolutions(history)} if history.is_file() else {}
    photos = find_photo_folder(folder, [name for rec in recs for name in rec.image_names], images)
    pieces = [
        PieceScene(
            rec,
            evolutions.get(tuple(rec.image_names)),
            Photos(photos, rec.image_names),
            truth,
            cloud=_cloud_of(folder, rec, k, cloud, sparse=sparse),
            max_points=max_points,
        )
        for k, rec in enumerate(recs)
    ]
    if truth is not None and not any(np.isfinite(p.truth).any() for p in pieces if p.truth is not None):
        raise InputError(f"{gt} and {folder} have no two images in common; give the ground truth of these photos.")
    return pieces
