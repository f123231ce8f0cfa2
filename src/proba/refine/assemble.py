"""The adjusted bundle as a `Reconstruction` in original pixels."""

from __future__ import annotations

import numpy as np

from proba.dense import fit_maps, sample_maps
from proba.geometry.camera import CY, FX, MODELS, WIDTH
from proba.matches import Matches
from proba.reconstruction import Camera, CameraRig, Edge, Points, Reconstruction, RigCamera
from proba.refine.agreement import PairAgreement
from proba.refine.bundle import Bundle, observed_depths, per_track_sum, reprojection_errors
from proba.refine.final import Cloud
from proba.refine.notes import all_notes
from proba.refine.state import State
from proba.refine.tracks import Tracks
from proba.refine.uncertainty import CameraUncertainty
from proba.solution import Solution

GREY = 128


def assemble(state: State, cloud: Cloud, cameras: CameraUncertainty, sigma: np.ndarray) -> Reconstruction:
    """Stage: everything in original pixels. `sigma` [T] are the points' standard deviations."""
    matches, unit, bundle = state.observations.matches, state.observations.unit_px, cloud.bundle
    log_depth, log_variance = _aligned_maps(bundle, state.solution)
    reconstruction = Reconstruction(
        image_names=state.observations.names,
        cameras=[
            _camera(matches, state.solution, bundle, cameras, unit, int(n))
            for n in np.unique(bundle.camera_of_image, return_index=True)[1]
        ],
        camera_of_image=bundle.camera_of_image.copy(),
        cam_from_world=bundle.cam_from_world.copy(),
        pose_std=cameras.pose_std,
        points=bundle_points(bundle, sigma, cloud.tracks, unit),
        log_depth=log_depth,
        log_variance=log_variance,
        edges=_edges(matches, state.solution, bundle, state.observations.pairs),
        notes=all_notes(state, cloud, cameras, sigma),
        up="z" if bundle.pose_prior is not None and state.observations.z_up else None,
        rigs=_rigs(state, bundle, cameras),
    )
    reconstruction.log_depth, reconstruction.log_variance = fit_maps(reconstruction)
    return reconstruction


def _rigs(state: State, bundle: Bundle, cameras: CameraUncertainty) -> list[CameraRig]:
    """The rigs whose cameras are tied together, with the moments that are placed."""
    told, rig = state.observations.rigs, bundle.rig
    if told is None or rig is None or cameras.sensor_std is None:
        return []
    frames, found = rig.frames(bundle.cam_from_world), []
    of_sensor, placed = rig.sensor_of_image, ~state.unplaced
    for number in sorted({sensor.rig for sensor in told.sensors}):
        mine = [s for s, sensor in enumerate(told.sensors) if sensor.rig == number and (of_sensor == s).any()]
        images = np.flatnonzero(np.isin(of_sensor, mine) & placed)
        if len(mine) < 2 or not len(images):
            continue
        found.append(
            CameraRig(
                cameras=tuple(
                    RigCamera(
                        name=told.sensors[s].name,
                        cam_from_rig=rig.sensor_from_rig[s].copy(),
                        std=cameras.sensor_std[s],
                        known=told.sensors[s].cam_from_rig is not None and not told.sensors[s].reference,
                        reference=not rig.free[s] and np.array_equal(rig.sensor_from_rig[s], np.eye(4)),
                    )
                    for s in mine
                ),
                frames={told.frames[told.frame_of_image[n]]: frames[rig.frame_of_image[n]] for n in images.tolist()},
                metric=rig.metric,
            )
        )
    return found


def _edges(matches: Matches, solution: Solution, bundle: Bundle, pairs: PairAgreement) -> list[Edge]:
    """All pairs of the view graph, in its order."""
    images = solution.graph.images
    columns = solution.graph.edges, solution.edge_weight, pairs.potential, pairs.support(bundle)
    return [
        Edge(
            i=matches.images[images[i]].name,
            j=matches.images[images[j]].name,
            matches=len(matches.pairs[int(images[i]), int(images[j])].points_i),
            weight=float(weight),
            explainable=float(could),
            explained=float(does),
        )
        for (i, j), weight, could, does in zip(*columns, strict=True)
    ]


def _camera(
    matches: Matches,
    solution: Solution,
    bundle: Bundle,
    uncertainty: CameraUncertainty,
    unit: np.ndarray,
    first: int,
) -> Camera:
    """The camera of which image `first` is the first one, in original pixels."""
    camera = int(bundle.camera_of_image[first])
    info = matches.images[solution.graph.images[first]]
    pixels = np.where(np.arange(WIDTH) <= CY, unit[first], 1.0)  # these are in pixels, distortion has no unit
    values, std = bundle.intrinsics[camera] * pixels, uncertainty.intrinsics_std[camera] * pixels
    model = bundle.camera_model[camera]
    return Camera(
        model=model,
        width=info.width,
        height=info.height,
        params=values[list(MODELS[model])],
        focal_std_px=float(std[FX]),
        params_std=std[list(MODELS[model])],
    )


def bundle_points(bundle: Bundle, sigma: np.ndarray, tracks: Tracks, unit: np.ndarray) -> Points:
    """Points that at least two observations hold."""
    held = bundle.alive_per_track()  # [T]
    kept = (held >= 2) & np.isfinite(sigma)  # [T]
    owner = tracks.track_of_observation  # [K]
    observed = bundle.alive & kept[owner]  # [K]
    error_px = np.where(observed, reprojection_errors(bundle), 0.0) * unit[tracks.image]  # [K]
    index = np.cumsum(kept) - 1  # [T], track to point
    return Points(
        xyz=bundle.xyz[kept],
        rgb=np.full((int(kept.sum()), 3), GREY, np.uint8),
        sigma=sigma[kept],
        error_px=(per_track_sum(tracks, error_px) / np.maximum(held, 1))[kept],
        obs_point=index[owner[observed]],
        obs_image=tracks.image[observed].copy(),
        obs_xy=tracks.xy[observed].astype(np.float32),
    )


def _aligned_maps(bundle: Bundle, solution: Solution) -> tuple[np.ndarray, np.ndarray]:
    """The solver's maps in the scale of the bundle, for images with too few points to fit maps to."""
    image = bundle.tracks.image[bundle.alive]  # [U]
    camera = bundle.camera_of_image[bundle.tracks.image]
    relative = (bundle.tracks.xy / bundle.camera_size[camera])[bundle.alive]  # [U, 2]
    depth = np.maximum(observed_depths(bundle)[bundle.alive], 1e-9)
    offset = np.log(depth) - sample_maps(solution.log_depth, image, relative)  # [U]
    shift = np.full(bundle.n_images, np.median(offset) if len(offset) else 0.0)  # [N]
    order = np.argsort(image, kind="stable")  # [U]
    for n, mine in enumerate(np.split(order, np.searchsorted(image[order], np.arange(1, bundle.n_images)))):
        if len(mine) >= 5:
            shift[n] = np.median(offset[mine])
    log_depth = solution.log_depth + shift[:, None, None].astype(np.float32)
    return log_depth, solution.log_variance + 2 * shift[:, None, None].astype(np.float32)
