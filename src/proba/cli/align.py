"""`proba align`: a world with z up and a known scale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from proba.align import (
    Alignment,
    Up,
    align_gps,
    align_up,
    aligned,
    scale_from_baseline,
    scale_from_distance,
)
from proba.cli.options import OUT
from proba.errors import InputError
from proba.geometry.sim3 import Sim3
from proba.history.evolution import EVOLUTION_FILE, load_evolutions, save_evolutions
from proba.io.atomic import all_or_nothing, atomic_write_text
from proba.io.photo_folder import photo_folder
from proba.io.reading import read_json, reading
from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction
from proba.reconstruction import Reconstruction
from proba.report import output_folder, redraw_scenes, with_dense


def main(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    up: Up | None = None,
    baseline: tuple[str, str, float] | None = None,
    distance: tuple[str, str, float] | None = None,
    gps: bool = False,
    images: Path | None = None,
    out: Annotated[Path | None, OUT] = None,
) -> None:
    """Turn a reconstruction so that z is up, and give it a known scale. Without options: --up gravity.

    Rewrites the model, cloud, maps, uncertainties, history and reports of FOLDER, or writes them to --out. Pieces that
    are not connected are turned each by itself; a length scales the piece that holds what was measured.

    Args:
        folder: Folder that `proba solve` or `proba run` wrote.
        up: gravity: photos are held level. pca: the cameras, or else the points, lie on level ground. x, y, z, -x, -y
            or -z: this axis of the present world is up.
        baseline: Two images and the length between their cameras, e.g. --baseline a.jpg b.jpg 0.25
        distance: Two places and the length between them: numbers of points (as in COLMAP's files) of the largest piece,
            or pixels, e.g. --distance a.jpg:310,200 a.jpg:560,204 1.2
        gps: Metres, east, north and up from the GPS places in the photos' EXIF.
        images: Folder of the photos, for --gps; by default the one that report.json names.
        out: Write here instead of into FOLDER.
    """
    if sum(chosen is not None for chosen in (baseline, distance)) + gps > 1:
        raise InputError("Give one of --baseline, --distance and --gps.")
    if gps and up:
        raise InputError("--gps finds up itself. Leave --up out.")
    pieces = [_Piece(reconstruction) for reconstruction in load_reconstruction(folder)]
    if baseline:
        piece = _piece_of(pieces, baseline[0], baseline[1])
        piece.apply(scale_from_baseline(piece.reconstruction, *baseline))
    if distance:
        piece = _piece_of(pieces, *(place.rpartition(":")[0] for place in distance[:2]))
        piece.apply(scale_from_distance(piece.reconstruction, *distance))
    for piece in pieces:
        if gps:
            piece.apply(align_gps(piece.reconstruction, photo_folder(folder, piece.reconstruction.image_names, images)))
        elif up or not (baseline or distance):
            piece.apply(align_up(piece.reconstruction, up or "gravity"))
    _write(folder, out or folder, pieces)
    print(f"{' | '.join(piece.told for piece in pieces)}: wrote {out or folder}")


class _Piece:
    """A connected piece on its way to another frame."""

    def __init__(self, reconstruction: Reconstruction) -> None:
        self.reconstruction = reconstruction
        self.new_from_old = Sim3()
        self.reasons: list[str] = []

    def apply(self, step: Alignment) -> None:
        self.reconstruction = aligned(self.reconstruction, step)
        self.new_from_old = step.similarity @ self.new_from_old
        self.reasons.append(step.reason)

    @property
    def told(self) -> str:
        scale = self.new_from_old.scale
        return "; ".join(self.reasons) + (f" (scale x {scale:.6g})" if scale != 1 else "") or "unchanged"


def _piece_of(pieces: list[_Piece], *names: str) -> _Piece:
    """The piece that holds all named images; the largest where none is named."""
    wanted = {name for name in names if name}
    for piece in pieces:
        if wanted <= set(piece.reconstruction.image_names):
            return piece
    every = [name for piece in pieces for name in piece.reconstruction.image_names]
    for name in sorted(wanted - set(every)):
        raise InputError(f"The reconstruction has no image {name!r}; it has e.g. {every[0]!r}.")
    raise InputError(f"{' and '.join(sorted(wanted))} are in pieces that are not connected. Measure within one piece.")


def _write(folder: Path, target: Path, pieces: list[_Piece]) -> None:
    """All files take their places together, so that neither a full disk nor a kill can leave some of each."""
    with output_folder(target), all_or_nothing(target):
        save_reconstruction([piece.reconstruction for piece in pieces], target)
        if (folder / EVOLUTION_FILE).is_file():
            _move_history(folder / EVOLUTION_FILE, target / EVOLUTION_FILE, pieces)
        if (folder / "report.json").is_file():
            _amend_reports(folder, target, pieces)


def _move_history(source: Path, target: Path, pieces: list[_Piece]) -> None:
    """The history ends in the result, so it moves with it."""
    evolutions = load_evolutions(source)
    piece_of = {tuple(piece.reconstruction.image_names): piece for piece in pieces}
    for evolution in evolutions:
        piece = piece_of.get(tuple(evolution.image_names))
        if piece is None:
            continue
        poses = np.zeros((*evolution.cam_from_world.shape[:2], 4, 4))  # [F, N, 4, 4]
        poses[..., :3, :], poses[..., 3, 3] = evolution.cam_from_world, 1
        evolution.cam_from_world = piece.new_from_old.apply_to_poses(poses)[..., :3, :].astype(np.float32)
        shift = np.float16(np.log(piece.new_from_old.scale))
        evolution.log_depth, evolution.log_sigma = evolution.log_depth + shift, evolution.log_sigma + shift
    save_evolutions(target, evolutions)


def _amend_reports(source: Path, target: Path, pieces: list[_Piece]) -> None:
    """The reports with centres in the new unit, new figures, and what was done with its 4x4 matrix new_from_old."""
    with reading(source / "report.json", "what `proba` wrote", "It is damaged: delete it, or run again."):
        report = read_json(source / "report.json")
        for component, piece in zip(report["components"], pieces, strict=True):
            moved = piece.reconstruction
            for name, std in zip(moved.image_names, moved.pose_std, strict=True):
                centre = float(std[3:].max())
                component["pose_std"][name]["centre"] = centre if np.isfinite(centre) else None
            matrix = piece.new_from_old.matrix().tolist()
            done = {"reason": piece.told, "z_up": piece.reconstruction.up == "z", "new_from_old": matrix}
            component.setdefault("alignments", []).append(done)
        page = source / "report.html"
        if page.is_file():
            moved_pieces = [piece.reconstruction for piece in pieces]
            text = redraw_scenes(page.read_text(encoding="utf-8"), report, moved_pieces)
            atomic_write_text(target / "report.html", with_dense(text, ()))  # dense depth belongs to its cameras
    atomic_write_text(target / "report.json", json.dumps(report, indent=1))
