"""The world that begins with poses that were known beforehand, and the frame that they give to the result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from proba.cameras import CameraSetup
from proba.geometry.camera import focal_from_fov
from proba.geometry.sim3 import Sim3
from proba.graph import ViewGraph
from proba.known_poses import KnownPoses
from proba.matches import Matches
from proba.refine.adjust import Freedom, adjust
from proba.refine.bundle import Bundle, PosePrior, bundle_from_solution
from proba.refine.options import RefineOptions
from proba.refine.rescue import rebuild
from proba.refine.state import Observations
from proba.refine.tracks import Tracks
from proba.refine.triangulate import triangulate
from proba.solution import GIVEN, Solution

START_FOV_DEG = 55.0
"""Of cameras whose focal length nobody tells; the adjustment finds the right one from far."""
START_PX = 40.0
"""Reprojection error up to which the observations of a rough start take part: two degrees with such a lens."""


def given_solution(matches: Matches, graph: ViewGraph, cameras: CameraSetup, known: KnownPoses) -> Solution | None:
    """The known poses as a world; None where fewer than two images of the piece have one. `known`: of its images."""
    if not known.starts:
        return None
    infos = [matches.images[k] for k in graph.images]
    longest = np.array([max(info.width, info.height) for info in infos], np.float64)  # [N]
    told = np.where(np.isfinite(known.focal_px), known.focal_px, np.nan)  # [N]
    common = np.nanmedian(told / longest) if np.isfinite(told).any() else focal_from_fov(START_FOV_DEG, 1.0)
    before = cameras.known_focal_px[cameras.camera_of_image]  # [N]
    focal = np.where(np.isfinite(before), before, np.where(np.isfinite(told), told, common * longest))
    poses = known.cam_from_world.copy()
    poses[~known.posed] = poses[np.flatnonzero(known.posed)[0]]  # they are placed by the others
    n = graph.n_images
    return Solution(
        graph=graph,
        name=GIVEN,
        loss=float("nan"),
        epipolar_share=float("nan"),
        cam_from_world=poses,
        cameras=cameras,
        focal_px=np.repeat(focal[:, None], 2, axis=1),
        log_depth=np.zeros((n, 1, 1), np.float32),
        log_variance=np.zeros((n, 1, 1), np.float32),
        edge_weight=graph.initial_weight.astype(np.float32),
        given=known.posed,
    )


def given_bundle(observations: Observations, solution: Solution, tracks: Tracks, options: RefineOptions) -> Bundle:
    """The first adjustment of a world of known poses: its points are triangulated, and the other images placed."""
    known, posed = observations.known, solution.given
    assert known is not None and posed is not None
    bundle = bundle_from_solution(observations.matches, solution, tracks)
    if known.use == "fixed":
        bundle = replace(bundle, pose_prior=held_poses(known))
    images = None if posed.all() else posed
    bundle = triangulate(bundle, START_PX, images)
    bundle = adjust(bundle, options.adjust.annealed, Freedom(), options.adjust, images=images)
    if images is None:
        return bundle
    bundle, _ = rebuild(bundle, posed, observations.pairs, Freedom(), options)
    return bundle


def held_poses(known: KnownPoses) -> PosePrior:
    """The known poses with deviations far below anything that is measured."""
    centres = known.centres[known.posed]
    extent = float(np.median(np.linalg.norm(centres - centres.mean(axis=0), axis=1))) or 1.0
    sigma = np.repeat([HELD, HELD * extent], 3)  # [6]
    return PosePrior(known.cam_from_world, np.where(known.posed[:, None], 1 / sigma**2, 0.0))


HELD = 1e-9
"""Deviation of a held pose: radians, and in sizes of the camera path."""


def to_known_frame(bundle: Bundle, known: KnownPoses) -> Bundle | None:
    """The bundle in the world of the known poses; None where these do not fix it."""
    frame = known.frame(bundle.centres, bundle.cam_from_world[:, :3, :3])
    if frame is not None and bundle.rig is not None and bundle.rig.metric:  # the rig tells the unit
        turned = bundle.centres @ frame.rotation.T
        frame = Sim3(1.0, frame.rotation, np.median(frame.apply(bundle.centres) - turned, axis=0))
    return None if frame is None else moved(bundle, frame)


def moved(bundle: Bundle, frame: Sim3) -> Bundle:
    """The same scene in another frame."""
    rig = None if bundle.rig is None else bundle.rig.scaled(frame.scale)
    poses = frame.apply_to_poses(bundle.cam_from_world)
    return replace(bundle, cam_from_world=poses, xyz=frame.apply(bundle.xyz), rig=rig)
