"""What became of every hypothesis: losses, errors, mirror states and residuals of all worlds of one set, and a picture.

For those who work on the solver. No world is pruned, so that the ones that would have gone can be seen too.
"""

from __future__ import annotations

import json as json_module
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from proba.bench.match_errors import epipolar_errors_px
from proba.bench.photo_sets import PhotoSet
from proba.bench.real import RealOptions, matches_of
from proba.errors import GeometryError
from proba.evaluation import accuracy, area_under_recall, evaluate, match_names
from proba.evaluation.poses import relative_errors_deg, relative_motions
from proba.geometry.camera import fov_from_focal
from proba.geometry.sim3 import umeyama_robust
from proba.graph import build_view_graphs
from proba.io.atomic import atomic_file, atomic_write_text
from proba.io.ground_truth import GroundTruth
from proba.matches import Matches
from proba.pipeline import SolveOptions
from proba.refine import refine
from proba.solution import Solution
from proba.solver import Hypotheses, SolverOptions, solve_graph

State = Literal["right", "mirrored", "wrong"]
MIRROR = np.diag([-1.0, -1.0, 1.0, 1.0])
"""Relief turned inside out is this on either side of every relative motion (paper, mirror symmetry)."""
CLOSE_DEG = 20.0
"""A motion is right, or mirrored, within this angle."""
COLOURS: dict[State, str] = {"right": "#15803d", "mirrored": "#dc2626", "wrong": "#a3a3a3"}


@dataclass(frozen=True, kw_only=True)
class World:
    """One hypothesis at the end of the first-order solve, and what the refinement makes of it."""

    name: str
    loss: float
    epipolar_share: float
    """Share of the matches within 3 px of the world's epipolar geometry and in front of both cameras."""
    fov_deg: float
    cold: dict[str, float]
    """rra@5, rta@5 and auc@5 before the refinement, of the images of this piece."""
    refined: dict[str, float | int | None]
    """The same and more (`proba eval`) after it; empty if it fails."""
    explained_share: float | None
    """How much of the explainable matches it explains after the first adjustment, before images are placed anew."""
    edges: list[dict]
    """`pair`, `weight`, `residual_px` (median distance to the epipolar line), `state` of every edge."""
    images: list[dict]
    """`name`, `error_deg` (median over the pairs with others), `mirrored` (share of its edges) of every image."""
    centres: np.ndarray  # [N, 3] in the frame of the truth
    errors_deg: np.ndarray  # [N, N] the larger of rotation and translation error

    def as_json(self) -> dict:
        kept = {key: value for key, value in vars(self).items() if key not in ("centres", "errors_deg")}
        return {**kept, "centres": self.centres.round(5).tolist()}


def main(photos: PhotoSet, out: Path, hypotheses: Hypotheses, seed: int, options: RealOptions) -> list[World]:
    """Solve one set, judge every world, print a table, and write diagnosis.json and diagnosis.png."""
    truth = photos.truth()
    matches, _ = matches_of(photos, truth, options)
    worlds, true_centres = judge_worlds(matches, truth, hypotheses, seed)
    print(table(worlds))
    out.mkdir(parents=True, exist_ok=True)
    atomic_write_text(out / "diagnosis.json", json_module.dumps([world.as_json() for world in worlds], indent=1))
    draw(worlds, true_centres, out / "diagnosis.png")
    print(f"wrote {out / 'diagnosis.json'} and {out / 'diagnosis.png'}")
    return worlds


