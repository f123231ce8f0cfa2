"""Whether to trust a reconstruction: each check is one measured fact against one bound, with advice.

The bounds were set on real sets with ground truth: where a group of images contradicts its neighbours in more than
40 % of the matches across, its poses were wrong (eth3d_pipes, middlebury_dino_sparse); with right poses and many false
matches (strecha_castle_p19, repeated windows) it was 32 %, elsewhere below 10 %.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from proba.geometry.camera import UNIT_SIDE_PX
from proba.matches import ImageInfo
from proba.pipeline import Piece, Separation, SolveResult
from proba.reconstruction import NoteKind
from proba.refine.options import ShutterOptions
from proba.report.facts import Cut, ImageFacts, PairFacts, cuts, explained_share, trusted_part
from proba.scenes import SceneOptions

Level = Literal["good", "check", "distrust"]
LEVELS: tuple[Level, ...] = ("good", "check", "distrust")
CONTRADICTING = (0.25, 0.4)
"""Share of contradicted matches between a group of images and the rest: check above the first, distrust above the
second."""
EXPLAINED = (0.85, 0.7)
"""The same for the share of all explainable matches that the result explains: below."""
LEFT_OUT = 0.5
"""A result with fewer of the images than this is not the scene that was asked for."""
WEAK_LINK = 150
"""Matches between a group of images and the rest below which one wrong pair can turn the group."""
MOST_WEAK_LINKS = 3
SHARED = SceneOptions().most_shared
"""Share of the points that two groups of images should both see below which they may be two places; where that is
certain they were taken apart."""
MIN_OBSERVATIONS = 100
MIN_PARALLAX_DEG = 1.0
MAX_RESIDUAL_PX = 1.5
"""Median residual of an image of 1024 px."""
MAX_ROTATION_STD_DEG = 0.5
MAX_EXIF_RATIO = 1.2
"""EXIF rounds focal lengths, and crops and stabilisers change them; a flat scene with a rolling shutter (photos of a
beach from a drone) was off by 1.38, with COLMAP by 1.45."""
ROUGH = 0.2
"""Share of images without a refined pose above which the rest cannot be trusted either."""

TOPICS: dict[NoteKind, str] = {
    "flat scene": "Flat scene",
    "focal not observed": "Focal length not observed",
    "focal not known": "Focal length not known",
    "known poses": "Known poses",
    "rough poses": "Rough poses",
    "rig": "Cameras on a rig",
    "other": "Other remarks",
}
"""Troubleshooting sections of the refinement's notes."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One fact and what it means."""

    topic: str
    """Section of docs/troubleshooting.md."""
    fact: str
    """What was measured."""
    wanted: str
    """What it should be."""
    level: Level = "good"
    advice: str = ""
    """What to do, where the fact is not as wanted."""
    images: tuple[str, ...] = ()
    """The images it is about."""
    reason: str = ""
    """The fact in a few words without the names, where it is about images."""


def worst_level(checks: Sequence[Check]) -> Level:
    return max((check.level for check in checks), key=LEVELS.index, default="good")


def run_checks(
    result: SolveResult, images: list[ImageInfo], image_facts: list[list[ImageFacts]], edges: list[list[PairFacts]]
) -> list[Check]:
    """All checks; `image_facts` and `edges` are those of each piece."""
    checks = _coverage(result, len(images))
    told_px = {image.name: image.focal_px for image in images if image.focal_px}
    for index, piece in enumerate(result.pieces):
        where = f" in piece {index}" if len(result.pieces) > 1 else ""
        checks += [
            _agreement(edges[index], where),
            _contradictions(piece, edges[index], where),
            *_weak_links(piece, edges[index], where),
            *_look_alikes(piece, where),
            _observations(image_facts[index], where),
            _residuals(image_facts[index], where),
            _parallax(image_facts[index], where),
            _rotations(piece, where),
            _focals(piece, told_px, where),
            *_told_focals(piece, told_px, where),
            *_shutter(piece, where),
            *_notes(piece),
        ]
    return checks


