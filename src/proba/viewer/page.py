"""A result as one HTML file that opens anywhere: no server, no network, everything inside."""

from __future__ import annotations

import base64
import json
from importlib.resources import files
from pathlib import Path

import numpy as np

from proba.io.atomic import atomic_write_text
from proba.viewer import palette
from proba.viewer.chunks import COVER
from proba.viewer.drawing import LARGEST_SHARE, MAGNIFIED
from proba.viewer.framing import VIEW_FOV_DEG
from proba.viewer.photos import jpeg
from proba.viewer.scene import PieceScene

PHOTO_BYTES = 3_000_000
"""All thumbnails together; the more photos, the smaller each."""
PHOTO_SIDES_PX = (480, 320, 240, 160, 96)
MAX_SEEN = 160
"""Observations of a photo that are drawn over it."""
MAX_EDGES = 30
"""Edges of a camera that are listed."""
PLAY_SECONDS = 9.0


class _Blob:
    """All numbers in one piece of memory; the page finds them by kind, place and length."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, values: np.ndarray, kind: str) -> dict:
        raw = np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()
        self.data += bytes(-len(self.data) % 4)  # typed arrays begin at multiples of their size
        at = len(self.data)
        self.data += raw
        return {"kind": kind, "at": at, "length": int(np.asarray(values).size)}


def write_page(path: Path, pieces: list[PieceScene], *, title: str) -> int:
    """Write the page; returns its size in bytes."""
    blob = _Blob()
    side = _thumbnail_side(sum(len(piece.rec) for piece in pieces))
    content = {
        "title": title,
        "fov_deg": VIEW_FOV_DEG,
        "seconds": PLAY_SECONDS,
        "cover": COVER,
        "largest": LARGEST_SHARE,
        "magnified": MAGNIFIED,
        "viridis": " ".join(palette.VIRIDIS),
        "weight": " ".join(palette.WEIGHT),
        "pieces": [_piece(piece, blob, side) for piece in pieces],
        "blob": "",
    }
    content["blob"] = base64.b64encode(bytes(blob.data)).decode("ascii")
    # Names of files come from outside: nothing in the JSON can end the script element it stands in.
    text = json.dumps(content, allow_nan=False).replace("<", "\\u003c")
    template = files("proba.viewer").joinpath("page.html").read_text(encoding="utf-8")
    page = template.replace("__DATA__", text)
    atomic_write_text(path, page)
    return len(page.encode("utf-8"))


def _thumbnail_side(count: int) -> int:
    """Longest side of the thumbnails in pixels; a JPEG takes about 0.2 bytes a pixel."""
    for side in PHOTO_SIDES_PX:
        if count * 0.75 * side**2 * 0.2 < PHOTO_BYTES:
            return side
    return PHOTO_SIDES_PX[-1]


def _piece(scene: PieceScene, blob: _Blob, side_px: int) -> dict:
    rec, framing = scene.rec, scene.framing
    seen, seen_from = _observations(scene)
    arrays = {
        "pose": blob.add(rec.world_from_cam[:, :3], "f4"),
        "tan": blob.add(scene.tan, "f4"),
        "aspect": blob.add(scene.aspect, "f4"),
        "edges": blob.add(scene.edges, "u2"),
        "weight": blob.add(scene.edge_weight, "f4"),
        "seen": blob.add(seen, "f4"),
        "seen_from": blob.add(seen_from, "u4"),
        **_cloud(scene, blob),
    }
    if scene.truth is not None:
        arrays["truth"] = blob.add(scene.truth[:, :3], "f4")
    return {
        "names": rec.image_names,
        "summary": f"{len(rec)} images, {len(scene.edges)} edges, {scene.points_text}",
        "framing": {
            "focus": framing.focus.tolist(),
            "eye": framing.eye.tolist(),
            "up": framing.up.tolist(),
            "radius": framing.radius,
            "frustum": framing.frustum,
        },
        "colourings": scene.colourings,
        "colours": palette.of_images(len(rec)).tolist(),
        "arrays": arrays,
        "thumbs": [_data_uri(rgb) for rgb in scene.photos.load(side_px)],
        "facts": [_facts(scene, n) for n in range(len(rec))],
        "history": _history(scene, blob),
    }


def _cloud(scene: PieceScene, blob: _Blob) -> dict:
    """Places as 16 bit numbers in the boxes of their chunks, and what the points can be coloured by."""
    chunks = scene.chunks
    of_point = np.repeat(np.arange(len(chunks.low)), np.diff(chunks.start))  # [P]
    side = np.maximum(chunks.high - chunks.low, 1e-12)  # [C, 3]
    place = (scene.xyz - chunks.low[of_point]) / side[of_point]  # [P, 3], 0..1
    arrays = {
        "xyz": blob.add((place * 65535).round().clip(0, 65535), "u2"),
        "rgb": blob.add(scene.colours("photo"), "u1"),
        "chunk": blob.add(chunks.start, "u4"),
        "low": blob.add(chunks.low, "f4"),
        "side": blob.add(side, "f4"),
    }
    for by in set(scene.colourings) & {"depth", "sigma"}:
        arrays[by] = blob.add(_byte(palette.ranked(scene.depth if by == "depth" else scene.sigma)), "u1")
    if "image" in scene.colourings:
        arrays["image"] = blob.add(scene.point_image, "u2")
    return arrays


def _facts(scene: PieceScene, image: int) -> dict:
    edges = [
        [e.name, f"{e.weight:.2f}", str(e.matches), str(e.shared), f"{e.error_px:.2f}" if e.shared else "-"]
        for e in scene.neighbours(image)[:MAX_EDGES]
    ]
    return {"numbers": scene.camera_facts(image), "edges": edges}


def _observations(scene: PieceScene) -> tuple[np.ndarray, np.ndarray]:
    """Observed and projected places [K, 4] as shares of width and height, and where each image's begin [N + 1]."""
    rows, begin = [], [0]
    for n in range(len(scene.rec)):
        camera = scene.rec.camera(n)
        both = np.concatenate(scene.observations(n), axis=1)  # [M, 4]
        both = both[np.isfinite(both).all(1)]
        both = both[:: max(1, -(-len(both) // MAX_SEEN))]
        rows.append(both / [camera.width, camera.height, camera.width, camera.height])
        begin.append(begin[-1] + len(both))
    return np.concatenate(rows), np.array(begin)


def _history(scene: PieceScene, blob: _Blob) -> dict | None:
    evolution = scene.evolution
    if evolution is None:
        return None
    n_frames = len(evolution.world)
    poses = np.stack([evolution.state(frame).world_from_cam[:, :3] for frame in range(n_frames)])  # [F, N, 3, 4]
    log_depth, depth_range = _quantised(evolution.log_depth, 65535)
    log_sigma, sigma_range = _quantised(evolution.log_sigma, 255)
    return {
        "labels": [scene.world_label(k) for k in range(len(evolution.worlds))],
        "told": evolution.told,
        "timelines": [evolution.timeline(k).tolist() for k in range(len(evolution.worlds))],
        "refined": n_frames - 1,
        "titles": [evolution.title(frame) for frame in range(n_frames)],
        "log_depth": depth_range,
        "log_sigma": sigma_range,
        "arrays": {
            "pose": blob.add(poses, "f4"),
            "tan": blob.add(evolution.tan, "f4"),
            "weight": blob.add(_byte(evolution.edge_weight.astype(np.float64)), "u1"),
            "log_depth": blob.add(log_depth, "u2"),
            "log_sigma": blob.add(log_sigma, "u1"),
            "point_image": blob.add(evolution.point_image, "u2"),
            "point_xy": blob.add(evolution.point_xy, "f4"),
            "rgb": blob.add(scene.sample_colours, "u1"),
        },
    }


def _byte(share: np.ndarray) -> np.ndarray:
    """Numbers 0..1 as 0..255; what is not a number lies in the middle."""
    return np.nan_to_num(share, nan=0.5).clip(0, 1) * 255


def _quantised(values: np.ndarray, top: int) -> tuple[np.ndarray, list[float]]:
    """Numbers as 0..top, and the range they stand for."""
    values = np.nan_to_num(values.astype(np.float64))
    low, high = float(values.min()), float(values.max())
    return ((values - low) / max(high - low, 1e-9) * top).round(), [low, high]


def _data_uri(rgb: np.ndarray | None) -> str | None:
    return None if rgb is None else "data:image/jpeg;base64," + base64.b64encode(jpeg(rgb)).decode("ascii")
