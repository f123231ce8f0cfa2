"""Matchers against the truth: how many matches, how right, how much of the image, how fast."""

from __future__ import annotations

import json as json_module
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proba.errors import InputError
from proba.geometry.camera import undistort
from proba.geometry.epipolar import epipolar_lines, in_front
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import GroundTruth, load_ground_truth
from proba.io.matches_h5 import load_matches
from proba.matches import ImageInfo, Matches, PairMatches
from proba.matching import MatchOptions, MatchSummary, match_folder
from proba.matching.pairs import Pair

GRID = 64  # cells a side, of which a pair's matches cover a share
BOUNDS_PX = (1, 2, 5)
TRUE_SHARE = 0.2  # a pair with a smaller share of matches within 5 px and before both cameras is false
COLUMNS = (
    "set",
    "matcher",
    "tried",
    "kept",
    "false",
    "matches",
    "within 1 px",
    "2 px",
    "5 px",
    "grid",
    "s/image",
    "s/pair",
)


class StageClock:
    """An observer of matching that takes the processor seconds of its steps, which other programs hardly change."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.images = 1
        self._what, self._begin = "", 0.0

    def begin(self, what: str, total: int, unit: str) -> None:
        self.stop()
        if what == "features":
            self.images = max(self.images, total)
        self._what, self._begin = what, time.process_time()

    def advance(self) -> None: ...

    def done(self, summary: MatchSummary) -> None:
        self.stop()

    def stop(self) -> None:
        if self._what:
            past = time.process_time() - self._begin
            self.seconds[self._what] = self.seconds.get(self._what, 0.0) + past
            self._what = ""


def measure_set(folder: Path, matcher: str, *, max_pairs: int | None = None, densify: bool = False) -> dict:
    """Match the photos of one set and compare the matches with its ground truth."""
    truth = load_ground_truth(folder / "gt.json")
    clock = StageClock()
    options = MatchOptions(matcher=matcher, densify=densify, pair_filter=_sample(max_pairs))
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "matches.h5"
        summary = match_folder(folder / "images", file, options, observer=clock)
        matches = load_matches(file)
    features = clock.seconds.get("features", 0.0)
    return {
        "set": folder.name,
        "matcher": matcher + " densified" * densify,
        "images": summary.photos,
        "pairs_tried": summary.pairs_tried,
        **compare_with_truth(matches, truth),
        "seconds_by_step": {step: round(seconds, 2) for step, seconds in clock.seconds.items()},
        "seconds_per_image": round(features / clock.images, 3),
        "seconds_per_pair": round((sum(clock.seconds.values()) - features) / max(1, summary.pairs_tried), 3),
    }


def compare_with_truth(matches: Matches, truth: GroundTruth) -> dict:
    """Shares of matches near the true epipolar lines, share of the grid that a pair covers, and false pairs."""
    camera = {name: k for k, name in enumerate(truth.names)}
    errors, covered, false_pairs = [], [], []
    for (i, j), pair in matches.pairs.items():
        one, other = matches.images[i], matches.images[j]
        if not len(pair.scores) or one.name not in camera or other.name not in camera:
            continue
        error_px, in_front = epipolar_errors_px(pair, truth, camera[one.name], camera[other.name])  # [M], [M]
        errors.append(error_px)
        covered += [grid_share(pair.points_i, one), grid_share(pair.points_j, other)]
        if np.mean((error_px < BOUNDS_PX[-1]) & in_front) < TRUE_SHARE:
            false_pairs.append([one.name, other.name, len(error_px)])
    every = np.concatenate(errors) if errors else np.zeros(0)
    return {
        "pairs_kept": len(errors),
        "false_pairs": false_pairs,
        "matches": len(every),
        **{f"within_{bound}px": round(float((every < bound).mean()), 4) if len(every) else 0.0 for bound in BOUNDS_PX},
        "grid_share": round(float(np.mean(covered)), 4) if covered else 0.0,
    }


def epipolar_errors_px(pair: PairMatches, truth: GroundTruth, one: int, other: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean distance [M] to the true epipolar lines of both images, and which points [M] lie in front of both."""
    rays_i, rays_j = _rays(truth, one, pair.points_i), _rays(truth, other, pair.points_j)  # [M, 3]
    j_from_i = truth.cam_from_world[other] @ np.linalg.inv(truth.cam_from_world[one])
    rotation, shift = j_from_i[:3, :3], j_from_i[:3, 3]
    if np.linalg.norm(shift) < 1e-6 * np.abs(truth.centres - truth.centres.mean(axis=0)).max():
        turned = rays_i @ rotation.T  # one place: a point has no line to lie on but a place of its own
        distance = (turned[:, :2] / turned[:, 2:] - rays_j[:, :2]) * truth.intrinsics[other, :2]  # [M, 2]
        return np.hypot(*distance.T), turned[:, 2] > 0
    lines_i, lines_j = epipolar_lines(rays_i, rays_j, j_from_i)  # [M, 3]
    residual = np.abs((rays_j * lines_j).sum(axis=1))  # [M]
    distances = [
        residual / (np.hypot(*(lines[:, :2] / truth.intrinsics[k, :2]).T) + 1e-12)
        for lines, k in ((lines_i, one), (lines_j, other))
    ]
    return (distances[0] + distances[1]) / 2, in_front(rays_i, rays_j, j_from_i)


