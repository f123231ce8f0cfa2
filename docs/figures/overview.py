"""Draws docs/figures/overview.svg, the figure of docs/method.md: python docs/figures/overview.py [OUT]

Everything is a top view of one small scene: seven cameras on an arc in front of a wall with a bay.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Polygon

INK, SOFT, BLUE, ORANGE, GREEN, RED = "#20262e", "#8a939e", "#2f6fb4", "#e08a1e", "#2f9a62", "#c8463c"
PARENT = {0: 1, 1: 2, 2: 3, 4: 3, 5: 4, 6: 5}
WORDS = [
    ("1  match", "pairwise matches,\nverified, some still wrong;\nno tracks, no intrinsics"),
    ("2  graph", "a tree carries the poses,\nmore edges (dashed) check them,\neach edge has a weight"),
    ("3  solve: cold start", "a pixel is a 3D Gaussian;\nits depth and variance come\nfrom small maps"),
    ("4  solve: worlds", "several hypotheses at once,\neach with its mirror world;\nthe weak ones are dropped"),
    ("5  refine", "tracks, bundle adjustment,\ncamera model by likelihood,\nbad cameras placed again"),
]
AUXILIARY = [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6)]


def scene() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Camera centres [7, 2], their viewing angles [7], wall points [60, 2]; x right, y away from the cameras."""
    angle = np.radians(np.linspace(-42, 42, 7))
    centres = np.stack([2.2 * np.sin(angle), 2.2 - 2.2 * np.cos(angle)], axis=1)
    x = np.linspace(-1.5, 1.5, 60)
    wall = np.stack([x, 2.5 + 0.55 * (np.abs(x) < 0.55) + 0.12 * np.sin(5 * x)], axis=1)
    return centres, angle, wall


def camera(axes, centre, angle, colour, size=0.3, alpha=1.0) -> None:
    """A frustum seen from above: its tip is the centre, and it looks along the angle (0: up; positive: to the left)."""
    ends = [centre + size * np.array([np.sin(-angle + side), np.cos(-angle + side)]) for side in (-0.4, 0.4)]
    axes.add_patch(
        Polygon([centre, *ends], closed=True, facecolor=colour, edgecolor=INK, lw=0.7, alpha=alpha, zorder=4)
    )


def cloud(axes, points, spread, colour, every=3, alpha=0.16) -> None:
    for point in points[::every]:
        axes.add_patch(Circle(point, spread, facecolor=colour, edgecolor="none", alpha=alpha, zorder=2))
    axes.scatter(*points[::every].T, s=3, color=colour, zorder=3, linewidths=0)


def panel(figure, left, title, text, width=0.174):
    axes = figure.add_axes((left, 0.26, width, 0.62))
    axes.set(xlim=(-2.35, 2.35), ylim=(-0.75, 3.65), aspect="equal")
    axes.axis("off")
    middle = left + width / 2
    figure.text(middle, 0.94, title, ha="center", va="center", fontsize=12.5, fontweight="bold", color=INK)
    figure.text(middle, 0.225, text, ha="center", va="top", fontsize=9.6, color=INK, linespacing=1.45)
    axes.add_patch(
        FancyBboxPatch((-2.2, -0.62), 4.4, 4.14, boxstyle="round,pad=0.08", fc="#f6f8fa", ec="#d0d7de", lw=1, zorder=0)
    )
    return axes


def draw_matches(axes) -> None:
    rng = np.random.default_rng(2)
    corners = np.array([[-1.95, 1.5], [0.1, 1.9], [-0.9, -0.35]])
    size = np.array([1.75, 1.2])
    for corner in corners:
        axes.add_patch(FancyBboxPatch(corner, *size, boxstyle="round,pad=0.03", fc="white", ec=INK, lw=1, zorder=1))
    places = rng.uniform(0.15, 0.85, (7, 2)) * size
    for a, b in ((0, 1), (0, 2), (1, 2)):
        for k, place in enumerate(places):
            there = place if k else np.array([0.2, 0.9]) * size  # the first match is a wrong one
            colour = BLUE if k else RED
            axes.plot(*np.stack([corners[a] + place, corners[b] + there]).T, color=colour, lw=0.8, alpha=0.75, zorder=2)
    for corner in corners:
        axes.scatter(*(corner + places).T, s=9, color=INK, zorder=3)


