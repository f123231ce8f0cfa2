"""The result: cameras, poses, points, and how sure we are of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from proba.errors import InputError
from proba.geometry import camera as lens

if TYPE_CHECKING:
    from proba.export import ExportOptions, Format


@dataclass(kw_only=True)
class Camera:
    """Intrinsics in COLMAP's conventions: model name and parameter order, original pixels."""

    model: str
    """One of `proba.geometry.camera.MODELS`, from SIMPLE_PINHOLE to FULL_OPENCV and THIN_PRISM_FISHEYE."""
    width: int
    height: int
    params: np.ndarray  # [P] float64
    focal_std_px: float = float("nan")
    """Standard deviation of the focal length."""
    params_std: np.ndarray | None = None  # [P] float64
    """Standard deviations of the parameters, zero where one was not estimated; None: not known."""

    def __repr__(self) -> str:
        focal = float(np.sqrt(np.prod(self.focal_px)))
        sure = f" +- {self.focal_std_px:.1f}" if np.isfinite(self.focal_std_px) else ""
        return f"Camera({self.model}, {self.width} x {self.height}, focal {focal:.1f}{sure} px, {self.fov_deg:.1f} deg)"

    @property
    def focal_px(self) -> np.ndarray:  # [2] fx, fy
        return self.params[[0, 0]] if lens.has_one_focal(self.model) else self.params[:2]

    @property
    def principal_point_px(self) -> np.ndarray:  # [2] cx, cy
        return self.params[1:3] if lens.has_one_focal(self.model) else self.params[2:4]

    @property
    def is_fisheye(self) -> bool:
        """Whether depth is the distance from the camera, since z says nothing of what lies beside or behind it."""
        return lens.is_fisheye(self.model)

    @property
    def fov_deg(self) -> float:
        """Field of view along the longest side; of a perspective lens by its focal length."""
        if self.is_fisheye:
            across = np.array([self.width, 0.0] if self.width >= self.height else [0.0, self.height]) / 2
            edges = np.array([[self.width, self.height]]) / 2 + np.outer([-1, 1], across)  # [2, 2]
            return float(np.degrees(np.linalg.norm(self.plane(edges), axis=1).sum()))
        focal_px = self.focal_px[0 if self.width >= self.height else 1]
        return float(lens.fov_from_focal(focal_px, max(self.width, self.height)))

    def project(self, points_cam: np.ndarray) -> np.ndarray:
        """Pixels [..., 2] of points [..., 3] in the camera's frame; NaN where the lens does not see them."""
        return lens.project(self.model, self.params, points_cam)

    def plane(self, xy: np.ndarray) -> np.ndarray:
        """Places [..., 2] on the plane of the lens of pixels [..., 2], distortion undone."""
        return lens.plane_of_pixels(self.model, self.params, xy)

    def rays(self, xy: np.ndarray) -> np.ndarray:
        """Rays [..., 3] of pixels [..., 2], distortion undone; depth times a ray is a point.

        Homogeneous, (x/z, y/z, 1), where depth is z; unit directions of a fisheye, where depth is the distance.
        """
        plane = self.plane(xy)
        if self.is_fisheye:
            return lens.directions(plane, True)
        return np.concatenate([plane, np.ones_like(plane[..., :1])], axis=-1)

    def depths(self, points_cam: np.ndarray) -> np.ndarray:
        """Depths [...] of points [..., 3] in the camera's frame: z, or the distance of a fisheye."""
        return np.linalg.norm(points_cam, axis=-1) if self.is_fisheye else np.asarray(points_cam)[..., 2]


@dataclass(kw_only=True)
class Points:
    """A point cloud with its observations, flat arrays; observation k sees point `obs_point[k]`."""

    xyz: np.ndarray  # [P, 3] float64
    rgb: np.ndarray  # [P, 3] uint8
    sigma: np.ndarray  # [P] float64, standard deviation of the position in scene units
    error_px: np.ndarray  # [P] float64, mean reprojection error
    obs_point: np.ndarray  # [K] int
    obs_image: np.ndarray  # [K] int, index into Reconstruction.image_names
    obs_xy: np.ndarray  # [K, 2] float32, original pixels, corner0.5

    def __repr__(self) -> str:
        return f"Points(points={len(self.xyz)}, observations={len(self.obs_point)})"

    def seen_by(self, n_images: int) -> list[np.ndarray]:
        """The observations of each image, ascending; all in one go, because a search for each reads all of them."""
        order = np.argsort(self.obs_image, kind="stable")  # [K]
        return np.split(order, np.searchsorted(self.obs_image[order], np.arange(1, n_images)))


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A pair of images with matches between them."""

    i: str
    """Name of the first image."""
    j: str
    """Name of the second image."""
    matches: int
    """Number of matches."""
    weight: float
    """What the solver made of the pair: 1 counts fully, 0 not at all."""
    explainable: float
    """Share of the matches that two-view geometry alone could explain; NaN where unknown."""
    explained: float
    """Share of the matches that the reconstruction does explain; NaN where unknown."""


NoteKind = Literal["flat scene", "focal not observed", "focal not known", "known poses", "rough poses", "rig", "other"]


@dataclass(frozen=True, kw_only=True)
class Note:
    """A warning of the refinement."""

    kind: NoteKind
    text: str
    """What was found, a sentence without a full stop."""
    advice: str = ""
    """What to do about it, in the same form."""
    images: tuple[str, ...] = ()
    """Names of the images it is about; empty: the whole reconstruction."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What was measured, by name."""

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}" if self.advice else self.text