def judge_worlds(
    matches: Matches, truth: GroundTruth, hypotheses: Hypotheses, seed: int
) -> tuple[list[World], np.ndarray]:  # [N, 3] true centres
    """All worlds of the largest piece of a set, best supported first, and where its cameras really are."""
    options = SolveOptions(seed=seed, solver=SolverOptions(hypotheses=hypotheses, keep=()))
    graph = build_view_graphs(matches, options.graph)[0][0]
    place = match_names([matches.images[k].name for k in graph.images], truth.names)
    if None in place:
        raise GeometryError("the ground truth does not know all images of the set; name them alike, or leave them out")
    known = np.array(place, np.int64)  # [N], index in the truth
    solver = solve_graph(matches, graph, options.solver, seed=seed)
    worlds = []
    for solution in solver.solutions():
        try:
            result = refine(matches, [solution], options.refine, seed=seed)
            scores, share = evaluate([result.reconstruction], truth, cloud=False), result.chosen.share
        except GeometryError:
            scores, share = {}, None
        worlds.append(_judge(matches, truth, known, solution, scores, share))
    return worlds, truth.centres[known]


def _judge(
    matches: Matches,
    truth: GroundTruth,
    known: np.ndarray,
    solution: Solution,
    refined: dict[str, float | int | None],
    share: float | None,
) -> World:
    poses, true_poses, edges = solution.cam_from_world, truth.cam_from_world[known], solution.graph.edges
    i, j = np.triu_indices(len(known), 1)  # [P]
    rotation, translation = relative_errors_deg(
        relative_motions(poses, i, j), relative_motions(true_poses, i, j)
    )  # [P]
    worst = np.maximum(rotation, translation)  # [P]
    errors = np.full((len(known), len(known)), np.nan)
    errors[i, j] = errors[j, i] = worst
    world = _as_truth(matches, solution)
    side = np.maximum(world.width, world.height)  # [N]
    states = mirror_states(poses, true_poses, edges)
    mirrored = np.array([state == "mirrored" for state in states])  # [E]
    return World(
        name=solution.name,
        loss=solution.loss,
        epipolar_share=solution.epipolar_share,
        fov_deg=float(fov_from_focal(1.0, np.median(side / solution.focal_px[:, 0]))),
        cold={
            "rra@5": accuracy(rotation, 5),
            "rta@5": accuracy(translation, 5),
            "auc@5": area_under_recall(worst, 5),
        },
        refined=refined,
        explained_share=share,
        edges=[
            {
                "pair": [world.names[a], world.names[b]],
                "weight": float(weight),
                "residual_px": _residual_px(matches, solution, world, a, b),
                "state": state,
            }
            for (a, b), weight, state in zip(edges.tolist(), solution.edge_weight, states, strict=True)
        ],
        images=[
            {
                "name": name,
                "error_deg": float(np.nanmedian(errors[n])),
                "mirrored": float(mirrored[(edges == n).any(axis=1)].mean()),
            }
            for n, name in enumerate(world.names)
        ],
        centres=umeyama_robust(world.centres, truth.centres[known])[0].apply(world.centres),
        errors_deg=errors,
    )


def mirror_states(poses: np.ndarray, true_poses: np.ndarray, edges: np.ndarray) -> list[State]:
    """Whether the relative motion of every edge [E, 2] is the true one, its mirror image, or neither."""
    estimate, true = (relative_motions(p, edges[:, 0], edges[:, 1]) for p in (poses, true_poses))  # [E, 4, 4]
    right, mirrored = (
        np.maximum(*relative_errors_deg(estimate, motion)) for motion in (true, MIRROR @ true @ MIRROR)
    )  # [E] each
    return [
        "wrong" if min(a, b) > CLOSE_DEG else "right" if a <= b else "mirrored"
        for a, b in zip(right, mirrored, strict=True)
    ]


def _as_truth(matches: Matches, solution: Solution) -> GroundTruth:
    """The world in the form that the measures against the truth take."""
    infos = [matches.images[k] for k in solution.graph.images]
    size = np.array([[info.width, info.height] for info in infos])  # [N, 2]
    return GroundTruth(
        names=[info.name for info in infos],
        cam_from_world=solution.cam_from_world,
        intrinsics=np.hstack([solution.focal_px, size / 2]),
        width=size[:, 0],
        height=size[:, 1],
    )


