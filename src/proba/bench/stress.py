"""Folders made for the weak places of the method from sets with ground truth, so that the truth is exact.

A folder is one or two sets whose photos were reduced and then changed: a few of them drawn, two sets mixed, strangers
added, photos turned, zoomed, cropped or darkened, an object put before a room that stands still with the camera. Each
row says what became of it and what the report said of that.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from proba.bench.experiment import Row
from proba.bench.measure import cached_matches
from proba.bench.photo_sets import PhotoSet, find_sets
from proba.bench.runner import run_list
from proba.errors import ProbaError
from proba.evaluation import evaluate
from proba.evaluation.collection_score import pairs_right
from proba.evaluation.poses import match_names
from proba.graph.roll import roll_rotation
from proba.io.ground_truth import GroundTruth
from proba.io.picture_files import write_picture
from proba.io.scene_labels import LabelledScene
from proba.pipeline import SolveOptions, SolveResult, solve_matches
from proba.report import judge
from proba.threads import set_threads

FEW = 9
"""Photos of the variant `few`."""
STRANGERS = 3
MOST_ZOOM = 1.67
SMALLEST_CROP = 0.6
"""Part of a side that a crop leaves."""
DARKEST = 0.25
GRAIN = 2.0
"""Noise of photos before one and the same room, in grey values."""
BLACK = 22
"""Grey values of cloth; photos of which a third is darker show an object before it."""
NEEDING_OTHERS = ("strangers", "turntable")
NUMBERS = ("rra@5", "rta@5", "auc@5")


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A photo and its true camera."""

    picture: np.ndarray  # [H, W, 3] uint8
    cam_from_world: np.ndarray  # [4, 4]
    intrinsics: np.ndarray  # [4]: fx, fy, cx, cy


Change = Callable[[Shot, np.random.Generator], Shot]


def turned(shot: Shot, rng: np.random.Generator) -> Shot:
    """Turned by 0 to 3 quarters."""
    quarters = int(rng.integers(4))
    pose = shot.cam_from_world.copy()
    for _ in range(quarters):
        pose[:3] = roll_rotation(1).T @ pose[:3]
        fx, fy, cx, cy = shot.intrinsics
        width = shot.picture.shape[1]
        shot = replace(shot, picture=np.rot90(shot.picture), intrinsics=np.array([fy, fx, cy, width - cx]))
    return replace(shot, cam_from_world=pose)


def _cut(shot: Shot, left: int, top: int, width: int, height: int) -> Shot:
    picture = shot.picture[top : top + height, left : left + width]
    return replace(shot, picture=picture, intrinsics=shot.intrinsics - np.array([0, 0, left, top]))


def zoomed(shot: Shot, rng: np.random.Generator) -> Shot:
    """The middle of it alone, enlarged to the old size: another focal length for each photo."""
    height, width = shot.picture.shape[:2]
    factor = rng.uniform(1, MOST_ZOOM)
    w, h = round(width / factor), round(height / factor)
    part = _cut(shot, (width - w) // 2, (height - h) // 2, w, h)
    large = Image.fromarray(part.picture).resize((width, height), Image.Resampling.LANCZOS)
    scale = np.array([width / w, height / h])
    return replace(part, picture=np.asarray(large), intrinsics=part.intrinsics * np.tile(scale, 2))


def cropped(shot: Shot, rng: np.random.Generator) -> Shot:
    """A part of it: another size and another principal point for each photo."""
    height, width = shot.picture.shape[:2]
    w, h = (round(side * rng.uniform(SMALLEST_CROP, 1)) for side in (width, height))
    return _cut(shot, int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1)), w, h)


def darkened(shot: Shot, rng: np.random.Generator) -> Shot:
    """As at dusk: darker, with the noise of a high sensitivity."""
    dark = shot.picture * rng.uniform(DARKEST, 1)
    dark += rng.normal(0, 4, dark.shape)
    return replace(shot, picture=dark.clip(0, 255).astype(np.uint8))


CHANGES: dict[str, Change] = {"turned": turned, "zoomed": zoomed, "cropped": cropped, "darkened": darkened}


def subject(picture: np.ndarray) -> np.ndarray:  # [H, W] bool
    """The largest thing before black cloth."""
    bright = cv2.GaussianBlur(picture.max(axis=2), (0, 0), 2) > BLACK
    clean = cv2.morphologyEx(bright.astype(np.uint8), cv2.MORPH_OPEN, np.ones((7, 7), np.uint8))
    _, label, stats, _ = cv2.connectedComponentsWithStats(clean)
    return label == 1 + stats[1:, cv2.CC_STAT_AREA].argmax() if len(stats) > 1 else bright


