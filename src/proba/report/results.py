"""Writes the output folder of a solve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from proba._version import __version__
from proba.errors import InputError
from proba.io.atomic import TODO_FILE, all_or_nothing, atomic_write_text, remove_leftovers
from proba.io.lock import LOCK_FILE, locked
from proba.io.reconstruction_folder import save_reconstruction
from proba.matches import Matches
from proba.pipeline import Piece, SolveOptions, SolveResult, Verdict
from proba.reconstruction import CameraRig
from proba.report.checks import Check, matching_checks, run_checks, worst_level
from proba.report.facts import ImageFacts, PairFacts, explained_share, image_facts, pair_facts, trusted_part
from proba.report.findings import findings, verdict
from proba.report.html import html_report
from proba.report.pictures import thumbnails, worst_pairs
from proba.report.words import duration, focal_range, stage_times
from proba.solution import Hypothesis

DEMO_FILE = "demo.json"
"""What `proba demo` rendered; it writes this before anything else."""
OURS = {"report.json", "checkpoint", "solver", "sparse", "points.ply", "frames", DEMO_FILE}
OURS |= {"rigs.json", "views", "views.partial"}
OURS |= {"matches.h5", "matches.h5.partial", "frames.partial", LOCK_FILE, TODO_FILE}


@contextmanager
def output_folder(folder: Path) -> Iterator[Path]:
    """A folder for results, made if need be, that no other process writes to meanwhile."""
    prepare_output(folder)
    with locked(folder):
        remove_leftovers(folder)
        yield folder


def prepare_output(folder: Path) -> None:
    """Make the folder, or refuse one that holds something else, before hours of work go into it."""
    if folder.is_file():
        raise InputError(f"{folder} is a file; give --out a folder")
    if folder.is_dir() and any(folder.iterdir()) and not any((folder / name).exists() for name in OURS):
        raise InputError(f"{folder} holds files that are not a ProBA result; give --out a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)


def write_results(
    folder: Path,
    matches: Matches,
    result: SolveResult,
    options: SolveOptions,
    *,
    image_folder: Path | None = None,
    matching: dict | None = None,
) -> None:
    """Write model, cloud and reports.

    `image_folder` (absolute) is where the photos are, `matching` what is known of how they were matched.
    """
    report = plain(report_dict(matches, result, options, image_folder=image_folder, matching=matching))
    result.verdict = Verdict(**report["verdict"])
    edges = [PairFacts(**edge) for edge in report["edges"]]
    pictures = worst_pairs(matches, result.reconstructions, edges, image_folder)
    small = thumbnails(result.reconstructions, image_folder)
    with all_or_nothing(folder):
        save_reconstruction(result.reconstructions, folder)
        atomic_write_text(folder / "report.json", json.dumps(report, indent=1, allow_nan=False))
        atomic_write_text(folder / "report.html", html_report(report, result.reconstructions, pictures, small))


def report_dict(
    matches: Matches,
    result: SolveResult,
    options: SolveOptions,
    *,
    image_folder: Path | None = None,
    matching: dict | None = None,
) -> dict:
    """The content of report.json."""
    pieces = result.pieces
    images, edges, checks = _judged(matches, result)
    checks += matching_checks(matching)
    found = findings(checks)
    registered = sum(len(piece.reconstruction) for piece in pieces)
    return {
        "version": __version__,
        "verdict": asdict(_verdict(matches, result, checks)),
        "images": len(matches.images),
        "registered": registered,
        "image_folder": None if image_folder is None else str(image_folder),
        "components": [_component(index, piece, edges[index]) for index, piece in enumerate(pieces)],
        "unmatched": result.unmatched,
        "separations": [asdict(separation) for separation in result.separations],
        "failed": result.failed,
        "hypotheses": [asdict(hypothesis) for hypothesis in pieces[0].hypotheses],
        "choice": _choice(pieces[0].hypotheses),
        "focal_px": [focal for piece in pieces for focal in _focals(piece)],
        "matching": matching,
        "per_image": [asdict(image) for piece in images for image in piece],
        "edges": [asdict(edge) for piece in edges for edge in piece],
        "checks": [asdict(check) for check in checks],
        "findings": [asdict(finding) for finding in found],
        "warnings": [finding.text for finding in found],
        "iterations": pieces[0].iterations,
        "interrupted": result.interrupted,
        "seconds": {stage: round(value, 3) for stage, value in result.seconds.items()},
        "peak_rss_mb": round(result.peak_rss_mb, 1),
        "preset": options.preset,
        "seed": options.seed,
        "settings": asdict(options),
    }


def judge(matches: Matches, result: SolveResult) -> Verdict:
    """What the report would say about a result."""
    return _verdict(matches, result, _judged(matches, result)[2])


def _judged(matches: Matches, result: SolveResult) -> tuple[list[list[ImageFacts]], list[list[PairFacts]], list[Check]]:
    """Facts about the images and pairs of each piece, and the checks of all."""
    edges = [pair_facts(matches, piece.reconstruction) for piece in result.pieces]
    images = [image_facts(piece.reconstruction) for piece in result.pieces]
    return images, edges, run_checks(result, matches.images, images, edges)


def _verdict(matches: Matches, result: SolveResult, checks: list[Check]) -> Verdict:
    registered = sum(len(piece.reconstruction) for piece in result.pieces)
    return Verdict(level=worst_level(checks), text=verdict(checks, registered, len(matches.images)))


def _component(index: int, piece: Piece, edges: list[PairFacts]) -> dict:
    rec = piece.reconstruction
    return {
        "folder": f"sparse/{index}",
        "images": rec.image_names,
        "trusted": trusted_part(rec.image_names, edges),
        "least_shared": None if piece.weakest is None else piece.weakest.ratio,
        "points": len(rec.points.xyz),
        "mean_error_px": float(rec.points.error_px.mean()) if len(rec.points.xyz) else None,
        "surviving_share": piece.surviving_share,
        "explained_share": explained_share(edges),
        "noise_px": piece.noise_px,
        "rescued": piece.rescued,
        "unplaced": piece.unplaced,
        "hypothesis": next((h.name for h in piece.hypotheses if h.chosen), None),
        "clusters": [asdict(cluster) for cluster in piece.clusters],
        "rolling_shutter": None if piece.shutter is None else piece.shutter.numbers(),
        "rigs": [_rig(rig) for rig in rec.rigs],
        "pose_std": {
            name: {"rotation_deg": float(np.degrees(std[:3].max())), "centre": float(std[3:].max())}
            for name, std in zip(rec.image_names, rec.pose_std, strict=True)
        },
    }


def _rig(rig: CameraRig) -> dict:
    return {
        "metric": rig.metric,
        "frames": len(rig.frames),
        "cameras": [
            {
                "name": camera.name,
                "known": camera.known,
                "reference": camera.reference,
                "rotation_deg": np.degrees(Rotation.from_matrix(camera.cam_from_rig[:3, :3]).as_rotvec()).tolist(),
                "rotation_std_deg": np.degrees(camera.std[:3]).tolist(),
                "centre": camera.centre.tolist(),
                "centre_std": camera.std[3:].tolist(),
            }
            for camera in rig.cameras
        ],
    }


def _focals(piece: Piece) -> list[dict]:
    rec = piece.reconstruction
    out = []
    for index, camera in enumerate(rec.cameras):
        users = [rec.image_names[n] for n in np.nonzero(rec.camera_of_image == index)[0]]
        fx, fy = (float(value) for value in camera.focal_px)
        out.append(
            {
                "camera": index,
                "model": camera.model,
                "images": users,
                "focal_px": (fx * fy) ** 0.5,
                "std_px": camera.focal_std_px,
                "fov_deg": camera.fov_deg,
                "params": camera.params.tolist(),
                "params_std": None if camera.params_std is None else camera.params_std.tolist(),
            }
        )
    return out


def _choice(hypotheses: list[Hypothesis]) -> dict:
    """Which hypothesis won and by how much: shares of the explainable matches that the refined worlds explain."""
    chosen = next((h for h in hypotheses if h.chosen), hypotheses[0])
    others = [(h.explained_share, h.name) for h in hypotheses if h.explained_share is not None and not h.chosen]
    share, name = max(others, key=lambda other: other[0], default=(None, None))
    return {
        "name": chosen.name,
        "explained_share": chosen.explained_share,
        "next": name,
        "margin": None if share is None or chosen.explained_share is None else chosen.explained_share - share,
    }


def plain(value):
    """JSON has no NaN: unknown becomes null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value


def folder_summary(folder: Path) -> str:
    """What a result folder holds, for the terminal."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    lines = [f"{report['registered']} of {report['images']} images posed"]
    if len(report["components"]) > 1:
        lines[0] += f" in {len(report['components'])} pieces"
    focal, what = focal_range(report["focal_px"])
    lines.append(f"{what}: {focal}".replace("±", "+-"))
    good = report["verdict"]["level"] == "good"
    lines.append(report["verdict"]["text"] if good else report["verdict"]["text"].partition(":")[0] + ":")
    lines += [
        f"warning: {text} (more in report.html: {', '.join(dict.fromkeys(finding['topics']))})"
        for text, finding in zip(report["warnings"], report["findings"], strict=True)
    ]
    parts = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stage_times(report["seconds"]))
    lines.append(f"{duration(report['seconds'])} ({parts}), peak memory {report['peak_rss_mb']:.0f} MB")
    lines.append(f"wrote {folder}/sparse/0, {folder}/points.ply, {folder}/report.html")
    return "\n".join(lines)