def matching_checks(matching: dict | None) -> list[Check]:
    """What the matching had to decide; nothing where it had to decide nothing."""
    if not (matching or {}).get("subject_alone"):
        return []
    return [
        Check(
            topic="Background left out",
            fact="most pairs showed a background that did not move at all, so only what moves in front was matched",
            wanted="one motion",
            level="check",
            advice="This is right for an object on a turntable in front of a camera that stands still; masks of the "
            "object are safer (--masks). To solve the background instead, pass --match.background.no-enabled",
        )
    ]


def _coverage(result: SolveResult, n_images: int) -> list[Check]:
    posed = sum(len(piece.reconstruction) for piece in result.pieces)
    fact, wanted = f"{posed} of {n_images} images posed", "all"
    left_out = Check(topic="Images left out", fact=fact, wanted=wanted)
    if posed < n_images:
        named = f" (without matches: {name_list(result.unmatched)})" if result.unmatched else ""
        left_out = Check(
            topic="Images left out",
            fact=fact + named,
            wanted=wanted,
            level="distrust" if posed < LEFT_OUT * n_images else "check",
            advice="Add photos that overlap with the missing ones, or try another matcher",
            images=tuple(result.unmatched),
            reason="no matches with any other photo",
        )
    pieces = Check(topic="Several pieces", fact="one connected reconstruction", wanted="one")
    if len(result.pieces) > 1:
        sizes = ", ".join(str(len(piece.reconstruction)) for piece in result.pieces)
        apart = "with no trusted matches" if result.separations else "without matches"
        pieces = Check(
            topic="Several pieces",
            fact=f"{len(result.pieces)} pieces {apart} between them ({sizes} images)",
            wanted="one",
            level="check",
            advice="Each has its own frame and scale; add photos that connect them",
        )
    failed = [
        Check(
            topic="Failed pieces", fact=text, wanted="none", level="check", advice="The other pieces are not affected"
        )
        for text in result.failed
    ]
    stopped = Check(
        topic="Interrupted",
        fact="the run was interrupted; this is the model at that moment",
        wanted="a finished run",
        level="check",
        advice="Run it again with --resume to go on",
    )
    scenes = [_separation(separation) for separation in result.separations]
    return [left_out, pieces, *scenes, *failed, *([stopped] if result.interrupted else [])]


def _separation(separation: Separation) -> Check:
    """Photos that matches join and that were taken apart all the same."""
    one, other = sorted(separation.groups, key=len)
    share = separation.seen / max(separation.expected, 1e-9)
    return Check(
        topic="Several scenes",
        fact=f"{name_list(one)} and {len(other)} other images have matches, but share only {100 * share:.0f} % of the "
        "points that both should see, so each group was solved by itself",
        wanted="one scene",
        level="check",
        advice="They show places that look alike, or one place that changed in between. If it is one place, add photos "
        "that lead from one group to the other, or pass --scenes.no-enabled",
    )


def _look_alikes(piece: Piece, where: str) -> list[Check]:
    """Whether photos that the result places side by side see the same things."""
    cut = piece.weakest
    if cut is None:
        return []
    share, wanted = f"{100 * cut.ratio:.0f} %", f"above {100 * SHARED:.0f} %"
    names = list(piece.lone)
    if cut.ratio < SHARED:
        names += np.array(piece.reconstruction.image_names)[cut.smaller].tolist()
    if not names:
        fact = f"every group of images shares at least {share} of the points that it and the others should see{where}"
        return [Check(topic="Look-alikes", fact=fact, wanted=wanted)]
    few = f"less than {100 * SHARED:.0f} % of the points that they and the other images should both see"
    names = list(dict.fromkeys(names))
    return [
        Check(
            topic="Look-alikes",
            fact=f"{name_list(names)} share {few}{where}",
            wanted=wanted,
            level="check",
            advice="They may show another place that looks alike, or the place changed in between. Leave them out, or "
            "add photos that lead from them to the others",
            images=tuple(names),
            reason=f"{few.partition(' of ')[0]} of the points shared that they and others should both see",
        )
    ]


