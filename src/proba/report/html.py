"""report.html: one file, no scripts, opens offline."""

from __future__ import annotations

import html

import numpy as np

from proba.reconstruction import Reconstruction

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:68rem;padding:0 1rem;color:#1d2430}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse}
td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}th{font-weight:600;border-bottom:1px solid #ccd}
.warn{background:#fff4d6;padding:.6rem 1rem;border-left:4px solid #e0a800;margin:.5rem 0}
.figures{display:flex;flex-wrap:wrap;gap:1rem}
figure{margin:0}figcaption{color:#667;font-size:.85rem}svg{background:#fafbfd;border:1px solid #e3e6ee}
"""
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
WIDTH, HEIGHT = 460, 300


def html_report(report: dict, reconstructions: list[Reconstruction]) -> str:
    """The whole page."""
    best = reconstructions[0]
    body = [
        f"<h1>{report['registered']} of {report['images']} images posed</h1>",
        *(f'<div class="warn">{html.escape(text)}</div>' for text in report["warnings"]),
        "<h2>Cameras and points</h2>",
        '<div class="figures">',
        _figure(_scene_view(best, (0, 2)), "from above (x to the right, z up the page)"),
        _figure(_scene_view(best, (0, 1)), "from the front (x to the right, y down)"),
        "</div>",
        "<h2>Focal lengths</h2>",
        _table(
            ("camera", "model", "images", "focal (px)", "std (px)", "field of view (deg)"),
            [
                (
                    f["camera"],
                    f["model"],
                    len(f["images"]),
                    f"{f['focal_px']:.2f}",
                    _number(f["std_px"]),
                    f"{f['fov_deg']:.2f}",
                )
                for f in report["focal_px"]
            ],
        ),
        "<h2>Hypotheses</h2>",
        _figure(_loss_curves(report["hypotheses"]), "loss by iteration; a curve ends where its world was pruned"),
        _table(
            ("world", "loss", "epipolar support", ""),
            [
                (
                    h["name"],
                    _number(h["loss"]),
                    "pruned" if h["pruned_at"] is not None else f"{100 * h['epipolar_share']:.0f} %",
                    "chosen" if h["chosen"] else "",
                )
                for h in report["hypotheses"]
            ],
        ),
        "<h2>View graph</h2>",
        '<div class="figures">',
        _figure(_weight_matrix(report), "edge weights from red (near 0) to green (near 1)"),
        "</div>",
        "<h2>Weakest edges</h2>",
        _table(
            ("pair", "matches", "weight"),
            [
                (f"{e['i']} - {e['j']}", e["matches"], f"{e['weight']:.2f}")
                for e in sorted(report["edges"], key=lambda e: e["weight"])[:10]
            ],
        ),
        "<h2>Run</h2>",
        _table(
            ("stage", "seconds"),
            [(k, f"{v:.1f}") for k, v in report["seconds"].items()],
        ),
        f"<p>{report['iterations']} iterations, seed {report['seed']}, peak memory {report['peak_rss_mb']:.0f} MB, "
        f"ProBA {report['version']}</p>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ProBA report</title>'
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def _number(value: float | None) -> str:
    return "unknown" if value is None or not np.isfinite(value) else f"{value:.2f}"


def _table(head: tuple[str, ...], rows: list[tuple]) -> str:
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{lines}</table>"


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _svg(content: str) -> str:
    return f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">{content}</svg>'


def _scene_view(rec: Reconstruction, axes: tuple[int, int]) -> str:
    """Orthographic view of points (grey) and cameras (red, with viewing direction) along two world axes."""
    rotation = rec.cam_from_world[:, :3, :3]
    centres = -np.einsum("nji,nj->ni", rotation, rec.cam_from_world[:, :3, 3])  # [N, 3]
    points = rec.points.xyz[:: max(1, len(rec.points.xyz) // 3000)]
    near = np.vstack([centres, points]) if len(points) else centres
    low, high = np.percentile(near[:, axes], [2, 98], axis=0)
    low, high = np.minimum(low, centres[:, axes].min(0)), np.maximum(high, centres[:, axes].max(0))
    scale = 0.9 * min(WIDTH / max(high[0] - low[0], 1e-9), HEIGHT / max(high[1] - low[1], 1e-9))
    flip = -1 if axes == (0, 2) else 1

    def to_page(xyz: np.ndarray) -> np.ndarray:
        offset = (xyz[:, axes] - (low + high) / 2) * scale
        return np.array([WIDTH / 2, HEIGHT / 2]) + offset * np.array([1, flip])

    page = to_page(points) if len(points) else np.zeros((0, 2))
    inside = ((page > 0) & (page < (WIDTH, HEIGHT))).all(1)
    shown, colour = page[inside], rec.points.rgb[:: max(1, len(rec.points.xyz) // 3000)][inside]
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1" fill="rgb({r},{g},{b})"/>'
        for (x, y), (r, g, b) in zip(shown, colour, strict=True)
    )
    tips = to_page(centres + rotation[:, 2] * (18 / scale))
    cameras = "".join(
        f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="#dc2626"/>'
        f'<circle cx="{a[0]:.1f}" cy="{a[1]:.1f}" r="3" fill="#dc2626"><title>{html.escape(name)}</title></circle>'
        for a, b, name in zip(to_page(centres), tips, rec.image_names, strict=True)
    )
    return _svg(dots + cameras)


def _loss_curves(hypotheses: list[dict]) -> str:
    curves = [(h, np.array(h["curve"])) for h in hypotheses if len(h["curve"]) > 1]
    if not curves:
        return _svg("")
    losses = np.concatenate([curve[:, 1] for _, curve in curves])
    low, high = np.nanmin(losses), np.nanpercentile(losses, 98)
    last = max(curve[-1, 0] for _, curve in curves)
    lines = []
    for k, (hypothesis, curve) in enumerate(curves):
        x = 40 + curve[:, 0] / last * (WIDTH - 50)
        y = HEIGHT - 20 - (np.clip(curve[:, 1], low, high) - low) / max(high - low, 1e-9) * (HEIGHT - 40)
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        width = 2.5 if hypothesis["chosen"] else 1
        lines.append(
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[k % len(COLOURS)]}" stroke-width="{width}">'
            f"<title>{html.escape(hypothesis['name'])}</title></polyline>"
        )
    axis = (
        f'<text x="2" y="20" font-size="11">{high:.1f}</text>'
        f'<text x="2" y="{HEIGHT - 20}" font-size="11">{low:.1f}</text>'
        f'<text x="{WIDTH - 40}" y="{HEIGHT - 4}" font-size="11">{int(last)}</text>'
    )
    return _svg(axis + "".join(lines))


def _weight_matrix(report: dict) -> str:
    names = [name for component in report["components"] for name in component["images"]]
    index = {name: k for k, name in enumerate(names)}
    cell = min(HEIGHT, WIDTH) / max(1, len(names))
    squares = []
    for edge in report["edges"]:
        if edge["i"] not in index or edge["j"] not in index:
            continue
        weight = float(np.clip(edge["weight"], 0, 1))
        colour = f"hsl({120 * weight:.0f},70%,45%)"
        title = html.escape(f"{edge['i']} - {edge['j']}: {edge['matches']} matches, weight {weight:.2f}")
        for a, b in ((index[edge["i"]], index[edge["j"]]), (index[edge["j"]], index[edge["i"]])):
            squares.append(
                f'<rect x="{a * cell:.1f}" y="{b * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}" fill="{colour}">'
                f"<title>{title}</title></rect>"
            )
    return _svg("".join(squares))
