"""report.html: one file, no scripts, opens offline. It begins with whether to trust the result and why."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

import numpy as np

from proba.reconstruction import Reconstruction
from proba.report import figures
from proba.report.facts import PairFacts
from proba.report.pictures import PairPicture

STYLE = """
:root{color-scheme:light}*{box-sizing:border-box}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;margin:0 auto;max-width:66rem;padding:1.2rem 1rem 3rem;
color:#0f172a;background:#fff}
h1{font-size:1.35rem;line-height:1.35;margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .5rem}p{margin:.4rem 0}
.verdict{border-radius:.6rem;padding:1rem 1.2rem;border-left:.45rem solid}
.numbers{display:flex;flex-wrap:wrap;gap:.4rem 2rem;margin:1rem 0 0}.numbers div{min-width:6rem}
.numbers b{display:block;font-size:1.2rem}.numbers span,figcaption,.quiet{color:#64748b;font-size:.87rem}
.finding{border-left:.3rem solid;padding:.5rem .9rem;margin:.5rem 0;border-radius:.3rem;overflow-wrap:anywhere}
.good{background:#ecfdf5;border-color:#16a34a}.check{background:#fffbeb;border-color:#f59e0b}
.distrust{background:#fef2f2;border-color:#dc2626}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}
td,th{padding:.25rem .9rem .25rem 0;text-align:left;vertical-align:top}
th{font-weight:600;border-bottom:1px solid #cbd5e1}
td{border-bottom:1px solid #f1f5f9}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1rem}
.wide{grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}
figure{margin:0;min-width:0}
svg{display:block;width:100%;height:auto;background:#fff;border:1px solid #e2e8f0;border-radius:.4rem}
svg text{fill:#475569;font-family:inherit}summary{cursor:pointer;color:#1d4ed8;margin:.4rem 0}
.mark{font-weight:600;white-space:nowrap}.mark.good{color:#15803d;background:none}.mark.check{color:#b45309;background:none}
.mark.distrust{color:#b91c1c;background:none}pre{font-size:.8rem;overflow-x:auto;background:#f8fafc;padding:.8rem}
"""
MARK = {"good": "ok", "check": "check", "distrust": "bad"}
MAX_ROWS = 200
MAX_SCENES = 3
"""More pieces are in the model, but nobody looks at their pictures."""
SCENES = '<section id="scenes">'


def html_report(report: dict, reconstructions: list[Reconstruction], pictures: list[PairPicture]) -> str:
    """The whole page."""
    body = [
        _head(report),
        _findings(report),
        _checks(report),
        _scenes(report, reconstructions),
        _images(report, reconstructions),
        _hypotheses(report),
        _focals(report),
        _pairs(report, pictures),
        _run(report),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>ProBA report</title>'
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def _head(report: dict) -> str:
    points = sum(component["points"] for component in report["components"])
    residuals = [image["median_px"] for image in report["per_image"] if image["median_px"] is not None]
    focal = report["focal_px"][0]
    more = f", {len(report['focal_px'])} cameras" if len(report["focal_px"]) > 1 else ""
    numbers = [
        (f"{report['registered']} of {report['images']}", "images posed"),
        (f"{points:,}", "points"),
        (f"{np.median(residuals):.2f} px" if residuals else "unknown", "median residual"),
        (f"{focal['focal_px']:.1f} ± {_number(focal['std_px'])} px", f"focal length{more}"),
        (f"{report['components'][0]['explained_share']:.1%}", "of explainable matches agree"),
        (f"{sum(report['seconds'].values()):.0f} s", "in all"),
    ]
    cells = "".join(f"<div><b>{_text(value)}</b><span>{_text(name)}</span></div>" for value, name in numbers)
    return (
        f'<div class="verdict {report["verdict"]["level"]}"><h1>{_text(report["verdict"]["text"])}</h1></div>'
        f'<div class="numbers">{cells}</div>'
    )


def _findings(report: dict) -> str:
    bad = [check for check in report["checks"] if check["level"] != "good"]
    bad.sort(key=lambda check: check["level"] != "distrust")
    blocks = "".join(
        f'<div class="finding {check["level"]}"><b>{_text(_sentence(check["fact"]))}</b> {_text(check["advice"])}. '
        f'<span class="quiet">More: docs/troubleshooting.md, “{_text(check["topic"])}”.</span></div>'
        for check in bad
    )
    return f"<h2>What to do</h2>{blocks}" if bad else ""


def _checks(report: dict) -> str:
    rows = [
        (
            f'<span class="mark {check["level"]}">{MARK[check["level"]]}</span>',
            _text(check["fact"]),
            _text(check["wanted"]),
        )
        for check in report["checks"]
    ]
    shown = " open" if report["verdict"]["level"] == "good" else ""
    return (
        f"<details{shown}><summary>What the verdict rests on</summary>"
        + _raw_table(("", "measured", "wanted"), rows)
        + "</details>"
    )


def redraw_scenes(page: str, report: dict, reconstructions: list[Reconstruction]) -> str:
    """A page with the figures of reconstructions that were moved since; nothing else depends on the frame."""
    before, begin, rest = page.partition(SCENES)
    _, end, after = rest.partition("</section>")
    return before + _scenes(report, reconstructions) + after if begin and end else page


def _scenes(report: dict, reconstructions: list[Reconstruction]) -> str:
    suspects = {name for check in report["checks"] if check["level"] != "good" for name in check["images"]}
    blocks = []
    for k, rec in enumerate(reconstructions[:MAX_SCENES]):
        which = f", piece {k}" if len(reconstructions) > 1 else ""
        blocks.append(f"<h2>Cameras and points{which}</h2>" + _scene(rec, suspects, report["components"][k]))
    return f"{SCENES}{''.join(blocks)}</section>"


def _scene(reconstruction: Reconstruction, suspects: set[str], component: dict) -> str:
    alignments = component.get("alignments", [])
    z_up = any(done["z_up"] for done in alignments)
    above, aside = (
        figures.scene_view(reconstruction, suspects, from_above=from_above, z_up=z_up) for from_above in (True, False)
    )
    red = " Red: images named in a warning." if suspects & set(reconstruction.image_names) else ""
    told = "".join(f"<p>Aligned: {_text(done['reason'])}.</p>" for done in alignments)
    return (
        f'{told}<div class="figures">'
        + _figure(above, "From above. The bar is in scene units." + red)
        + _figure(aside, "From the side, looking to the right.")
        + "</div>"
    )


def _images(report: dict, reconstructions: list[Reconstruction]) -> str:
    images = report["per_image"]
    std = {name: value for component in report["components"] for name, value in component["pose_std"].items()}
    rows = [
        (
            k,
            image["name"],
            image["observations"],
            _number(image["median_px"]),
            _number(image["parallax_deg"], 1),
            _number(std[image["name"]]["rotation_deg"], 3),
        )
        for k, image in enumerate(images[:MAX_ROWS])
    ]
    names = [name for reconstruction in reconstructions for name in reconstruction.image_names]
    return (
        '<h2>Images and pairs</h2><div class="figures">'
        + _figure(
            figures.residual_bars(images),
            "Blue bars: median residual of each image in pixels. Orange ticks: its observations, relative to the "
            "largest number.",
        )
        + _figure(
            figures.graph_matrix(names, _pair_facts(report)),
            "View graph, image against image. Above the diagonal: how much of what two views can explain agrees with "
            "the result, from green (all) to red (nothing). Below: number of matches, dark is many.",
        )
        + "</div><details><summary>All images</summary>"
        + _table(("", "image", "observations", "residual (px)", "parallax (°)", "rotation std (°)"), rows)
        + (f"<p class=quiet>The first {MAX_ROWS} of {len(images)}.</p>" if len(images) > MAX_ROWS else "")
        + "</details>"
    )


def _hypotheses(report: dict) -> str:
    choice = report["choice"]
    won = f"<b>{_text(choice['name'])}</b> won"
    if choice["explained_share"] is not None:
        won += f": after a first adjustment it explained {choice['explained_share']:.1%} of the explainable matches"
    if choice["margin"] is not None:
        won += f", {100 * choice['margin']:.1f} points more than {_text(choice['next'])}"
        if choice["margin"] < 0.005:
            won += " (the same world, reached from another start)"
    else:
        won += "; it was good enough that no other was refined"
    rows = [
        (
            h["name"] + (" (chosen)" if h["chosen"] else ""),
            _number(h["loss"]),
            f"dropped at {h['pruned_at']}" if h["pruned_at"] is not None else f"{h['epipolar_share']:.1%}",
            "" if h["explained_share"] is None else f"{h['explained_share']:.1%}",
        )
        for h in sorted(report["hypotheses"], key=lambda h: (not h["chosen"], h["pruned_at"] is not None))
    ]
    return (
        f'<h2>Hypotheses</h2><p>{won}.</p><div class="figures">'
        + _figure(
            figures.loss_curves(report["hypotheses"]),
            "Loss by iteration. Thick: the chosen one; a dot: dropped here. Support: share of matches within 3 px "
            "before the refinement; explained: share of the explainable ones after a first adjustment, if it had one.",
        )
        + "<div>"
        + _table(("start", "loss", "support", "explained"), rows)
        + "</div></div>"
    )


def _focals(report: dict) -> str:
    rows = [
        (
            f["camera"],
            f["model"],
            len(f["images"]),
            f"{f['focal_px']:.2f} ± {_number(f['std_px'])}",
            f"{f['fov_deg']:.2f}",
        )
        for f in report["focal_px"][:MAX_ROWS]
    ]
    return "<h2>Focal lengths</h2>" + _table(("camera", "model", "images", "focal (px)", "field of view (°)"), rows)


def _pairs(report: dict, pictures: list[PairPicture]) -> str:
    worst = sorted(_pair_facts(report), key=lambda edge: edge.explained_part)[:12]
    rows = [
        (
            f"{edge.i} and {edge.j}",
            edge.matches,
            edge.agreeing,
            f"{edge.explained_part:.0%}",
            _number(edge.median_px),
            f"{edge.weight:.2f}",
        )
        for edge in worst
    ]
    shown = "".join(
        _figure(
            figures.pair_picture(picture),
            f"{picture.edge.i} and {picture.edge.j}: {picture.edge.agreeing} of {picture.edge.matches} matches agree, "
            f"median residual {_number(picture.edge.median_px)} px",
        )
        for picture in pictures
    )
    head = ("pair", "matches", "agree", "explained", "residual (px)", "weight")
    return (
        "<h2>Pairs that fit worst</h2><p class=quiet>Green lines agree with the result, red ones do not. Lines that "
        "cross wildly are false matches; parallel red ones mean a wrong pose.</p>"
        f'<div class="figures wide">{shown}</div><details><summary>Numbers</summary>{_table(head, rows)}</details>'
    )


def _pair_facts(report: dict) -> list[PairFacts]:
    return [PairFacts(**edge) for edge in report["edges"]]


def _run(report: dict) -> str:
    matching = report["matching"]
    how = (
        f"<p>Matched with {_text(' and '.join(matching['matchers']))}: {matching['pairs_kept']} of "
        f"{matching['pairs_tried']} pairs kept, {matching['matches']:,} matches.</p>"
        if matching
        else ""
    )
    photos = f"<p>Photos: {_text(report['image_folder'])}</p>" if report["image_folder"] else ""
    total = max(sum(report["seconds"].values()), 1e-9)
    rows = [(stage, f"{value:.1f}", f"{value / total:.0%}") for stage, value in report["seconds"].items()]
    return (
        f"<h2>Run</h2>{photos}{how}"
        + _table(("stage", "seconds", "share"), rows)
        + f"<p>{report['iterations']} iterations, seed {report['seed']}, peak memory {report['peak_rss_mb']:.0f} MB, "
        f"proba {_text(report['version'])}. All numbers: report.json.</p>"
        f"<details><summary>Settings</summary><pre>{_text(json.dumps(report['settings'], indent=1))}</pre></details>"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _sentence(fact: str) -> str:
    return fact[:1].upper() + fact[1:] + "."


def _number(value: float | None, digits: int = 2) -> str:
    return "unknown" if value is None or not np.isfinite(value) else f"{value:.{digits}f}"


def _table(head: tuple[str, ...], rows: list[tuple]) -> str:
    return _raw_table(head, [tuple(_text(cell) for cell in row) for row in rows])


def _raw_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Cells are HTML already."""
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells}</tr>{lines}</table></div>'


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{_text(caption)}</figcaption></figure>"