def draw_graph(axes, centres, shades) -> None:
    nodes = centres * [1.2, 2.3] + [0, 1.0]
    for i, j in AUXILIARY:
        arc = FancyArrowPatch(
            nodes[i], nodes[j], arrowstyle="-", connectionstyle="arc3,rad=-0.35", color=SOFT, lw=1.1, ls=(0, (3, 2))
        )
        axes.add_patch(arc)
    for child, parent in PARENT.items():
        axes.plot(*nodes[[child, parent]].T, color=BLUE, lw=2.4, zorder=2)
    for k, node in enumerate(nodes):
        axes.add_patch(Circle(node, 0.2, facecolor=shades[k], edgecolor=INK, lw=1.1, zorder=3))
    axes.text(*(nodes[3] - [0, 0.48]), "root", ha="center", va="center", fontsize=9, color=INK)


def draw_cold_start(axes, shades) -> None:
    row = np.stack([np.linspace(-1.15, 1.15, 7), np.full(7, 2.25)], axis=1)
    cloud(axes, row, 0.78, ORANGE, every=1, alpha=0.10)
    axes.plot(*row.T, color=ORANGE, lw=1.4, zorder=3)
    axes.text(0, 2.42, "depth 1, variance 1", ha="center", fontsize=8.6, color=INK, zorder=5)
    for k, turn in enumerate(np.linspace(-0.05, 0.05, 7)):
        camera(axes, np.array([turn, 0.15]), 0.0, shades[k], size=0.6, alpha=0.4)
    axes.text(0, -0.36, "all cameras at the identity", ha="center", fontsize=8.6, color=INK)


def draw_worlds(axes, centres, angle, wall, shades) -> None:
    """Above the right world, below its mirror world: relief turned inside out, cameras in the opposite order."""
    small = 0.58
    for sign, base, colour in ((1, np.array([0.15, 1.56]), GREEN), (-1, np.array([0.15, -0.5]), RED)):
        relief = np.stack([wall[:, 0], 2.7 + sign * (wall[:, 1] - 2.7)], axis=1)
        cloud(axes, small * relief + base, 0.15, colour, every=4)
        for k in range(7):
            camera(axes, small * centres[k] * [sign, 1] + base, sign * angle[k], shades[k], size=0.24)
    axes.plot([-2.0, 2.0], [1.43, 1.43], color=SOFT, lw=0.8, ls=(0, (2, 2)))
    axes.text(-2.1, 3.35, "world", fontsize=8.6, color=INK, va="center")
    axes.text(-2.1, 1.02, "mirror\nworld", fontsize=8.6, color=INK, va="center")


def draw_result(axes, centres, angle, wall, shades) -> None:
    dense = np.stack([np.interp(np.linspace(0, 59, 240), np.arange(60), wall[:, k]) for k in (0, 1)], axis=1)
    axes.scatter(*(dense + np.random.default_rng(0).normal(0, 0.012, dense.shape)).T, s=2.2, color=INK, linewidths=0)
    for k in range(7):
        camera(axes, centres[k], angle[k], shades[k], size=0.36)
        axes.add_patch(Circle(centres[k], 0.09 + 0.015 * abs(k - 3), facecolor="none", edgecolor=RED, lw=1, zorder=5))
    axes.text(0, -0.38, "a standard deviation on everything", ha="center", fontsize=8.6, color=INK)


def main(out: Path) -> None:
    plt.rcParams.update({"font.family": "DejaVu Sans", "svg.fonttype": "path", "svg.hashsalt": "proba"})
    centres, angle, wall = scene()
    shades = plt.get_cmap("viridis")(np.linspace(0.1, 0.95, 7))  # [7, 4], one colour for each camera everywhere
    figure = plt.figure(figsize=(15, 4.0), facecolor="white")
    lefts = [0.008 + 0.1985 * k for k in range(5)]
    axes = [panel(figure, left, *words) for left, words in zip(lefts, WORDS, strict=True)]
    draw_matches(axes[0])
    draw_graph(axes[1], centres, shades)
    draw_cold_start(axes[2], shades)
    draw_worlds(axes[3], centres, angle, wall, shades)
    draw_result(axes[4], centres, angle, wall, shades)
    for left in lefts[1:]:
        figure.patches.append(
            FancyArrowPatch(
                (left - 0.0225, 0.58),
                (left - 0.0015, 0.58),
                transform=figure.transFigure,
                arrowstyle="simple",
                mutation_scale=17,
                color=SOFT,
            )
        )
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg"))