@dataclass(frozen=True, kw_only=True, eq=False)
class RigCamera:
    """Where a camera sits on its rig."""

    name: str
    """What the names of its images begin with."""
    cam_from_rig: np.ndarray  # [4, 4] float64
    std: np.ndarray  # [6] float64: rotation (rad, about the camera's axes), then centre (along the rig's axes); 0: held
    known: bool
    """Whether it was known beforehand."""
    reference: bool
    """Whether its frame is that of the rig."""

    @property
    def centre(self) -> np.ndarray:  # [3]
        """In the frame of the rig."""
        return -self.cam_from_rig[:3, :3].T @ self.cam_from_rig[:3, 3]


@dataclass(frozen=True, kw_only=True, eq=False)
class CameraRig:
    """Cameras that moved together."""

    cameras: tuple[RigCamera, ...]
    frames: Mapping[str, np.ndarray]
    """`rig_from_world` [4, 4] of each moment, by name."""
    metric: bool
    """Whether known distances on it fix the unit of the world."""


@dataclass(kw_only=True)
class Reconstruction:
    """One connected reconstruction."""

    image_names: list[str]
    cameras: list[Camera]
    camera_of_image: np.ndarray  # [N] int
    cam_from_world: np.ndarray  # [N, 4, 4] float64, OpenCV axes
    pose_std: (
        np.ndarray
    )  # [N, 6] float64: rotation (rad, about the camera's axes), then centre (scene units, world axes)
    points: Points
    log_depth: np.ndarray | None = None  # [N, m, m] float32, see proba.solution.Solution
    log_variance: np.ndarray | None = None  # [N, m, m] float32
    edges: list[Edge] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    """Warnings with advice, for the report."""
    up: Literal["z"] | None = None
    """Which axis of the world points up, against gravity; None: not known, the frame is arbitrary."""
    rigs: list[CameraRig] = field(default_factory=list)
    """Cameras that moved together, where the solve was told so; not read back from a folder."""

    def __repr__(self) -> str:
        return f"Reconstruction(images={len(self)}, cameras={len(self.cameras)}, points={len(self.points.xyz)})"

    def __len__(self) -> int:
        """Number of images."""
        return len(self.image_names)

    def index(self, image: str | int) -> int:
        """Position of an image, given by name or already by position."""
        if isinstance(image, str):
            if image not in self.image_names:
                raise InputError(f"The reconstruction has no image {image!r}; it has e.g. {self.image_names[0]!r}.")
            return self.image_names.index(image)
        if not -len(self) <= image < len(self):
            raise InputError(f"The reconstruction has {len(self)} images; there is none number {image}.")
        return image % len(self)

    def camera(self, image: str | int) -> Camera:
        """Intrinsics of an image."""
        return self.cameras[self.camera_of_image[self.index(image)]]

    @property
    def poses(self) -> dict[str, np.ndarray]:
        """`cam_from_world` [4, 4] by image name."""
        return dict(zip(self.image_names, self.cam_from_world, strict=True))

    @property
    def world_from_cam(self) -> np.ndarray:  # [N, 4, 4]
        return np.linalg.inv(self.cam_from_world)

    @property
    def centres(self) -> np.ndarray:  # [N, 3], camera centres in the world
        return self.world_from_cam[:, :3, 3]

    def project(self, image: str | int, xyz: np.ndarray) -> np.ndarray:
        """Pixels [..., 2] of world points [..., 3] in an image; NaN behind the camera."""
        pose = self.cam_from_world[self.index(image)]
        return self.camera(image).project(np.asarray(xyz) @ pose[:3, :3].T + pose[:3, 3])

    def depth(self, image: str | int, xy: np.ndarray | None = None) -> np.ndarray:
        """Depth (z, scene units) of an image: its whole map [m, m], or at pixels `xy` [K, 2] as [K]."""
        return self._depth_and_sigma(image, xy)[0]

    def depth_sigma(self, image: str | int, xy: np.ndarray | None = None) -> np.ndarray:
        """Standard deviation of `depth`, of the same shape."""
        return self._depth_and_sigma(image, xy)[1]

    def _depth_and_sigma(self, image: str | int, xy: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        from proba.dense import depth_at, maps_of  # needs this module

        index = self.index(image)
        if xy is not None:
            return depth_at(self, index, xy)
        log_depth, log_variance = maps_of(self)
        return np.exp(log_depth[index]), np.exp(log_variance[index] / 2)

    def save(self, folder: str | Path) -> None:
        """Write COLMAP model, cloud, maps and uncertainties, as `proba solve` does."""
        from proba.io.reconstruction_folder import save_reconstruction  # needs this module

        save_reconstruction([self], folder)

    def export(
        self,
        to: Format,
        out: str | Path,
        *,
        photos: str | Path | None = None,
        masks: str | Path | None = None,
        options: ExportOptions | None = None,
    ) -> None:
        """Write a folder for another program, as `proba export` does; some formats need the folder of the photos."""
        from proba.export import export  # needs this module

        export(self, to=to, out=out, photos=photos, masks=masks, options=options)

    @staticmethod
    def load(folder: str | Path, index: int = 0) -> Reconstruction:
        """Read a folder that `save`, `proba run` or `proba solve` wrote; `index` counts its pieces, largest first."""
        from proba.io.reconstruction_folder import load_reconstruction  # needs this module

        pieces = load_reconstruction(folder)
        if not 0 <= index < len(pieces):
            raise InputError(f"{folder} holds {len(pieces)} reconstructions; there is none number {index}.")
        return pieces[index]
