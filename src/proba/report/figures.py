"""The figures of report.html as inline SVG. Every text from outside is escaped here."""

from __future__ import annotations

import html
import itertools
from collections.abc import Collection

import numpy as np

from proba.reconstruction import Reconstruction
from proba.report.facts import PairFacts
from proba.report.pictures import PairPicture, Thumbnail

COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f", "#92400e")
CAMERA, SUSPECT = "#2563eb", "#dc2626"
GOOD, BAD = "#16a34a", "#dc2626"
WIDTH, HEIGHT = 480, 340
MAX_POINTS = 4000
MAX_LABELS = 40
"""More cameras than this are not numbered, and more images than this have no tooltips in the matrix."""


def svg(content: str, width: float = WIDTH, height: float = HEIGHT, label: str = "", *, paper: bool = False) -> str:
    """A figure that shrinks with the page; with `paper`, on a light ground by night too."""
    name = f' role="img" aria-label="{html.escape(label)}"' if label else ""
    name += ' class="paper"' if paper else ""
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}"{name}>{content}</svg>'


def text(x: float, y: float, words: object, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{html.escape(str(words))}</text>'


def view_axes(reconstruction: Reconstruction, *, z_up: bool = False) -> np.ndarray:
    """Rows [3, 3] right, down and forward of a level observer: down is the cameras' mean, forward the first one's."""
    rotation = reconstruction.cam_from_world[:, :3, :3]  # [N, 3, 3], rows are the camera's axes in the world
    down = np.array([0.0, 0.0, -1.0]) if z_up else rotation[:, 1].mean(axis=0)
    if np.linalg.norm(down) < 0.1:  # cameras on all sides, no common upright
        down = rotation[0, 1]
    down = down / np.linalg.norm(down)
    forward = rotation[0, 2] - (rotation[0, 2] @ down) * down
    if np.linalg.norm(forward) < 1e-3:  # the first camera looks straight down
        forward = rotation[0, 1] - (rotation[0, 1] @ down) * down
    forward /= np.linalg.norm(forward)
    return np.stack([np.cross(down, forward), down, forward])


def scene_view(
    reconstruction: Reconstruction, suspects: Collection[str], *, from_above: bool, z_up: bool = False
) -> str:
    """Points and cameras from above or from the side, orthographic; `suspects` are drawn red."""
    right, down, forward = view_axes(reconstruction, z_up=z_up)
    plane = np.stack([right, -forward] if from_above else [forward, down])  # [2, 3], page x and page y
    step = max(1, len(reconstruction.points.xyz) // MAX_POINTS)
    points = reconstruction.points.xyz[::step] @ plane.T  # [P, 2]
    centres = reconstruction.centres @ plane.T  # [N, 2]
    low, high = centres.min(axis=0), centres.max(axis=0)
    if len(points):
        low = np.minimum(low, np.percentile(points, 3, axis=0))
        high = np.maximum(high, np.percentile(points, 97, axis=0))
    scale = 0.88 * float((np.array([WIDTH, HEIGHT]) / np.maximum(high - low, 1e-9)).min())

    def to_page(xy: np.ndarray) -> np.ndarray:
        return (xy - (low + high) / 2) * scale + [WIDTH / 2, HEIGHT / 2]

    content = _dots(to_page(points), reconstruction.points.rgb[::step])
    numbered = len(reconstruction) <= MAX_LABELS
    for n, name in enumerate(reconstruction.image_names):
        rotation, camera = reconstruction.cam_from_world[n, :3, :3], reconstruction.camera(n)
        across = camera.width / 2 / camera.focal_px[0]
        corners = np.array([[-across, 0, 1], [across, 0, 1]]) @ rotation @ plane.T  # [2, 2]
        apex = to_page(centres[[n]])[0]
        far = apex + corners * (16 / max(1.0, float(np.linalg.norm(corners, axis=1).max())))
        colour = SUSPECT if name in suspects else CAMERA
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in [apex, *far])
        content += (
            f'<polygon points="{shape}" fill="{colour}" fill-opacity=".25" stroke="{colour}" stroke-linejoin="round">'
            f"<title>{n}: {html.escape(name)}</title></polygon>"
            f'<circle cx="{apex[0]:.1f}" cy="{apex[1]:.1f}" r="2" fill="{colour}"/>'
        )
        if numbered:
            content += text(apex[0] + 4, apex[1] - 3, n, size=10)
    label = "cameras and points " + ("from above" if from_above else "from the side")
    return svg(content + _scale_bar(scale), label=label, paper=True)


def _scale_bar(px_per_unit: float) -> str:
    """A line of a round length in scene units, at most a quarter of the figure wide."""
    longest = WIDTH / 4 / px_per_unit
    power = 10.0 ** np.floor(np.log10(longest))
    length = power * max(step for step in (1, 2, 5) if step * power <= longest)
    x, y = WIDTH - 10 - length * px_per_unit, HEIGHT - 10
    bar = f'<path d="M{x:.1f} {y - 3}v3H{WIDTH - 10}v-3" stroke="#475569" fill="none"/>'
    return bar + text((x + WIDTH - 10) / 2, y - 5, f"{length:g}", anchor="middle")


def _dots(page: np.ndarray, rgb: np.ndarray) -> str:
    inside = ((page > 0) & (page < [WIDTH, HEIGHT])).all(axis=1)
    # One path for each of a few colours takes a tenth of one circle for each point.
    quantised = (rgb[inside] // 43 * 43 + 21).clip(0, 210)
    paths: dict[str, list[str]] = {}
    for (x, y), (r, g, b) in zip(page[inside], quantised.tolist(), strict=True):
        paths.setdefault(f"#{r:02x}{g:02x}{b:02x}", []).append(f"M{x:.1f} {y:.1f}h.01")
    return "".join(
        f'<path d="{"".join(moves)}" stroke="{colour}" stroke-width="1.6" stroke-linecap="round" stroke-opacity=".6"/>'
        for colour, moves in paths.items()
    )


def loss_curves(hypotheses: list[dict]) -> str:
    """Loss of every world by iteration; the chosen one is thick."""
    curves = [(h, np.array(h["curve"], np.float64)) for h in hypotheses if len(h["curve"]) > 1]
    if not curves:
        return ""
    losses = np.concatenate([curve[len(curve) // 20 :, 1] for _, curve in curves])
    low, high = np.nanmin(losses), np.nanpercentile(losses, 98)
    last = max(curve[-1, 0] for _, curve in curves)
    left, bottom, right = 36, HEIGHT - 24, WIDTH - 8
    content = f'<path d="M{left} 10V{bottom}H{right}" class="axis" fill="none"/>'
    for value in np.linspace(low, high, 4):
        y = bottom - (value - low) / max(high - low, 1e-9) * (bottom - 16)
        content += text(left - 4, y + 4, f"{value:.1f}", anchor="end")
        content += f'<path d="M{left} {y:.1f}H{right}" class="grid"/>'
    content += text(right, HEIGHT - 8, f"iteration {int(last)}", anchor="end") + text(left, HEIGHT - 8, 0)
    for k, (hypothesis, curve) in sorted(enumerate(curves), key=lambda item: item[1][0]["chosen"]):
        x = left + curve[:, 0] / last * (right - left)
        y = bottom - (np.clip(curve[:, 1], low, high) - low) / max(high - low, 1e-9) * (bottom - 16)
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        chosen = hypothesis["chosen"]
        stroke = 'class="ink" stroke-width="2.5"' if chosen else f'stroke="{COLOURS[k % len(COLOURS)]}"'
        name = html.escape(hypothesis["name"])
        content += f'<polyline points="{path}" fill="none" {stroke}><title>{name}</title></polyline>'
        if not chosen and hypothesis["pruned_at"] is not None:
            content += f'<circle cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="2.5" fill="{COLOURS[k % len(COLOURS)]}"/>'
    return svg(content, label="loss of every hypothesis by iteration")


def graph_matrix(names: list[str], edges: list[PairFacts]) -> str:
    """Images against images: above the diagonal how much of a pair is explained, below how many matches it has."""
    index = {name: k for k, name in enumerate(names)}
    side, margin = 360.0, 22.0
    cell = (side - margin) / max(1, len(names))
    most = max((edge.matches for edge in edges), default=1)
    tips = len(names) <= MAX_LABELS
    content = f'<rect x="{margin}" y="{margin}" width="{side - margin}" height="{side - margin}" class="empty"/>'
    for edge in edges:
        a, b = sorted((index[edge.i], index[edge.j]))
        part = edge.explained_part
        shade = np.sqrt(edge.matches / most)
        tip = (
            f"{edge.i} - {edge.j}: {edge.matches} matches, {100 * part:.0f} % of the explainable ones "
            f"explained, weight {edge.weight:.2f}"
        )
        for column, row, colour in (
            (b, a, f"hsl({125 * part**2:.0f},65%,45%)"),
            (a, b, f"hsl(215,70%,{92 - 62 * shade:.0f}%)"),
        ):
            content += (
                f'<rect x="{margin + column * cell:.1f}" y="{margin + row * cell:.1f}" width="{cell:.2f}" '
                f'height="{cell:.2f}" fill="{colour}">'
                + (f"<title>{html.escape(tip)}</title>" if tips else "")
                + "</rect>"
            )
    for k in _labelled(len(names)):
        middle = margin + (k + 0.5) * cell
        content += text(margin - 4, middle + 3, k, anchor="end", size=9) + text(middle, margin - 6, k, "middle", 9)
    return svg(content, side, side, "view graph as a matrix")


def _labelled(count: int) -> range:
    """Image numbers that an axis has room for: as few as they are long, and round where not all of them."""
    room = 48 // len(str(count))
    step = next(step for power in itertools.count() for one in (1, 2, 5) if count <= room * (step := one * 10**power))
    return range(0, count, step)


def residual_bars(images: list[dict]) -> str:
    """Median residual of every image; observations as a thin line of dots above."""
    values = np.array([np.nan if i["median_px"] is None else i["median_px"] for i in images])  # [N]
    counts = np.array([i["observations"] for i in images], np.float64)  # [N]
    top = max(float(np.nanmax(values)) if np.isfinite(values).any() else 1.0, 0.1)
    left, right, bottom, high = 40.0, WIDTH - 6.0, HEIGHT - 30.0, 14.0
    step = (right - left) / max(1, len(images))
    content, labelled = "", _labelled(len(images))
    for value in np.linspace(0, top, 4):
        y = bottom - value / top * (bottom - high)
        content += text(left - 4, y + 4, f"{value:.2f}", anchor="end", size=10)
        content += f'<path d="M{left} {y:.1f}H{right}" class="grid"/>'
    for k, (image, value) in enumerate(zip(images, values, strict=True)):
        x, size = left + (k + 0.1) * step, 0.8 * step
        if np.isfinite(value):
            y = bottom - value / top * (bottom - high)
            tip = html.escape(f"{k}: {image['name']}, {value:.2f} px, {image['observations']} observations")
            content += (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{size:.1f}" height="{max(bottom - y, 0.5):.1f}" '
                f'class="bar"><title>{tip}</title></rect>'
            )
        y = bottom - counts[k] / max(counts.max(), 1) * (bottom - high)
        content += f'<path d="M{x:.1f} {y:.1f}h{size:.1f}" stroke="#f59e0b" stroke-width="2"/>'
        if k in labelled:
            content += text(x + size / 2, bottom + 14, k, anchor="middle", size=10)
    return svg(content, label="median residual of every image")


def pair_picture(picture: PairPicture) -> str:
    """Two photos side by side with their matches: green agrees with the result, red does not."""
    gap = 8
    offset = picture.left.width + gap
    content = _photo(picture.left, 0) + _photo(picture.right, offset)
    for agrees in (True, False):
        colour = GOOD if agrees else BAD
        moves = "".join(
            f"M{a:.0f} {b:.0f}L{c + offset:.0f} {d:.0f}" for a, b, c, d in picture.lines[picture.agrees == agrees]
        )
        content += f'<path d="{moves}" stroke="{colour}" stroke-width="1" stroke-opacity=".75" fill="none"/>'
    height = max(picture.left.height, picture.right.height)
    return svg(content, offset + picture.right.width, height, f"matches of {picture.edge.i} and {picture.edge.j}")


def _photo(photo: Thumbnail, x: int) -> str:
    box = f'x="{x}" y="0" width="{photo.width}" height="{photo.height}"'
    if photo.jpeg_base64 is None:
        return f'<rect {box} class="empty"/>'
    return f'<image {box} href="data:image/jpeg;base64,{photo.jpeg_base64}"/>'