def _agreement(edges: list[PairFacts], where: str) -> Check:
    share = explained_share(edges)
    return Check(
        topic="Matches disagree",
        fact=f"{100 * share:.1f} % of the matches that two views can explain agree with the result{where}",
        wanted=f"above {100 * EXPLAINED[0]:.0f} %",
        level=_below(share, EXPLAINED),
        advice="Look at the worst pairs. Leave out blurred photos and photos of something else, or try another matcher "
        "or seed",
    )


def _contradictions(piece: Piece, edges: list[PairFacts], where: str) -> Check:
    """Images that the result places against what their matches say, alone or as a group."""
    found = sorted(cuts(piece.reconstruction.image_names, edges), key=lambda cut: -cut.contradicting)
    wanted = f"below {100 * CONTRADICTING[0]:.0f} %"
    worst = found[0].contradicting if found else 0.0
    listed: list[str] = []
    for cut in itertools.takewhile(lambda cut: cut.contradicting >= CONTRADICTING[0], found):
        # A larger group around images that are listed already adds nothing: they alone make it contradict.
        group = cut.group
        if not set(group) & set(listed):
            listed += group
    if not listed:
        fact = f"no image or group contradicts the rest in more than {100 * worst:.0f} % of its matches{where}"
        return Check(topic="Contradicting images", fact=fact, wanted=wanted)
    most = f"up to {100 * worst:.0f} % of the matches"
    part, total = len(trusted_part(piece.reconstruction.image_names, edges)), len(piece.reconstruction)
    return Check(
        topic="Contradicting images",
        fact=f"{most} of {name_list(listed)} with others contradict the result{where}",
        wanted=wanted,
        level="distrust" if worst >= CONTRADICTING[1] else "check",
        advice="The poses are wrong, or a repeated structure gives false matches. Look at these pairs. Add photos in "
        "between, try another seed or matcher, or leave these images out. "
        + (
            f"The largest part without contradictions has {part} of {total} images, listed in report.json under trusted"
            if part
            else "No part of it is without contradictions"
        ),
        images=tuple(listed),
        reason=f"{most} with others contradict the result",
    )


def _weak_links(piece: Piece, edges: list[PairFacts], where: str) -> list[Check]:
    """Cuts that few matches or a single pair hold, at most three and not two that are nearly the same."""
    names = piece.reconstruction.image_names
    wanted = f"{WEAK_LINK} matches in two pairs"
    found = sorted(cuts(names, edges), key=lambda cut: cut.agreeing)
    few_pairs = 1 if len(names) > 3 else 0  # two or three images have no more
    weak: list[Cut] = []
    for cut in found:
        if (cut.agreeing < WEAK_LINK or cut.pairs <= few_pairs) and not any(_alike(cut, other) for other in weak):
            weak.append(cut)
        if len(weak) == MOST_WEAK_LINKS:
            break
    if not weak:
        fewest = f"at least {found[0].agreeing} agreeing matches hold" if found else "no matches hold"
        return [Check(topic="Weak link", fact=f"{fewest} every image and group{where}", wanted=wanted)]
    return [
        Check(
            topic="Weak link",
            fact=f"only {_link(cut)} hold {name_list(cut.group)} to the other {cut.others} images{where}",
            wanted=wanted,
            level="check",
            advice="The place and scale of that part are uncertain; add photos that see both sides",
            images=tuple(cut.group),
            reason=f"held to the other images by only {_link(cut)}",
        )
        for cut in weak
    ]


def _link(cut: Cut) -> str:
    return f"{cut.agreeing} agreeing matches in {cut.pairs} {plural('pair', cut.pairs)}"


def _alike(one: Cut, other: Cut) -> bool:
    shared = len(set(one.group) & set(other.group))
    return 2 * shared > max(len(one.group), len(other.group))


def _of_images(
    *, topic: str, bad: list[str], fact: str, good: str, reason: str, wanted: str, advice: str, level: Level = "check"
) -> Check:
    """A check that some images may fail: `fact` if they do, `good` if none does."""
    return Check(
        topic=topic,
        fact=fact if bad else good,
        wanted=wanted,
        level=level if bad else "good",
        advice=advice,
        images=tuple(bad),
        reason=reason,
    )