def _stands_free(photos: PhotoSet) -> bool:
    """Whether a set shows an object before black cloth."""
    truth = photos.truth()
    with Image.open(photos.images(Path()) / truth.names[0]) as opened:
        picture = np.asarray(opened.convert("RGB"))
    return bool((picture.max(axis=2) < BLACK).mean() > 1 / 3)


def before_room(shot: Shot, room: np.ndarray, rng: np.random.Generator) -> Shot:
    """The subject alone, before a room that is the same in all photos of its size."""
    height, width = shot.picture.shape[:2]
    fitted = np.asarray(Image.fromarray(room).resize((width, height), Image.Resampling.LANCZOS))
    together = np.where(subject(shot.picture)[..., None], shot.picture, fitted) + rng.normal(0, GRAIN, fitted.shape)
    return replace(shot, picture=together.clip(0, 255).astype(np.uint8))


@dataclass(frozen=True, kw_only=True)
class Folder:
    """What one row is about."""

    kind: str
    sets: tuple[PhotoSet, ...]
    """One, or the two of a mixture."""
    others: tuple[PhotoSet, ...] = ()
    """Where strangers and rooms come from."""
    draw: int
    side_px: int

    @property
    def name(self) -> str:
        return f"{self.kind}.{'+'.join(photos.name for photos in self.sets)}.{self.draw}.{self.side_px}"


def main(
    data: Path, json: Path | None, sets: Sequence[str], *, kinds: Sequence[str], draws: Sequence[int],
    mixtures: int, side_px: int, seeds: Sequence[int], out: Path, threads: int,
) -> list[dict]:  # fmt: skip
    """Make and run every folder that the file does not hold yet."""
    plan = [
        Row(
            settings={"kind": folder.kind, "sets": folder.name, "seed": seed},
            work=run_folder,
            arguments=(folder, seed, out, threads),
        )
        for folder in plan_folders(find_sets(data, sets), kinds, draws, mixtures, side_px)
        for seed in seeds
    ]
    return run_list(plan, json, line=_line, markdown=markdown)


def plan_folders(
    sets: Sequence[PhotoSet], kinds: Sequence[str], draws: Sequence[int], mixtures: int, side_px: int
) -> list[Folder]:
    """All folders of some kinds; of the pairs of sets `mixtures` at most, the same ones every time."""
    pairs = list(combinations(sets, 2))
    order = np.random.default_rng(0).permutation(len(pairs))[:mixtures]
    objects = {photos.name for photos in sets if "turntable" in kinds and _stands_free(photos)}
    rooms = tuple(photos for photos in sets if photos.name not in objects)
    plan = []
    for kind in kinds:
        chosen = [pairs[k] for k in sorted(order)] if kind == "mixture" else [(photos,) for photos in sets]
        for some in chosen:
            others: tuple[PhotoSet, ...] = ()
            if kind == "strangers":
                others = tuple(photos for photos in sets if photos not in some)
            elif kind == "turntable":
                others = rooms if some[0].name in objects else ()
            if others or kind not in NEEDING_OTHERS:
                plan += [Folder(kind=kind, sets=some, others=others, draw=draw, side_px=side_px) for draw in draws]
    return plan


def run_folder(folder: Folder, seed: int, out: Path, threads: int) -> dict:
    """Make the folder, solve it with default options, and hold result and verdict against the truth."""
    set_threads(threads)
    place = out / folder.name
    truths = make_folder(folder, place)
    matches, seconds = cached_matches(folder.name, place, "auto", out, threads)
    try:
        result = solve_matches(matches, SolveOptions(seed=seed), images=place)
    except ProbaError as error:
        return {"error": str(error)}
    found = [evaluate(result.reconstructions, truth, cloud=False) for truth in truths]
    return {
        **{key: min(float(one[key] or 0) for one in found) for key in NUMBERS},
        "registered": sum(int(one["registered"] or 0) for one in found),
        "images": sum(len(truth.names) for truth in truths),
        **_mixing(result, truths),
        "verdict": judge(matches, result).level,
        "seconds": sum(seconds.values()) + sum(result.seconds.values()),
    }


def _mixing(result: SolveResult, truths: Sequence[GroundTruth]) -> dict[str, float]:
    """Models, those among them that hold photos of several scenes or strangers, and whether what is there is right."""
    scenes = [
        LabelledScene(name=str(k), images=t.names, cam_from_world=t.cam_from_world, thresholds=np.zeros(0))
        for k, t in enumerate(truths)
    ]
    kinds = [
        {next((k for k, n in enumerate(match_names([name], t.names) for t in truths) if n[0] is not None), -1)
         for name in rec.image_names}
        for rec in result.reconstructions
    ]  # fmt: skip
    return {
        "models": len(kinds),
        "mixed": sum(len(some) > 1 for some in kinds),
        "pairs_right": pairs_right(result.reconstructions, scenes),
    }


