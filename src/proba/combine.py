"""Models that grow: photos added to one, and two made one. Old frames and, if asked, old cameras stay."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from proba import api
from proba.errors import GeometryError, InputError
from proba.geometry.sim3 import Sim3, umeyama_robust
from proba.io.ground_truth import GroundTruth, save_ground_truth
from proba.io.images import find_photos
from proba.io.matches_h5 import load_matches
from proba.io.photo_folder import photo_folder
from proba.io.reconstruction_folder import load_reconstruction
from proba.known_poses import KnownPoses, Use
from proba.matches import Matches
from proba.matching import MatchOptions, match_folder
from proba.matching.folder import Observer as MatchObserver
from proba.pipeline import Observer, SolveOptions, SolveResult
from proba.reconstruction import Reconstruction
from proba.report import output_folder

PHOTOS = "photos"
"""Folder of an output that holds links to the photos of all sources."""
KNOWN = "known.json"
"""File of an output with the cameras that were there before."""
NEAR_PX = 1.5
"""A match is the point whose observation is this near, pixels."""
MIN_COMMON_POINTS = 12
"""Points in common that tell how two models lie to each other: fewer agree by chance."""


def add_photos(
    folder: str | Path,
    photos: str | Path,
    *,
    out: str | Path,
    keep_cameras: bool = False,
    images: str | Path | None = None,
    match: MatchOptions | None = None,
    options: SolveOptions | None = None,
    threads: int | None = None,
    observer: Observer | None = None,
    match_observer: MatchObserver | None = None,
) -> SolveResult:
    """Add photos to a model. The result is in the old frame. Prints nothing.

    Args:
        folder: Result folder of `proba run`.
        photos: Folder of the new photos; it may hold the old ones too.
        out: Folder for the larger model. A call that was interrupted goes on with what it left there.
        keep_cameras: The old poses stay as they are.
        images: Folder of the old photos; None: where they were.
        match: Settings of the matching; old pairs that had the same are not matched again.
        options: Settings of all stages after it.
        threads: Processor threads; None: all.
        observer: Is told how far the solver is.
        match_observer: Is told how far the matching is.
    """
    source, target = Path(folder), Path(out)
    model = load_reconstruction(source)[0]
    place = photo_folder(source, model.image_names, None if images is None else Path(images))
    _refuse_overwriting(target, source)
    with output_folder(target):
        together, _ = _gathered(target, place, Path(photos))
        _match(together, target, [source], match, threads, match_observer)
        _save_cameras(target / KNOWN, model)
    return _solve(target, together, "fixed" if keep_cameras else "start", options, threads, observer)


def merge_models(
    first: str | Path,
    second: str | Path,
    *,
    out: str | Path,
    images: tuple[str | Path, str | Path] | None = None,
    match: MatchOptions | None = None,
    options: SolveOptions | None = None,
    threads: int | None = None,
    observer: Observer | None = None,
    match_observer: MatchObserver | None = None,
) -> SolveResult:
    """Make one model of two that have photos or scenery in common. The result is in the first one's frame. Prints
    nothing.

    Args:
        first: Result folder of `proba run`.
        second: The other one.
        out: Folder for the model of both.
        images: Folders of the photos of both; None: where they were.
        match: Settings of the matching; old pairs that had the same are not matched again.
        options: Settings of all stages after it.
        threads: Processor threads; None: all.
        observer: Is told how far the solver is.
        match_observer: Is told how far the matching is.
    """
    sources, target = [Path(first), Path(second)], Path(out)
    models = [load_reconstruction(source)[0] for source in sources]
    given = (None, None) if images is None else images
    places = [
        photo_folder(source, model.image_names, None if path is None else Path(path))
        for source, model, path in zip(sources, models, given, strict=True)
    ]
    for source in sources:
        _refuse_overwriting(target, source)
    with output_folder(target):
        together, names = _gathered(target, *places)
        _match(together, target, sources, match, threads, match_observer)
        matches = load_matches(target / "matches.h5", images=together)
        renamed = replace(models[1], image_names=[names.get(name, name) for name in models[1].image_names])
        moved = _moved(renamed, first_from_second(models[0], renamed, matches))
        _save_cameras(target / KNOWN, models[0], moved)
    return _solve(target, together, "start", options, threads, observer)


def first_from_second(first: Reconstruction, second: Reconstruction, matches: Matches) -> Sim3:
    """The similarity from the second model's world into the first's: by the photos that both have, else by points that
    are matched across."""
    common = [name for name in first.image_names if name in second.poses]
    if len(common) >= 2:
        known = KnownPoses(
            cam_from_world=np.array([first.poses[name] for name in common]),
            focal_px=np.full(len(common), np.nan),
            sigma=np.zeros((len(common), 6)),
            use="start",
            z_up=False,
            outlier_sigmas=np.inf,
        )
        index = [second.index(name) for name in common]
        frame = known.frame(second.centres[index], second.cam_from_world[index, :3, :3])
        if frame is not None:
            return frame
    here, there = common_points(first, second, matches)
    if len(here) < MIN_COMMON_POINTS:
        raise GeometryError(
            f"The models have {len(common)} photos and {len(here)} points in common, which does not tell how they lie "
            "to each other. Add photos that both see with `proba add`, and merge again."
        )
    return umeyama_robust(there, here)[0]


def common_points(first: Reconstruction, second: Reconstruction, matches: Matches) -> tuple[np.ndarray, np.ndarray]:
    """Places [M, 3] of points in the first model, and of the same in the second, by the matches across."""
    where = [{name: k for k, name in enumerate(model.image_names)} for model in (first, second)]
    here, there = [np.zeros((0, 3))], [np.zeros((0, 3))]
    for (i, j), pair in matches.pairs.items():
        for (one, xy), (other, xy_other) in (
            ((i, pair.points_i), (j, pair.points_j)),
            ((j, pair.points_j), (i, pair.points_i)),
        ):
            a, b = where[0].get(matches.images[one].name), where[1].get(matches.images[other].name)
            if a is None or b is None or matches.images[one].name in where[1]:
                continue
            p, q = _points_at(first, a, xy), _points_at(second, b, xy_other)
            both = (p >= 0) & (q >= 0)
            here.append(first.points.xyz[p[both]])
            there.append(second.points.xyz[q[both]])
    return np.concatenate(here), np.concatenate(there)


def _points_at(model: Reconstruction, image: int, xy: np.ndarray) -> np.ndarray:  # [M] int
    """The points that a photo shows at pixels [M, 2]; -1 for none."""
    mine = np.flatnonzero(model.points.obs_image == image)
    if not len(mine):
        return np.full(len(xy), -1)
    distance, nearest = cKDTree(model.points.obs_xy[mine]).query(xy)
    return np.where(distance < NEAR_PX, model.points.obs_point[mine[nearest]], -1)


def _moved(model: Reconstruction, frame: Sim3) -> Reconstruction:
    return replace(model, cam_from_world=frame.apply_to_poses(model.cam_from_world))


def _save_cameras(path: Path, *models: Reconstruction) -> None:
    """The cameras of models in one frame; a photo that several have counts in the first."""
    owner = {name: model for model in reversed(models) for name in model.image_names}
    cameras = [(model.poses[name], model.camera(name)) for name, model in owner.items()]
    lens = [camera for _, camera in cameras]
    save_ground_truth(
        GroundTruth(
            names=list(owner),
            cam_from_world=np.array([pose for pose, _ in cameras]),
            intrinsics=np.array([[*camera.focal_px, *camera.principal_point_px] for camera in lens]),
            width=np.array([camera.width for camera in lens]),
            height=np.array([camera.height for camera in lens]),
        ),
        path,
    )


def _gathered(out: Path, first: Path, second: Path) -> tuple[Path, Mapping[str, str]]:
    """A folder with the photos of both, and new names of those of the second whose names another photo has."""
    kept = {photo.digest: photo.info.name for photo in find_photos(first)}
    if first.resolve() == second.resolve():
        return first, {}
    added = {photo.info.name: photo for photo in find_photos(second, fewest=1)}
    if all(name in added and added[name].digest == digest for digest, name in kept.items()):
        return second, {}  # it holds all of them
    folder, names = out / PHOTOS, {}
    shutil.rmtree(folder, ignore_errors=True)
    for name in kept.values():
        _link(first / name, folder / name)
    taken = set(kept.values())
    for name, photo in added.items():
        wish = kept.get(photo.digest) or (f"added/{name}" if name in taken else name)
        if wish != name:
            names[name] = wish
        if photo.digest not in kept:
            _link(photo.path, folder / wish)
    return folder, names


def _link(photo: Path, target: Path) -> None:
    """The same photo in another place, copied where there are no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        os.symlink(photo.resolve(), target)
        return
    shutil.copyfile(photo, target)


def _match(
    photos: Path,
    out: Path,
    sources: list[Path],
    options: MatchOptions | None,
    threads: int | None,
    observer: MatchObserver | None,
) -> None:
    before = [source / "matches.h5" for source in sources if (source / "matches.h5").is_file()]
    match_folder(photos, out / "matches.h5", options, resume=True, jobs=threads, observer=observer, reuse=before)


def _solve(
    out: Path,
    photos: Path,
    use: Use,
    options: SolveOptions | None,
    threads: int | None,
    observer: Observer | None,
) -> SolveResult:
    options = options or SolveOptions()
    known = replace(options.known, file=str(out / KNOWN), use=use, search=False)
    return api.solve(
        out / "matches.h5",
        out=out,
        images=photos,
        options=replace(options, known=known),
        threads=threads,
        observer=observer,
    )


def _refuse_overwriting(out: Path, source: Path) -> None:
    if out.resolve() == source.resolve():
        raise InputError(f"{source} is the model itself. Give --out another folder.")