def _observations(facts: list[ImageFacts], where: str) -> Check:
    few = [image.name for image in facts if image.observations < MIN_OBSERVATIONS]
    least = min(image.observations for image in facts)
    return _of_images(
        topic="Few observations",
        bad=few,
        fact=f"{name_list(few)} {'see' if len(few) > 1 else 'sees'} fewer than {MIN_OBSERVATIONS} points{where}",
        good=f"every image sees at least {least} points{where}",
        reason=f"fewer than {MIN_OBSERVATIONS} points seen",
        wanted=f"at least {MIN_OBSERVATIONS}",
        advice="Few points hold their poses: add photos that overlap more with them, or use a denser matcher",
    )


def _residuals(facts: list[ImageFacts], where: str) -> Check:
    known = [(image, image.median_px) for image in facts if image.median_px is not None]
    bad = [image.name for image, median in known if median > MAX_RESIDUAL_PX * image.side_px / UNIT_SIDE_PX]
    worst = max((median for _, median in known), default=float("nan"))
    return _of_images(
        topic="Large residuals",
        bad=bad,
        fact=f"the median residual of {name_list(bad)} is up to {worst:.1f} px{where}",
        good=f"median residuals of all images are at most {worst:.2f} px{where}",
        reason=f"median residual up to {worst:.1f} px",
        wanted=f"below {MAX_RESIDUAL_PX} px in an image of {UNIT_SIDE_PX:.0f} px",
        advice="The matches are inexact, or the camera model cannot describe the lens or the shutter",
    )


def _parallax(facts: list[ImageFacts], where: str) -> Check:
    known = [(image.name, image.parallax_deg) for image in facts if image.parallax_deg is not None]
    flat = [name for name, angle in known if angle < MIN_PARALLAX_DEG]
    least = min((angle for _, angle in known), default=0.0)
    return _of_images(
        topic="Pure rotation",
        bad=flat,
        fact=f"{name_list(flat)} {'see' if len(flat) > 1 else 'sees'} the scene with hardly any parallax{where} "
        f"({least:.1f} degrees)",
        good=f"every image sees its points with a median parallax of at least {least:.1f} degrees{where}",
        reason="hardly any parallax",
        wanted=f"at least {MIN_PARALLAX_DEG:.0f} degree",
        advice="A camera that only turns cannot tell depth: move sideways between photos",
        level="distrust" if len(flat) > len(facts) / 2 else "check",
    )


def _rotations(piece: Piece, where: str) -> Check:
    rec = piece.reconstruction
    std_deg = np.degrees(rec.pose_std[:, :3].max(axis=1))  # [N]
    unsure = [name for name, std in zip(rec.image_names, std_deg, strict=True) if std > MAX_ROTATION_STD_DEG]
    worst = float(np.nanmax(std_deg)) if np.isfinite(std_deg).any() else float("nan")
    most = f"{min(worst, 180):.1f} degrees"
    return _of_images(
        topic="Uncertain poses",
        bad=unsure,
        fact=f"the rotation of {name_list(unsure)} has a standard deviation of up to {most}{where}",
        good=f"rotations have a standard deviation of at most {worst:.2g} degrees{where}"
        if np.isfinite(worst)
        else f"the standard deviations of rotations are unknown{where}",
        reason=f"rotation uncertain by up to {most}",
        wanted=f"below {MAX_ROTATION_STD_DEG} degrees",
        advice="There are too few matches, or they are badly spread: add photos that overlap with these",
    )


