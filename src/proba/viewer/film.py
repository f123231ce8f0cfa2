"""The story of a solve as a film: cameras fan out from one place, Gaussians shrink, edges earn or lose their weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from proba.errors import InputError
from proba.history.evolution import State, blend
from proba.io.atomic import all_or_nothing, atomic_file
from proba.io.picture_files import write_picture
from proba.viewer import palette
from proba.viewer.drawing import frustum_lines, frustums, shown_radius
from proba.viewer.raster import Canvas, Eye, write_text
from proba.viewer.scene import PieceScene

SWING_DEG, ENDING_DEG = 30.0, 50.0
"""How far the viewer moves around the scene while it is solved, and afterwards."""


@dataclass(frozen=True, kw_only=True)
class FilmOptions:
    """Size and length of a film."""

    width: int = 1280
    """Pixels."""
    height: int = 720
    """Pixels."""
    fps: int = 24
    """Pictures a second."""
    seconds: float = 9.0
    """Length of the solve."""
    ending: float = 4.0
    """Seconds to look at the refined result."""
    world: str | None = None
    """Which hypothesis; None: the chosen one, or the best cold start if that was seeded from two-view geometry."""

    @property
    def n_frames(self) -> int:
        """Pictures of the whole film."""
        return max(2, round(self.seconds * self.fps)) + round(self.ending * self.fps)

    def __post_init__(self) -> None:
        if min(self.width, self.height) < 16 or self.width % 2 or self.height % 2:
            raise InputError("width and height of a film must be even numbers, at least 16")
        if self.fps < 1 or self.seconds <= 0 or self.ending < 0:
            raise InputError("a film needs --fps of at least 1 and a positive number of --seconds")


def film(scene: PieceScene, options: FilmOptions) -> Iterator[Image.Image]:
    """All pictures, in order."""
    states = _states(scene, options)
    return _pictures(scene, states, options)


def _pictures(scene: PieceScene, states: list[State], options: FilmOptions) -> Iterator[Image.Image]:
    eye = _eye(scene)
    ending = round(options.ending * options.fps)
    total = options.n_frames - ending
    for k in range(total):
        at = k / (total - 1) * (len(states) - 1)
        low = int(at)
        state = blend(states[low], states[min(low + 1, len(states) - 1)], at - low)
        swing = np.radians(SWING_DEG) * (k / (total - 1) - 1)
        yield picture(scene, state, eye.turned(swing), options)
    for k in range(ending):
        turn = np.radians(ENDING_DEG) * np.sin(2 * np.pi * k / ending) / 2
        yield picture(scene, states[-1], eye.turned(turn), options, cloud=True)


def picture(scene: PieceScene, state: State, eye: Eye, options: FilmOptions, *, cloud: bool = False) -> Image.Image:
    """One moment: the Gaussians of the solve, or the cloud of the result."""
    canvas = Canvas(options.width, options.height, eye)
    unit = options.height / 720
    size = scene.framing.radius
    if cloud:
        canvas.points(scene.xyz, scene.colours("photo"), 1.8 * unit if len(scene.xyz) < 50_000 else 1.2 * unit)
    else:
        radius = shown_radius(state.sigma, size)
        canvas.discs(state.points, scene.sample_colours, radius, _alpha(radius / size))
        canvas.points(state.points, scene.sample_colours, 1.4 * unit)
    if len(scene.edges) and len(state.edge_weight) == len(scene.edges):
        centres = state.world_from_cam[:, :3, 3]
        dimmed = (0.65 * palette.of_weights(state.edge_weight)).astype(np.uint8)
        canvas.lines(centres[scene.edges[:, 0]], centres[scene.edges[:, 1]], dimmed, 0.8 * unit)
    shape = frustums(state.world_from_cam, state.tan, scene.aspect, scene.framing.frustum)
    begin, end = frustum_lines(shape)
    colour = np.repeat(palette.of_images(len(shape)), 8, axis=0)
    canvas.lines(begin.reshape(-1, 3), end.reshape(-1, 3), colour, 1.6 * unit)
    image = canvas.finish()
    write_text(image, state.title, place=(0.025, 0.05), size_px=round(22 * unit), rgb=(235, 235, 240))
    note = f"{len(shape)} images, {len(scene.edges)} edges (red: weight 0, green: 1)"
    write_text(image, note, place=(0.025, 0.96), size_px=round(19 * unit), rgb=(170, 174, 185))
    return image


def _alpha(size: np.ndarray) -> np.ndarray:
    """Large Gaussians are faint: each covers others."""
    return np.clip(0.0025 / np.maximum(size, 1e-6), 0.03, 0.6)


def _eye(scene: PieceScene) -> Eye:
    framing = scene.framing
    return Eye(framing.eye, framing.focus, framing.up)


def _states(scene: PieceScene, options: FilmOptions) -> list[State]:
    evolution = scene.evolution
    if evolution is None:
        raise InputError(
            "This result has no history (evolution.npz). Run `proba solve` or `proba run` again to make one."
        )
    names = [world.name for world in evolution.worlds]
    if options.world is not None and options.world not in names:
        raise InputError(f"There is no hypothesis {options.world!r}; this result has {', '.join(names)}.")
    world = evolution.told if options.world is None else names.index(options.world)
    return [evolution.state(frame) for frame in evolution.timeline(world)]


# ---- files


def write_film(
    path: Path, frames: Iterable[Image.Image], fps: int, *, progress: Callable[[int], None] = lambda done: None
) -> None:
    """Write pictures as .mp4 (H.264), .gif, or numbered .png files in a folder."""
    kind = film_kind(path)
    counted = _counted(frames, progress)
    if kind == "mp4":
        _write_mp4(path, counted, fps)
    elif kind == "gif":
        _write_gif(path, counted, fps)
    else:
        with all_or_nothing():
            for k, frame in enumerate(counted):
                write_picture(path / f"{k:05d}.png", frame)


def film_kind(path: Path) -> str:
    """mp4, gif or folder, by the name of the file to write."""
    kind = path.suffix.lower().removeprefix(".")
    if kind in ("mp4", "gif"):
        return kind
    if kind == "" or path.is_dir():
        return "folder"
    raise InputError(f"A film can be .mp4, .gif, or a folder of pictures, not .{kind}.")


def _counted(frames: Iterable[Image.Image], progress: Callable[[int], None]) -> Iterator[Image.Image]:
    for k, frame in enumerate(frames, start=1):
        yield frame
        progress(k)


def _write_mp4(path: Path, frames: Iterable[Image.Image], fps: int) -> None:
    try:
        import av
    except ImportError as error:
        raise InputError("Films need PyAV: `pip install av`. Or write a .gif or a folder of pictures.") from error
    with atomic_file(path) as file, av.open(file, "w", format="mp4") as container:
        stream = None
        for frame in frames:
            if stream is None:
                stream = container.add_stream("libx264", rate=fps, options={"crf": "24", "preset": "medium"})
                stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, "yuv420p"
            container.mux(stream.encode(av.VideoFrame.from_image(frame)))
        if stream is not None:
            container.mux(stream.encode())


def _write_gif(path: Path, frames: Iterable[Image.Image], fps: int) -> None:
    reduced = [frame.quantize(96, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE) for frame in frames]
    write_picture(
        path, reduced[0], save_all=True, append_images=reduced[1:], duration=round(1000 / fps), loop=0, optimize=True
    )
