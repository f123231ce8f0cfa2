"""report.html: one file, no scripts, opens offline. It begins with whether to trust the result and why."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

import numpy as np

from proba.reconstruction import Reconstruction
from proba.report import figures
from proba.report.checks import name_list
from proba.report.dense_part import EMPTY
from proba.report.facts import PairFacts
from proba.report.pictures import PairPicture, Thumbnail
from proba.report.prose import to_html
from proba.report.sections import END, with_section
from proba.report.style import STYLE
from proba.report.troubleshooting import sections
from proba.report.words import duration, focal_range, number, stage_times
from proba.solution import CLUSTERS

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Nothing runs and nothing is loaded, whatever names and texts come from elsewhere."""

MARK = {"good": "ok", "check": "check", "distrust": "bad"}
MAX_ROWS = 300
MAX_FINDINGS = 6
"""More than this are folded away."""
OPEN_IMAGES = 30
"""The table of images is open at first where it is not longer than this."""
MAX_SCENES = 3
"""More pieces are in the model, but nobody looks at their pictures."""
SCENES = '<section id="scenes">'


def html_report(
    report: dict,
    reconstructions: list[Reconstruction],
    pictures: list[PairPicture],
    thumbnails: dict[str, Thumbnail] | None = None,
) -> str:
    """The whole page. `thumbnails` are photos by name, as many as there are."""
    body = [
        _head(report),
        _findings(report),
        _next(report),
        _checks(report),
        _scenes(report, reconstructions),
        EMPTY,
        _images(report, reconstructions, thumbnails or {}),
        _hypotheses(report),
        _clusters(report),
        _rigs(report),
        _focals(report),
        _pairs(report, pictures),
        _run(report),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>ProBA report</title>'
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def _head(report: dict) -> str:
    points = sum(component["points"] for component in report["components"])
    residuals = [image["median_px"] for image in report["per_image"] if image["median_px"] is not None]
    numbers = [
        (f"{report['registered']} of {report['images']}", "images posed"),
        (f"{points:,}", "points"),
        (f"{np.median(residuals):.2f} px" if residuals else "unknown", "median residual"),
        focal_range(report["focal_px"]),
        (f"{report['components'][0]['explained_share']:.1%}", "of explainable matches agree"),
        (duration(report["seconds"]), "run time"),
    ]
    cells = "".join(f"<div><b>{_text(value)}</b><span>{_text(name)}</span></div>" for value, name in numbers)
    return (
        f'<div class="verdict {report["verdict"]["level"]}"><h1>{_text(report["verdict"]["text"])}</h1></div>'
        f'<div class="numbers">{cells}</div>'
    )


def _next(report: dict) -> str:
    """Where to go from here."""
    first = {
        "good": "Look at it in the browser",
        "check": "Read the warnings above, then look at the result in the browser",
        "distrust": "Do what the warnings above say and run again. To see what went wrong",
    }[report["verdict"]["level"]]
    return (
        f'<p class="next"><b>Next.</b> {first}: <code>proba view FOLDER</code>. The model is in <code>sparse/0</code> '
        "(COLMAP format), the points in <code>points.ply</code>. Depth at every pixel: "
        "<code>proba dense FOLDER</code>. Other formats: <code>proba export FOLDER --to nerfstudio</code>.</p>"
    )


def _findings(report: dict) -> str:
    found = report["findings"]
    if not found:
        return ""
    pages = sections()
    told: set[str] = set()
    blocks = []
    for finding in found:
        lines = [
            f"{_text(advice)}.{_section(topic, pages, told)}"
            for advice, topic in zip(finding["advice"], finding["topics"], strict=True)
        ]
        if len(lines) == 1:
            body = f"<b>{_text(_sentence(finding['fact']))}</b> {lines[0]}"
        else:
            reasons = (f"<li><b>{_text(_sentence(reason))}</b> " for reason in finding["reasons"])
            listed = "".join(f"{reason}{line}</li>" for reason, line in zip(reasons, lines, strict=True))
            body = f"<b>{_text(name_list(finding['images']))}</b><ul>{listed}</ul>"
        blocks.append(f'<div class="finding {finding["level"]}">{body}</div>')
    rest = "".join(blocks[MAX_FINDINGS:])
    folded = f"<details><summary>{len(blocks) - MAX_FINDINGS} more warnings</summary>{rest}</details>" if rest else ""
    return f"<h2>What to do</h2>{''.join(blocks[:MAX_FINDINGS])}{folded}"


def _section(topic: str, pages: dict[str, str], told: set[str]) -> str:
    """The section of the troubleshooting page, once; further warnings only name it."""
    if topic in told or topic not in pages:
        return f'<p class="quiet">See “{_text(topic)}”.</p>'
    told.add(topic)
    return f"<details><summary>{_text(topic)}: what it means and what helps</summary>{to_html(pages[topic])}</details>"


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


def _reasons(report: dict) -> dict[str, list[str]]:
    """What speaks against an image, by its name."""
    reasons: dict[str, list[str]] = {}
    for check in report["checks"]:
        if check["level"] != "good":
            for name in check["images"]:
                reasons.setdefault(name, []).append(check.get("reason") or check["topic"])
    return reasons


def redraw_scenes(page: str, report: dict, reconstructions: list[Reconstruction]) -> str:
    """A page with the figures of reconstructions that were moved since; nothing else depends on the frame."""
    return with_section(page, SCENES, _scenes(report, reconstructions))


def _scenes(report: dict, reconstructions: list[Reconstruction]) -> str:
    suspects = set(_reasons(report))
    blocks = []
    for k, rec in enumerate(reconstructions[:MAX_SCENES]):
        which = f", piece {k}" if len(reconstructions) > 1 else ""
        blocks.append(f"<h2>Cameras and points{which}</h2>" + _scene(rec, suspects, report["components"][k]))
    return f"{SCENES}{''.join(blocks)}{END}"


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


def _images(report: dict, reconstructions: list[Reconstruction], thumbnails: dict[str, Thumbnail]) -> str:
    names = [name for reconstruction in reconstructions for name in reconstruction.image_names]
    return (
        '<h2>Images and pairs</h2><div class="figures">'
        + _figure(
            figures.residual_bars(report["per_image"]),
            "Blue bars: median residual of each image in pixels. Orange ticks: how many points it sees, relative to "
            "the image that sees most.",
        )
        + _figure(
            figures.graph_matrix(names, _pair_facts(report)),
            "View graph: one row and one column for each image. Above the diagonal: how many of a pair's explainable "
            "matches agree with the result, from green (all) to red (none). Below: number of matches, dark is many.",
        )
        + f"</div>{_image_table(report, thumbnails)}"
    )


def _image_table(report: dict, thumbnails: dict[str, Thumbnail]) -> str:
    images, reasons = report["per_image"], _reasons(report)
    std = {name: value for component in report["components"] for name, value in component["pose_std"].items()}
    rows = [
        (
            _text(k),
            _thumbnail(thumbnails.get(image["name"])),
            _text(image["name"]),
            _text(image["observations"]),
            number(image["median_px"]),
            number(image["parallax_deg"], 1),
            number(std[image["name"]]["rotation_deg"], 3),
            f'<span class="against">{_text("; ".join(reasons.get(image["name"], [])))}</span>',
        )
        for k, image in enumerate(images[:MAX_ROWS])
    ]
    head = ("", "", "image", "observations", "residual (px)", "parallax (°)", "rotation std (°)", "")
    shown = " open" if len(images) <= OPEN_IMAGES else ""
    rest = f'<p class="quiet">The first {MAX_ROWS} of {len(images)}.</p>' if len(images) > MAX_ROWS else ""
    return f"<details{shown}><summary>All images</summary>{_raw_table(head, rows)}{rest}</details>"


def _thumbnail(photo: Thumbnail | None) -> str:
    if photo is None:
        return ""
    size = f'width="{photo.width}" height="{photo.height}"'
    return f'<img {size} alt="" src="data:image/jpeg;base64,{photo.jpeg_base64}">'


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _clusters(report: dict) -> str:
    """How the clusters of large pieces fared; nothing where all were solved as a whole."""
    blocks = []
    for component in report["components"]:
        clusters = component.get("clusters", [])
        if not clusters:
            continue
        out = sum(bool(cluster["voted_out"]) for cluster in clusters)
        rows = [
            (
                k,
                f"{len(cluster['images'])}, from {min(cluster['images'])}" if cluster["images"] else "0",
                cluster["level"],
                _share(cluster["explained_share"]),
                cluster["voted_out"] and f"voted out: {cluster['voted_out']}",
            )
            for k, cluster in enumerate(clusters)
        ]
        told = f"{out} of them were voted out, and their photos placed by the others" if out else "all of them agree"
        blocks.append(
            f"<h2>Clusters</h2><p>These {len(component['images'])} photos were solved in {len(clusters)} overlapping "
            f"clusters. These were joined by the photos that they share, and adjusted together; {told}.</p>"
            + _table(("cluster", "photos", "verdict", "explained", ""), rows)
        )
    return "".join(blocks)


def _rigs(report: dict) -> str:
    """Where cameras sit on their rigs; nothing where there are none."""
    blocks = []
    for rig in (rig for component in report["components"] for rig in component.get("rigs", [])):
        unit = "the unit of the rig file" if rig["metric"] else "scene units"
        rows = [
            (
                camera["name"],
                "reference" if camera["reference"] else "known" if camera["known"] else "estimated",
                _triple(camera["rotation_deg"], camera["rotation_std_deg"]),
                _triple(camera["centre"], camera["centre_std"]),
            )
            for camera in rig["cameras"]
        ]
        blocks.append(
            f"<h2>Rig</h2><p>Photos of one moment are tied together ({rig['frames']} moments). Turns are rotation "
            f"vectors in degrees, centres are in {unit}, in the frame of the reference.</p>"
            + _table(("camera", "", "turn", "centre"), rows)
        )
    return "".join(blocks)


def _triple(values: list[float], std: list[float]) -> str:
    """Three numbers with their largest standard deviation."""
    text = ", ".join(f"{value:.4g}" if abs(value) > 1e-9 else "0" for value in values)
    return f"{text} ± {max(std):.2g}" if max(std) > 0 else text


def _hypotheses(report: dict) -> str:
    choice = report["choice"]
    if choice["name"] == CLUSTERS:  # each cluster had a search of its own
        return ""
    won = f"<b>{_text(choice['name'])}</b> won"
    if choice["explained_share"] is not None:
        won += f": after a first adjustment it explained {choice['explained_share']:.1%} of the explainable matches"
    if choice["margin"] is not None:
        won += f", {100 * choice['margin']:.1f} points more than {_text(choice['next'])}"
        if choice["margin"] < 0.005:
            won += " (the same world, reached from another start)"
    else:
        won += "; it was so good that no other was refined"
    rows = [
        (
            h["name"] + (" (chosen)" if h["chosen"] else ""),
            number(h["loss"]),
            f"dropped at {h['pruned_at']}" if h["pruned_at"] is not None else _share(h["epipolar_share"]),
            _share(h["explained_share"]),
        )
        for h in sorted(report["hypotheses"], key=lambda h: (not h["chosen"], h["pruned_at"] is not None))
    ]
    return (
        "<h2>Where the search began</h2><p>It starts from several guesses of the field of view (fov50: 50 degrees), "
        "each with its mirror image, and from two-view geometry. The one that explains most matches wins.</p>"
        f'<p>{won}.</p><div class="figures">'
        + _figure(
            figures.loss_curves(report["hypotheses"]),
            "Loss by iteration. The thick line is the chosen start; a dot marks where a start was dropped. Support: "
            "share of all matches within 3 px before the refinement. Explained: share of the explainable matches that "
            "agree after a first adjustment, where there was one.",
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
            f"{f['focal_px']:.2f} ± {number(f['std_px'])}",
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
            number(edge.median_px),
            f"{edge.weight:.2f}",
        )
        for edge in worst
    ]
    shown = "".join(
        _figure(
            figures.pair_picture(picture),
            f"{picture.edge.i} and {picture.edge.j}: {picture.edge.agreeing} of {picture.edge.matches} matches agree, "
            f"median residual {number(picture.edge.median_px)} px",
        )
        for picture in pictures
    )
    head = ("pair", "matches", "agree", "explained", "residual (px)", "weight")
    return (
        '<h2>Pairs that fit worst</h2><p class="quiet">Green lines agree with the result, red ones do not. Lines that '
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
    if matching and matching.get("graph_matcher"):
        how += f"<p>View graph from matches of {_text(matching['graph_matcher'])}.</p>"
    photos = f"<p>Photos: {_text(report['image_folder'])}</p>" if report["image_folder"] else ""
    if matching and matching.get("masks"):
        photos += f"<p>Masks: {_text(matching['masks'])}</p>"
    total = max(sum(report["seconds"].values()), 1e-9)
    rows = [
        (_text(stage), f"{value:.1f}", f'<div class="meter"><div style="width:{100 * value / total:.0f}%"></div></div>')
        for stage, value in stage_times(report["seconds"])
    ]
    return (
        f"<h2>Run</h2>{photos}{how}"
        + _raw_table(("stage", "seconds", ""), rows)
        + f"<p>{report['iterations']} iterations, seed {report['seed']}, peak memory {report['peak_rss_mb']:.0f} MB, "
        f"proba {_text(report['version'])}. All numbers: report.json.</p>"
        f"<details><summary>Settings</summary><pre>{_text(json.dumps(report['settings'], indent=1))}</pre></details>"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _sentence(fact: str) -> str:
    return fact[:1].upper() + fact[1:] + "."


def _table(head: tuple[str, ...], rows: list[tuple]) -> str:
    return _raw_table(head, [tuple(_text(cell) for cell in row) for row in rows])


def _raw_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Cells are HTML already."""
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells}</tr>{lines}</table></div>'


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{_text(caption)}</figcaption></figure>"