def _focals(piece: Piece, told_px: dict[str, float], where: str) -> Check:
    rec = piece.reconstruction
    told = any(name in told_px for name in rec.image_names)
    std = np.array([camera.focal_std_px / camera.focal_px[0] for camera in rec.cameras])  # [C]
    worst = float(np.nanmax(std)) if np.isfinite(std).any() else float("nan")
    lone = len(rec.cameras) > 1 and len(rec.cameras) > len(rec) / 2
    known = f", known to {100 * worst:.2f} %" if np.isfinite(worst) else ", standard deviation unknown"
    focals = f"{len(rec.cameras)} focal {plural('length', len(rec.cameras))} for {len(rec)} images{known}"
    return Check(
        topic="A focal length for every image",
        fact=f"{len(rec)} images have {len(rec.cameras)} different cameras (sizes or EXIF differ){where}"
        if lone
        else focals + where,
        wanted="several images for each camera",
        level="check" if lone else "good",
        advice="Each focal length rests on few images. If one camera took them all, pass --share all"
        + (". EXIF or the matches file tells focal lengths: pass --focal init" if told else ""),
    )


def _told_focals(piece: Piece, told_px: dict[str, float], where: str) -> list[Check]:
    """Focal lengths against those known beforehand (EXIF, or a matches file): the only fact from outside the photos."""
    rec = piece.reconstruction
    known = [name for name in rec.image_names if name in told_px]
    if not known:
        return []
    found_px = {name: float(rec.camera(name).focal_px[0]) for name in known}
    off = {name: abs(math.log(found_px[name] / told_px[name])) for name in known}
    worst, bad = max(known, key=off.__getitem__), [name for name in known if off[name] > math.log(MAX_EXIF_RATIO)]
    within = f"within {100 * math.expm1(off[worst]):.0f} % of"
    example = f" ({worst}: found {found_px[worst]:.0f} px, told {told_px[worst]:.0f} px)"
    return [
        Check(
            topic="Focal length against EXIF",
            fact=f"focal lengths are {'not' if bad else within} what EXIF or the matches file tells"
            f"{example if bad else ''}{where}",
            wanted=f"within {100 * (MAX_EXIF_RATIO - 1):.0f} %",
            level="check" if bad else "good",
            advice="If nobody cropped the photos, trust EXIF: pass --focal fixed",
            images=tuple(bad),
            reason="focal length far from what EXIF or the matches file tells",
        )
    ]


def _shutter(piece: Piece, where: str) -> list[Check]:
    """Whether rows of the photos were read one after the other while the camera moved."""
    shutter, bound = piece.shutter, ShutterOptions().bend_px
    if shutter is None:
        return []
    wanted = f"points moved by less than {bound:.0f} px"
    if not shutter.found:
        fact = f"rows of the photos show no motion of their own{where}"
        return [Check(topic="Rolling shutter", fact=fact, wanted=wanted)]
    time = f"reading one takes {100 * abs(shutter.readout):.1f} % of the time between photos, which"
    moved = f"{time if shutter.ordered else 'the motion meanwhile'} moves points by {shutter.bend_px:.1f} px"
    moved += "; poses are those of the middle rows" if shutter.modelled else ""
    return [
        Check(
            topic="Rolling shutter",
            fact=f"photos were read row by row: {moved}{where}",
            wanted=wanted,
            level="check" if shutter.bend_px > bound and not shutter.modelled else "good",
            advice="Poses are bent by about as much. Move slower, stop for each photo, or film with more light and a "
            "shorter read-out (fewer rows, a higher frame rate)",
        )
    ]


def _notes(piece: Piece) -> list[Check]:
    """What the refinement itself had to say."""
    rough = ROUGH * len(piece.reconstruction)
    return [
        Check(
            topic=TOPICS[note.kind],
            fact=note.text,
            wanted="no such remark",
            level="distrust" if note.kind == "rough poses" and len(note.images) > rough else "check",
            advice=note.advice[:1].upper() + note.advice[1:],
            images=note.images,
            reason="rough pose, its matches do not agree with the other images" if note.kind == "rough poses" else "",
        )
        for note in piece.reconstruction.notes
    ]


def _below(value: float, bounds: tuple[float, float]) -> Level:
    return "good" if value >= bounds[0] else "check" if value >= bounds[1] else "distrust"


def name_list(names: Sequence[str], most: int = 4) -> str:
    """A few names for a sentence."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
