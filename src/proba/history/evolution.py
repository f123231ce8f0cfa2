"""The history of a solve, light enough to keep: DIR/evolution.npz.

A frame is the state of one world at one iteration: poses, fields of view, edge weights, and the Gaussians of a few
thousand pixels. All frames of one connected piece are stacked in common arrays:

    worlds that lived to the end     all their frames, start to end: a timeline each
    worlds that were pruned          their last frame
    the refined result               the last frame of all

The frames are aligned to the refined result, so that playback shows what the solver did and not how its gauge drifted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from proba.dense import sample_maps
from proba.geometry.sim3 import Sim3
from proba.io.names import check_name
from proba.io.npz import read_npz, write_npz
from proba.io.reading import MAX_SIDE_PX, parse_json, reading, whole_number, whole_numbers
from proba.reconstruction import Reconstruction

EVOLUTION_FILE = "evolution.npz"
VERSION = 1
ALIGNED_POINTS = 400
"""This number of points is enough to align a frame."""


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """All there is to draw of one moment."""

    world_from_cam: np.ndarray  # [N, 4, 4]
    tan: np.ndarray  # [N], tangent of half the field of view along the longest side
    edge_weight: np.ndarray  # [E]
    points: np.ndarray  # [P, 3], middles of the Gaussians
    sigma: np.ndarray  # [P], their standard deviations in scene units
    title: str


@dataclass(frozen=True, kw_only=True)
class WorldHistory:
    """One world that the solver followed, see `proba.pipeline.Hypothesis`."""

    name: str
    loss: float | None
    chosen: bool
    pruned_at: int | None
    epipolar_share: float | None = None
    cold: bool = False
    """Whether it began with no idea of the poses."""


@dataclass(kw_only=True)
class Evolution:
    """F frames of N images, E edges and P sampled pixels."""

    image_names: list[str]
    size_px: np.ndarray  # [N, 2] int, width and height
    edges: np.ndarray  # [E, 2] int
    point_image: np.ndarray  # [P] int
    point_xy: np.ndarray  # [P, 2] float32, about the image centre in units of half the longest side
    worlds: list[WorldHistory]
    world: np.ndarray  # [F] int, index into worlds; -1 for the refined result
    iteration: np.ndarray  # [F] int
    loss: np.ndarray  # [F] float32; NaN where unknown
    cam_from_world: np.ndarray  # [F, N, 3, 4] float32
    tan: np.ndarray  # [F, N] float32, tangent of half the field of view along the longest side
    edge_weight: np.ndarray  # [F, E] float16
    log_depth: np.ndarray  # [F, P] float16
    log_sigma: np.ndarray  # [F, P] float16, logarithm of the Gaussian's standard deviation in scene units

    @property
    def chosen(self) -> int:
        """Index of the world the result comes from."""
        return next((k for k, world in enumerate(self.worlds) if world.chosen), 0)

    @property
    def told(self) -> int:
        """Index of the world whose story is told: the chosen one if it began cold, else the best one that did.

        A world seeded from two-view geometry shows little on its way, and one that the refinement grew has no frames.
        """
        followed = [k for k, w in enumerate(self.worlds) if w.pruned_at is None and (self.world == k).any()]
        cold = [k for k in followed if self.worlds[k].cold]
        if self.chosen in cold or not followed or (self.chosen in followed and not cold):
            return self.chosen
        return max(cold or followed, key=lambda k: self.worlds[k].epipolar_share or 0.0)

    def timeline(self, world: int) -> np.ndarray:
        """Frames [S] of a world from its start on; the refined result is the last of one that lived to the end."""
        alive = self.worlds[world].pruned_at is None
        return np.flatnonzero((self.world == world) | ((self.world == -1) & alive))

    def points(self, frame: int, which: slice = slice(None)) -> np.ndarray:  # [P, 3]
        """Where the sampled pixels, or some of them, are in a frame's world."""
        image, xy = self.point_image[which], self.point_xy[which]
        depth = np.exp(self.log_depth[frame, which].astype(np.float64))  # [P]
        tan = self.tan[frame][image].astype(np.float64)  # [P]
        in_camera = depth[:, None] * np.column_stack([xy * tan[:, None], np.ones(len(depth))])  # [P, 3]
        pose = self.cam_from_world[frame][image].astype(np.float64)  # [P, 3, 4]
        return np.einsum("pji,pj->pi", pose[:, :, :3], in_camera - pose[:, :, 3])

    def state(self, frame: int) -> State:
        """One frame, ready to be drawn."""
        pose = self.cam_from_world[frame].astype(np.float64)  # [N, 3, 4]
        world_from_cam = np.tile(np.eye(4), (len(pose), 1, 1))
        world_from_cam[:, :3, :3] = pose[:, :, :3].transpose(0, 2, 1)
        world_from_cam[:, :3, 3] = -np.einsum("nji,nj->ni", pose[:, :, :3], pose[:, :, 3])
        return State(
            world_from_cam=world_from_cam,
            tan=self.tan[frame].astype(np.float64),
            edge_weight=self.edge_weight[frame].astype(np.float64),
            points=self.points(frame),
            sigma=np.exp(self.log_sigma[frame].astype(np.float64)),
            title=self.title(frame),
        )

    def fov_deg(self, frame: int) -> float:
        """Median field of view of a frame along the longest side."""
        return float(np.degrees(2 * np.arctan(np.median(self.tan[frame]))))

    def title(self, frame: int) -> str:
        """What a frame shows, in one line."""
        fov = f"field of view {self.fov_deg(frame):.1f}°"
        if self.world[frame] < 0:
            return f"refined, from {self.worlds[self.chosen].name} · {fov}"
        loss = f"loss {self.loss[frame]:.2f} · " if np.isfinite(self.loss[frame]) else ""
        return f"{self.worlds[self.world[frame]].name} · iteration {self.iteration[frame]} · {loss}{fov}"

    def end_in(self, rec: Reconstruction) -> None:
        """Let the history end in another refinement of the same solve."""
        now = result_frame(rec, self.point_image, self.point_xy)
        self.cam_from_world[-1], self.tan[-1] = now.cam_from_world, now.tan
        self.log_depth[-1], self.log_sigma[-1] = now.log_depth, now.log_sigma
        self.align()

    def align(self) -> None:
        """Move every frame to the last one, which must be the refined result."""
        some = slice(None, None, max(1, len(self.point_image) // ALIGNED_POINTS))
        target = self.points(len(self.world) - 1, some)
        for frame in range(len(self.world) - 1):
            gap = self.log_depth[-1, some].astype(np.float64) - self.log_depth[frame, some]
            similarity = gentle_alignment(self.points(frame, some), target, scale=float(np.exp(np.median(gap))))
            poses = np.tile(np.eye(4), (len(self.size_px), 1, 1))  # [N, 4, 4]
            poses[:, :3] = self.cam_from_world[frame]
            self.cam_from_world[frame] = similarity.apply_to_poses(poses)[:, :3]
            self.log_depth[frame] += np.log(similarity.scale)
            self.log_sigma[frame] += np.log(similarity.scale)


@dataclass(frozen=True, kw_only=True, eq=False)
class ResultFrame:
    """What a frame shows of a result."""

    cam_from_world: np.ndarray  # [N, 3, 4]
    tan: np.ndarray  # [N]
    log_depth: np.ndarray  # [P]
    log_sigma: np.ndarray  # [P]


def result_frame(rec: Reconstruction, point_image: np.ndarray, point_xy: np.ndarray) -> ResultFrame:
    """Of the pixels `point_xy` [P, 2] (as in `Evolution`) of the images `point_image` [P]."""
    size = np.array([[rec.camera(n).width, rec.camera(n).height] for n in range(len(rec))], float)  # [N, 2]
    extent = size / size.max(axis=1, keepdims=True)  # [N, 2]
    relative = (point_xy / extent[point_image] + 1) / 2  # [P, 2], 0..1 over width and height
    log_depth, log_variance = (
        np.zeros(len(point_image)) if maps is None else sample_maps(maps, point_image, relative)
        for maps in (rec.log_depth, rec.log_variance)
    )
    tan = np.array([max(side) / 2 / rec.camera(n).focal_px[0] for n, side in enumerate(size)])
    return ResultFrame(
        cam_from_world=rec.cam_from_world[:, :3], tan=tan, log_depth=log_depth, log_sigma=log_variance / 2
    )


def blend(a: State, b: State, part: float) -> State:
    """The moment `part` (0..1) of the way from one state to the next, for smooth playback."""

    def mix(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (1 - part) * x + part * y

    return State(
        world_from_cam=mix(a.world_from_cam, b.world_from_cam),  # the steps are small: still nearly rotations
        tan=mix(a.tan, b.tan),
        edge_weight=mix(a.edge_weight, b.edge_weight),
        points=mix(a.points, b.points),
        sigma=np.exp(mix(np.log(a.sigma), np.log(b.sigma))),
        title=a.title if part < 0.5 else b.title,
    )


def gentle_alignment(source: np.ndarray, target: np.ndarray, *, scale: float, stiffness: float = 0.2) -> Sim3:
    """target_from_source of points [P, 3] at a given scale, whose rotation stays near the identity while in doubt.

    A cold start resembles its result from no side, and least squares would turn it by anything. Frames share the root
    camera's axes, so a pull towards the identity makes the rotation a smooth function of the frame.
    """
    middle_source, middle_target = np.median(source, axis=0), np.median(target, axis=0)
    a, b = scale * (source - middle_source), target - middle_target  # [P, 3]
    near = np.linalg.norm(b, axis=1) <= 3 * np.median(np.linalg.norm(b, axis=1))  # far points are the least certain
    norm = np.sqrt((a[near] ** 2).sum() * (b[near] ** 2).sum())
    cross = b[near].T @ a[near] / norm if norm > 0 else np.zeros((3, 3))
    U, _, Vh = np.linalg.svd(cross + stiffness / 3 * np.eye(3))
    rotation = (U * [1, 1, np.sign(np.linalg.det(U @ Vh))]) @ Vh
    return Sim3(scale, rotation, middle_target - scale * rotation @ middle_source)


def save_evolutions(path: str | Path, evolutions: Sequence[Evolution]) -> None:
    """Write one history for each connected piece."""
    header = {"version": VERSION, "pieces": len(evolutions)}
    arrays = {"header": np.array(json.dumps(header))}
    for k, evolution in enumerate(evolutions):
        for field in fields(evolution):
            value = getattr(evolution, field.name)
            if field.name == "worlds":
                value = [asdict(world) for world in value]
            is_array = isinstance(value, np.ndarray)
            arrays[f"{field.name}_{k}"] = value if is_array else np.array(json.dumps(value))
    write_npz(path, arrays)


def load_evolutions(path: str | Path) -> list[Evolution]:
    """The histories of all pieces."""
    path = Path(path)
    with reading(path, "the history of a solve in this version", "It is damaged or old: delete it, or run again."):
        file = read_npz(path)
        header = parse_json(str(file["header"]))
        if header["version"] != VERSION:
            raise ValueError(f"version {header['version']}, not {VERSION}")
        names = [field.name for field in fields(Evolution)]
        count = whole_number(header["pieces"], "the number of pieces", 0, len(file))
        pieces = [{name: _value(file[f"{name}_{k}"]) for name in names} for k in range(count)]
        for piece in pieces:
            piece["worlds"] = [_checked_world(WorldHistory(**world)) for world in piece["worlds"]]
        return [_checked(Evolution(**piece)) for piece in pieces]


def _value(array: np.ndarray):
    return parse_json(str(array)) if array.dtype.kind == "U" else array


def _checked(evolution: Evolution) -> Evolution:
    """The same, after a look at all shapes and numbers; ValueError says what is wrong."""
    names = [check_name(name) for name in evolution.image_names]
    n, frames = len(names), len(evolution.world)
    n_edges, n_points = len(evolution.edges), len(evolution.point_image)
    if not frames or not n:
        raise ValueError("it has no frames")
    for name, shape in (
        ("size_px", (n, 2)), ("edges", (n_edges, 2)), ("point_image", (n_points,)), ("point_xy", (n_points, 2)),
        ("world", (frames,)), ("iteration", (frames,)), ("loss", (frames,)), ("cam_from_world", (frames, n, 3, 4)),
        ("tan", (frames, n)), ("edge_weight", (frames, n_edges)), ("log_depth", (frames, n_points)),
        ("log_sigma", (frames, n_points)),
    ):  # fmt: skip
        array = getattr(evolution, name)
        if array.shape != shape or array.dtype.kind not in "fiu":
            raise ValueError(f"{name} has the shape {array.shape}, not {shape}")
        if name not in ("loss", "log_sigma") and not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")
    evolution.size_px = whole_numbers(evolution.size_px, "size_px", 1, MAX_SIDE_PX)
    evolution.edges = whole_numbers(evolution.edges, "edges", 0, n - 1)
    evolution.point_image = whole_numbers(evolution.point_image, "point_image", 0, n - 1)
    evolution.world = whole_numbers(evolution.world, "world", -1, len(evolution.worlds) - 1)
    evolution.iteration = whole_numbers(evolution.iteration, "iteration", 0, 1 << 40)
    if not (evolution.tan > 0).all():
        raise ValueError("a field of view is not positive")
    return evolution


def _checked_world(world: WorldHistory) -> WorldHistory:
    check_name(world.name)
    if not (isinstance(world.chosen, bool) and isinstance(world.cold, bool)):
        raise ValueError(f"whether the world {world.name} was chosen or cold is not told")
    for number in (world.loss, world.pruned_at, world.epipolar_share):
        if number is not None and not isinstance(number, (int, float)):
            raise ValueError(f"a number of the world {world.name} is {number!r}"[:200])
    return world