def make_folder(folder: Folder, place: Path) -> list[GroundTruth]:
    """Write the photos of a folder and return the truth of each of its scenes; strangers have none."""
    rng = np.random.default_rng([folder.draw, zlib.crc32(folder.name.encode())])
    place.mkdir(parents=True, exist_ok=True)
    truths, guests = [], _guests(folder, rng, place.parent)
    for photos in folder.sets:
        truth = photos.truth()
        count = len(truth.names)
        chosen = np.sort(rng.permutation(count)[:FEW]) if folder.kind == "few" else np.arange(count)
        names, shots = [], []
        for n in chosen:
            shot = _reduced(photos, truth, int(n), folder.side_px, place.parent)
            if folder.kind in CHANGES:
                shot = CHANGES[folder.kind](shot, rng)
            elif folder.kind == "turntable":
                shot = before_room(shot, guests[0][1].picture, rng)
            names.append(f"{photos.name}-{Path(truth.names[n]).stem}.png")
            write_picture(place / names[-1], Image.fromarray(np.ascontiguousarray(shot.picture)))
            shots.append(shot)
        truths.append(_truth_of(names, shots))
    if folder.kind == "strangers":
        for name, shot in guests:
            write_picture(place / f"stranger-{name}.png", Image.fromarray(shot.picture))
    return truths


def _guests(folder: Folder, rng: np.random.Generator, cache: Path) -> list[tuple[str, Shot]]:
    """A photo each of a few other sets, with the names of these."""
    guests = []
    for photos in [folder.others[k] for k in rng.permutation(len(folder.others))[:STRANGERS]]:
        truth = photos.truth()
        n = int(rng.integers(len(truth.names)))
        guests.append((photos.name, _reduced(photos, truth, n, folder.side_px, cache)))
    return guests


def _reduced(photos: PhotoSet, truth: GroundTruth, n: int, side_px: int, cache: Path) -> Shot:
    """A photo with a longest side of at most `side_px`."""
    with Image.open(photos.images(cache) / truth.names[n]) as opened:
        picture = opened.convert("RGB")
    factor = min(1.0, side_px / max(picture.size))
    width, height = (max(1, round(side * factor)) for side in picture.size)
    scale = np.tile([width / truth.width[n], height / truth.height[n]], 2)  # [4]
    small = np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS))
    return Shot(picture=small, cam_from_world=truth.cam_from_world[n], intrinsics=truth.intrinsics[n] * scale)


def _truth_of(names: list[str], shots: list[Shot]) -> GroundTruth:
    return GroundTruth(
        names=names,
        cam_from_world=np.stack([shot.cam_from_world for shot in shots]),
        intrinsics=np.stack([shot.intrinsics for shot in shots]),
        width=np.array([shot.picture.shape[1] for shot in shots]),
        height=np.array([shot.picture.shape[0] for shot in shots]),
    )


def _line(run: dict) -> str:
    head = f"{run['sets']:<60} seed {run['seed']}"
    if "auc@5" not in run:
        return f"{head}  {run['error']}"
    numbers = " ".join(f"{name} {run[name]:5.1f}" for name in (*NUMBERS, "pairs_right"))
    models = f"{run['models']} models, {run['mixed']} mixed"
    return f"{head}  {run['registered']}/{run['images']} {numbers}  {models}  {run['verdict']}  {run['seconds']:.0f} s"


def markdown(runs: list[dict]) -> str:
    """A row a run, and how honest the verdicts are."""
    lines = [
        "| folder | seed | posed | RRA@5 | RTA@5 | AUC@5 | models (mixed) | pairs right % | verdict |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for run in runs:
        if "auc@5" not in run:
            lines.append(f"| {run['sets']} | {run['seed']} | {run['error'].splitlines()[0]} | | | | | | |")
            continue
        numbers = " | ".join(f"{run[key]:.1f}" for key in NUMBERS)
        lines.append(
            f"| {run['sets']} | {run['seed']} | {run['registered']} of {run['images']} | {numbers} "
            f"| {run['models']} ({run['mixed']}) | {run['pairs_right']:.1f} | {run['verdict']} |"
        )
    return "\n".join(lines) + "\n\n" + honesty(runs)


def honesty(runs: Sequence[dict], right: float = 95.0) -> str:
    """Verdicts against the truth: a result is right if at least 95 % of the pairs within its models are."""
    judged = [run for run in runs if "verdict" in run and "pairs_right" in run]
    lines = ["| verdict | results | of them right |", "|---|--:|--:|"]
    for level in ("good", "check", "distrust"):
        some = [run for run in judged if run["verdict"] == level]
        lines.append(f"| {level} | {len(some)} | {sum(run['pairs_right'] >= right for run in some)} |")
    return "\n".join(lines) + "\n"