def _residual_px(matches: Matches, solution: Solution, world: GroundTruth, i: int, j: int) -> float | None:
    """Median distance of an edge's matches to the world's epipolar lines; None where it has none."""
    pair = matches.pairs.get((int(solution.graph.images[i]), int(solution.graph.images[j])))
    if pair is None or not len(pair.scores):
        return None
    return float(np.median(epipolar_errors_px(pair, world, i, j)[0]))


def table(worlds: list[World]) -> str:
    """One row a world."""
    lines = [
        "| world | loss | support | FoV | edges right/mirrored/wrong | cold RRA@5/RTA@5 | refined | AUC@5 | explains |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for world in worlds:
        states = [edge["state"] for edge in world.edges]
        counts = "/".join(str(states.count(state)) for state in COLOURS)
        rra, rta, auc = (world.refined.get(key) for key in ("rra@5", "rta@5", "auc@5"))
        refined = "- | -" if auc is None else f"{rra:.0f}/{rta:.0f} | {auc:.1f}"
        explained = "-" if world.explained_share is None else f"{world.explained_share:.3f}"
        lines.append(
            f"| {world.name} | {world.loss:.2f} | {world.epipolar_share:.3f} | {world.fov_deg:.0f} | {counts} "
            f"| {world.cold['rra@5']:.0f}/{world.cold['rta@5']:.0f} | {refined} | {explained} |"
        )
    return "\n".join(lines)


def draw(worlds: list[World], true_centres: np.ndarray, path: Path) -> None:
    """A row for each world: cameras and edges from above by mirror state, errors of all pairs, residual by weight."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import LogNorm

    figure, axes = plt.subplots(len(worlds), 3, figsize=(11, 3.2 * len(worlds)), squeeze=False)
    _, _, axes_of_plane = np.linalg.svd(true_centres - true_centres.mean(axis=0))
    plane = axes_of_plane[:2]  # [2, 3], the plane the cameras spread in
    names = [image["name"] for image in worlds[0].images]
    index = {name: n for n, name in enumerate(names)}
    for world, (above, pairs, edges) in zip(worlds, axes, strict=True):
        xy, true_xy = world.centres @ plane.T, true_centres @ plane.T  # [N, 2]
        for edge in world.edges:
            ends = [index[name] for name in edge["pair"]]
            above.plot(*xy[ends].T, color=COLOURS[edge["state"]], linewidth=0.4 + 2 * edge["weight"], alpha=0.5)
            if edge["residual_px"] is not None:
                edges.semilogx(max(edge["residual_px"], 1e-2), edge["weight"], ".", color=COLOURS[edge["state"]])
        above.plot(*true_xy.T, "o", markerfacecolor="none", color="black", markersize=7, label="truth")
        above.plot(*xy.T, ".", color="#1d4ed8", label="world")
        margin = 0.3 * np.ptp(true_xy, axis=0).max()
        above.set(
            title=f"{world.name}: loss {world.loss:.2f}",
            xlim=(true_xy[:, 0].min() - margin, true_xy[:, 0].max() + margin),
            ylim=(true_xy[:, 1].min() - margin, true_xy[:, 1].max() + margin),
            aspect="equal",
        )
        shown = pairs.imshow(np.nan_to_num(world.errors_deg) + 0.1, norm=LogNorm(0.1, 180), cmap="magma")
        figure.colorbar(shown, ax=pairs, label="degrees")
        pairs.set(title=f"pairs: RRA@5 {world.cold['rra@5']:.0f}, RTA@5 {world.cold['rta@5']:.0f}")
        edges.set(title="edges", xlabel="median residual (px)", ylabel="weight")
    above, _, edges = axes[0]
    above.legend(fontsize=7)
    edges.legend([plt.Line2D([], [], color=c, marker=".", ls="") for c in COLOURS.values()], COLOURS, fontsize=7)
    figure.tight_layout()
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=90)
    plt.close(figure)