def grid_share(points: np.ndarray, image: ImageInfo) -> float:
    """Share of the cells of a 64 x 64 grid over the image that hold a match."""
    cell = np.clip(points / [image.width, image.height] * GRID, 0, GRID - 1).astype(np.int64)  # [M, 2]
    return len(np.unique(cell, axis=0)) / GRID**2


def _rays(truth: GroundTruth, camera: int, points: np.ndarray) -> np.ndarray:  # [M, 3]
    fx, fy, cx, cy = truth.intrinsics[camera]
    plane = (points.astype(np.float64) - [cx, cy]) / [fx, fy]  # [M, 2]
    if truth.distortion is not None:
        plane = undistort(plane, *truth.distortion[camera])
    return np.column_stack([plane, np.ones(len(plane))])


def _sample(max_pairs: int | None):
    """A pair filter that keeps some pairs, always the same ones."""

    def keep(images: Sequence[ImageInfo], pairs: list[Pair]) -> list[Pair]:
        if max_pairs is None or len(pairs) <= max_pairs:
            return pairs
        chosen = np.random.default_rng(0).choice(len(pairs), max_pairs, replace=False)
        return [pairs[k] for k in sorted(chosen)]

    return keep


def main(
    json: Path | None,
    *,
    data: Path | None,
    sets: Sequence[str],
    matchers: Sequence[str],
    max_pairs: int | None,
    densify: bool,
) -> list[dict]:
    """Print a Markdown table, a row for each set and matcher; the file is written after every row."""
    root = data or (Path(os.environ["PROBA_DATA"]) if os.environ.get("PROBA_DATA") else None)
    if root is None or not root.is_dir():
        raise InputError("give --data FOLDER with one folder a set (images/ and gt.json), or set PROBA_DATA")
    names = list(sets) or sorted(path.parent.name for path in root.glob("*/gt.json"))
    if not names:
        raise InputError(f"{root} holds no set with images/ and gt.json")
    rows: list[dict] = []
    print(f"| {' | '.join(COLUMNS)} |\n|---|---|{'--:|' * (len(COLUMNS) - 2)}", flush=True)
    for name in names:
        for matcher in matchers:
            for dense in (False, True) if densify else (False,):
                rows.append(measure_set(root / name, matcher, max_pairs=max_pairs, densify=dense))
                print(_row(rows[-1]), flush=True)
                if json:
                    atomic_write_text(json, json_module.dumps(rows, indent=1))
    return rows


def _row(row: dict) -> str:
    cells = [row["set"], row["matcher"], row["pairs_tried"], row["pairs_kept"], len(row["false_pairs"]), row["matches"]]
    cells += [f"{100 * row[f'within_{bound}px']:.1f} %" for bound in BOUNDS_PX]
    cells += [f"{100 * row['grid_share']:.1f} %", f"{row['seconds_per_image']:.2f}", f"{row['seconds_per_pair']:.3f}"]
    return f"| {' | '.join(map(str, cells))} |"
