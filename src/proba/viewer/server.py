"""The browser viewer (viser): a result, or a solve while it runs. Serves on this machine only."""

from __future__ import annotations

import contextlib
import html
import io
import logging
import os
import signal
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from proba.errors import InputError
from proba.history.evolution import State
from proba.viewer import palette
from proba.viewer.chunks import Chunks
from proba.viewer.drawing import MAGNIFIED, TRUTH_SIZE, shown_radius
from proba.viewer.framing import VIEW_FOV_DEG, Framing
from proba.viewer.gate import only_this_machine, plain_markdown
from proba.viewer.scene import PieceScene

HOST = "127.0.0.1"
THUMBNAIL_PX, PHOTO_PX = 160, 640
SIZES = 6
"""The Gaussians of a moment are drawn as this number of clouds, each with its own point size."""
LARGEST_BALL = 0.018
"""Largest Gaussian as a share of the scene's radius: here they hide what is behind them."""
PLAY_FPS = 12
WHOLE_POINTS = 100_000
"""A cloud with no more points than this is always shown whole."""
POINT_PX = 2.0
"""About the size of a far point on the screen."""
LAYERS = (0, 1 / 16, 1 / 4, 1)
"""A larger one is sent as layers of its chunks, which come and go with the distance of the viewer."""
MAX_SEEN, MAX_EDGES = 300, 20


def quaternion(rotation: np.ndarray) -> np.ndarray:  # [4] wxyz
    """Of a rotation matrix [3, 3]; the eigenvector that is stable for every angle (Bar-Itzhack)."""
    (a, b, c), (d, e, f), (g, h, i) = rotation
    symmetric = np.array(
        [
            [a - e - i, d + b, g + c, h - f],
            [d + b, e - a - i, h + f, c - g],
            [g + c, h + f, i - a - e, d - b],
            [h - f, c - g, d - b, a + e + i],
        ]
    )
    x, y, z, w = np.linalg.eigh(symmetric / 3)[1][:, -1]
    return np.array([w, x, y, z])


def linear(rgb: np.ndarray) -> np.ndarray:
    """Colours [..., 3] uint8 as viser wants those of lines: it shows them brightened by the display's curve."""
    return (255 * (np.asarray(rgb) / 255) ** 2.2).round().astype(np.uint8)


class Stage:
    """The shapes in the browser: cameras, edges, Gaussians and the cloud of one scene."""

    def __init__(self, server: Any, framing: Framing, aspect: np.ndarray, edges: np.ndarray):
        self.server, self.framing, self.aspect, self.edges = server, framing, aspect, edges
        self.cameras: list[Any] = []
        self.camera_size = 1.0
        self.show_edges, self.show_cameras = True, True
        self.on_click: Callable[[int], None] = lambda n: None
        self._lines: Any = None
        self._clouds: list[Any] = []
        self._layers: list[tuple[int, int, Any]] = []  # chunk, how many points of it come before, cloud

    def look(self) -> None:
        """Take the first view, in browsers that are open and in those that come."""
        framing, scene = self.framing, self.server.scene
        scene.set_up_direction(framing.up)
        initial = self.server.initial_camera
        initial.position, initial.look_at = framing.eye, framing.focus
        initial.up, initial.fov = framing.up, np.radians(VIEW_FOV_DEG)
        initial.near, initial.far = framing.radius / 100, framing.radius * 100
        for client in self.server.get_clients().values():
            with client.atomic():
                client.camera.up_direction = framing.up
                client.camera.position, client.camera.look_at = framing.eye, framing.focus

    def place_cameras(self, world_from_cam: np.ndarray, tan: np.ndarray) -> None:
        """Make the cameras, or move them."""
        colours = linear(palette.of_images(len(tan)))
        size = self._size(tan)
        for n, pose in enumerate(world_from_cam):
            wxyz, position = quaternion(pose[:3, :3]), pose[:3, 3]
            if n < len(self.cameras):
                camera = self.cameras[n]
                camera.wxyz, camera.position, camera.fov = wxyz, position, self._vertical_fov(tan, n)
                camera.scale, camera.visible = size[n], self.show_cameras
                continue
            camera = self.server.scene.add_camera_frustum(
                f"/cameras/{n}",
                fov=self._vertical_fov(tan, n),
                aspect=float(self.aspect[n]),
                scale=size[n],
                thickness=1.6,
                thickness_units="screen",
                color=tuple(colours[n].tolist()),
                wxyz=wxyz,
                position=position,
                cast_shadow=False,
                receive_shadow=False,
            )
            camera.on_click(lambda _, n=n: self.on_click(n))
            self.cameras.append(camera)

    def _vertical_fov(self, tan: np.ndarray, n: int) -> float:
        return float(2 * np.arctan(tan[n] * min(1.0, 1 / self.aspect[n])))

    def _size(self, tan: np.ndarray) -> list[float]:
        """viser's scale of each camera, at which its depth is that of `drawing.frustums`."""
        down = tan * np.minimum(1, 1 / self.aspect)  # [N]
        per_depth = np.cbrt(down**2 * self.aspect / 3)  # viser draws all fields of view with the same volume
        return (self.camera_size * self.framing.frustum / np.maximum(1, tan) * per_depth).tolist()

    def mark(self, selected: int) -> None:
        """Make one camera stand out."""
        for n, (camera, colour) in enumerate(
            zip(self.cameras, linear(palette.of_images(len(self.cameras))), strict=True)
        ):
            camera.color = (255, 216, 51) if n == selected else tuple(colour.tolist())
            camera.thickness = 4.0 if n == selected else 1.6

    def place_edges(self, centres: np.ndarray, weight: np.ndarray, selected: int = -1) -> None:
        """Lines from camera to camera, red to green; only those of a selected camera."""
        if self._lines is not None:
            self._lines.remove()
            self._lines = None
        keep = np.ones(len(self.edges), bool) if selected < 0 else (self.edges == selected).any(1)
        if not self.show_edges or not keep.any() or len(weight) != len(self.edges):
            return
        colours = palette.of_weights(weight[keep])
        if selected < 0:
            colours = (0.7 * colours + 0.3 * np.array(palette.BACKGROUND)).astype(np.uint8)
        self._lines = self.server.scene.add_line_segments(
            "/edges",
            points=centres[self.edges[keep]].astype(np.float32),
            colors=np.repeat(linear(colours)[:, None], 2, axis=1),
            thickness=1.2,
            thickness_units="screen",
        )

    def place_cloud(self, xyz: np.ndarray, rgb: np.ndarray, chunks: Chunks, share: float, size: float) -> None:
        """The points of the result, or the first ones of each chunk."""
        self.clear_points()
        self.chunks = chunks
        if share * len(xyz) <= WHOLE_POINTS:
            some = chunks.first(share)
            self._clouds = [self._add_cloud("/points", xyz[some], rgb[some], size)]
            return
        for c, (first, past) in enumerate(pairwise(chunks.start)):
            bounds = [first + int(layer * share * (past - first)) for layer in LAYERS]
            for begin, end in pairwise(bounds):
                layer = self._add_cloud(f"/points/{c}/{begin}", xyz[begin:end], rgb[begin:end], size)
                self._layers.append((c, begin - first, layer))
        self._clouds = [layer for _, _, layer in self._layers]
        self.follow()

    def _add_cloud(self, name: str, xyz: np.ndarray, rgb: np.ndarray, size: float) -> Any:
        return self.server.scene.add_point_cloud(
            name, xyz, rgb, point_size=size, point_shape="circle", point_shading="flat", precision="float32"
        )

    def follow(self) -> None:
        """Show the layers that are worth it from where anybody looks."""
        eyes = [client.camera for client in self.server.get_clients().values()]
        if not self._layers or not eyes:
            return
        focal = [(eye.image_height or 1000) / 2 / np.tan(eye.fov / 2) for eye in eyes]
        wanted = np.max(
            [self.chunks.wanted(eye.position, f, POINT_PX) for eye, f in zip(eyes, focal, strict=True)], axis=0
        )
        for chunk, begin, layer in self._layers:
            if layer.visible != (begin < wanted[chunk]):
                layer.visible = bool(begin < wanted[chunk])

    def place_gaussians(self, state: State, rgb: np.ndarray, size: float) -> None:
        """Gaussians as balls, in a few classes of size."""
        radius = size * shown_radius(state.sigma, self.framing.radius, LARGEST_BALL)
        bounds = np.geomspace(radius.min(), radius.max() * 1.001, SIZES + 1)
        clouds = []
        for k in range(SIZES):
            mine = (radius >= bounds[k]) & (radius < bounds[k + 1])
            if mine.any():
                clouds.append(
                    self.server.scene.add_point_cloud(
                        f"/gaussians/{k}",
                        state.points[mine].astype(np.float32),
                        rgb[mine],
                        point_size=float(2 * np.median(radius[mine])),
                        point_shape="circle",
                        point_shading="gradient",
                        precision="float32",
                    )
                )
        # Clouds of the same name were replaced; only the others have to go.
        names = {cloud.name for cloud in clouds}
        for old in self._clouds:
            if old.name not in names:
                old.remove()
        self._clouds, self._layers = clouds, []

    def clear_points(self) -> None:
        for old in self._clouds:
            old.remove()
        self._clouds, self._layers = [], []

    def clear(self) -> None:
        """Leave an empty scene."""
        self.clear_points()
        for camera in self.cameras:
            camera.remove()
        self.cameras = []
        if self._lines is not None:
            self._lines.remove()
            self._lines = None


class Viewer:
    """A server with its panel. `show` a result, or let `live.LiveView` drive it."""

    def __init__(self, *, port: int = 8080):
        try:
            import viser
        except ImportError as error:
            raise InputError("The viewer needs viser: `pip install viser`. Or use --save page.html.") from error
        if not 0 < port < 65536:
            raise InputError(f"--port must be between 1 and 65535, not {port}")
        logging.getLogger("websockets").setLevel(logging.ERROR)
        with contextlib.redirect_stdout(io.StringIO()), only_this_machine():  # its banner; ours is one line
            self.server = viser.ViserServer(host=HOST, port=port, label="ProBA", verbose=False)
        self.server.gui.configure_theme(
            dark_mode=True, show_logo=False, show_share_button=False, control_width="medium", control_layout="floating"
        )
        self.server.scene.set_background_image(np.full((2, 2, 3), palette.BACKGROUND, np.uint8))
        self.server.on_client_connect(self._connect)
        self._show: _Show | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server.get_port()}"

    def announce(self, *, browser: bool) -> None:
        """Say where it is, and open a browser if there is one."""
        print(f"viewer at {self.url} (Ctrl-C ends it)", flush=True)
        if browser and _has_display():
            webbrowser.open(self.url)

    def show(self, pieces: list[PieceScene]) -> None:
        """Show a result instead of what was there."""
        if self._show is not None:
            self._show.close()
        self.server.gui.reset()
        self._show = _Show(self.server, pieces)

    def _connect(self, client: Any) -> None:
        client.camera.on_update(lambda _: self._show.follow() if self._show is not None else None)

    def select(self, image: int) -> None:
        """As if a camera had been clicked."""
        if self._show is not None:
            self._show.select(image)

    def go_to(self, moment: int) -> None:
        """As if the time had been moved to a frame of the story."""
        if self._show is not None:
            self._show.time.value = moment

    def stop(self) -> None:
        if self._show is not None:
            self._show.close()
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()


def _has_display() -> bool:
    """Without one, `webbrowser` would start a browser for terminals."""
    return sys.platform in ("win32", "darwin") or any(os.environ.get(k) for k in ("DISPLAY", "WAYLAND_DISPLAY"))


def wait() -> None:
    """Until Ctrl-C, or until the process is asked to end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # not pycolmap's, which prints a stack trace
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print()


class _Show:
    """One result in the browser, with its panel."""

    def __init__(self, server: Any, pieces: list[PieceScene]):
        self.server, self.pieces = server, pieces
        self.lock = threading.RLock()  # viser calls back from its own threads
        self.playing = threading.Event()
        self.closed = threading.Event()
        self.selected = -1
        self._truth: list[Any] = []
        self.stage = Stage(server, pieces[0].framing, pieces[0].aspect, pieces[0].edges)
        self._build_panel()
        self.open_piece(0)
        threading.Thread(target=self._play, daemon=True).start()

    def close(self) -> None:
        self.closed.set()
        self.playing.set()
        with self.lock:
            self.stage.clear()
            for camera in self._truth:
                camera.remove()

    # ---- the panel

    def _build_panel(self) -> None:
        gui = self.server.gui
        self.summary = gui.add_markdown("")
        self.piece = gui.add_dropdown(
            "piece", [f"{k}: {len(p.rec)} images" for k, p in enumerate(self.pieces)], visible=len(self.pieces) > 1
        )
        self.colour = gui.add_dropdown("colour", self.pieces[0].colourings)
        self.share = gui.add_slider("points %", 1, 100, 1, 100, hint="fewer points move more smoothly")
        self.size = gui.add_slider("point size", 0.2, 4.0, 0.1, 1.0)
        self.camera_size = gui.add_slider("camera size", 0.1, 3.0, 0.1, 1.0)
        self.cameras = gui.add_checkbox("cameras", True)
        self.edges = gui.add_checkbox("edges", True, hint="red: weight 0, green: 1")
        self.truth = gui.add_checkbox("true cameras", True, visible=any(p.truth is not None for p in self.pieces))
        with gui.add_folder("history") as self.folder:
            self.world = gui.add_dropdown("search from", ("-",))
            self.time = gui.add_slider("time", 0, 1, 1, 1)
            self.play = gui.add_button("play")
            self.title = gui.add_markdown("")
        self.details = gui.add_folder("camera")
        with self.details:
            self.details_text = gui.add_markdown("*click a camera*")

        self.piece.on_update(lambda _: self.open_piece(int(str(self.piece.value).split(":")[0])))
        for control in (self.colour, self.share, self.size):
            control.on_update(lambda _: self._draw_points())
        for control in (self.camera_size, self.cameras, self.edges, self.truth):
            control.on_update(lambda _: self.draw())
        self.world.on_update(lambda _: self._open_world())
        self.time.on_update(lambda event: self.draw())
        self.play.on_click(lambda _: self._toggle())

    def open_piece(self, index: int) -> None:
        with self.lock, self.server.atomic():
            self.stage.clear()
            self.scene = scene = self.pieces[index]
            self.stage = Stage(self.server, scene.framing, scene.aspect, scene.edges)
            self.stage.on_click = self.select
            self.stage.look()
            self.summary.content = f"**{len(scene.rec)} images**, {len(scene.edges)} edges, {scene.points_text}"
            self.colour.options = scene.colourings
            self.selected = -1
            evolution = scene.evolution
            self.folder.visible = evolution is not None
            self._labels = [scene.world_label(k) for k in range(len(evolution.worlds))] if evolution else []
            self._frames = np.zeros(0, int)
            if evolution is not None:
                self.world.options = tuple(self._labels)
                self.world.value = self._labels[evolution.told]
                self._open_world()
            else:
                self.draw()
            self._draw_truth()
        threading.Thread(target=self._hang_photos, args=(self.stage, scene), daemon=True).start()

    def _open_world(self) -> None:
        with self.lock:
            evolution = self.scene.evolution
            assert evolution is not None
            self.playing.clear()
            self._frames = evolution.timeline(self._labels.index(str(self.world.value)))
            last = len(self._frames) - 1
            self.time.max = max(1, last)
            self.time.disabled = self.play.disabled = last == 0
            self.time.value = max(1, last)
            self.draw()

    # ---- the scene

    @property
    def refined(self) -> bool:
        """Whether the result itself is shown, and not a moment of the solve."""
        evolution = self.scene.evolution
        return evolution is None or bool(evolution.world[self._frame] == -1)

    @property
    def _frame(self) -> int:
        return int(self._frames[min(int(self.time.value), len(self._frames) - 1)])

    def _state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scene = self.scene
        if self.refined:
            return scene.rec.world_from_cam, scene.tan, scene.edge_weight
        assert scene.evolution is not None
        state = scene.evolution.state(self._frame)
        return state.world_from_cam, state.tan, state.edge_weight

    def draw(self) -> None:
        """All that depends on the time."""
        with self.lock, self.server.atomic():
            stage = self.stage
            stage.camera_size, stage.show_cameras = float(self.camera_size.value), bool(self.cameras.value)
            stage.show_edges = bool(self.edges.value)
            poses, tan, weight = self._state()
            stage.place_cameras(poses, tan)
            stage.place_edges(poses[:, :3, 3], weight, self.selected)
            self._draw_points()
            if self.scene.evolution is not None:
                self.title.content = plain_markdown(self.scene.evolution.title(self._frame))
            for camera in self._truth:
                camera.visible = bool(self.truth.value)

    def _draw_points(self) -> None:
        with self.lock, self.server.atomic():
            scene, size = self.scene, float(self.size.value)
            if self.refined:
                share = float(self.share.value) / 100
                thickness = size * scene.framing.radius * (0.007 if share * len(scene.xyz) < 50_000 else 0.004)
                self.stage.place_cloud(scene.xyz, scene.colours(str(self.colour.value)), scene.chunks, share, thickness)
            else:
                assert scene.evolution is not None
                self.stage.place_gaussians(scene.evolution.state(self._frame), scene.sample_colours, size)

    def follow(self) -> None:
        """The viewer moved."""
        with self.lock, self.server.atomic():
            self.stage.follow()

    def _draw_truth(self) -> None:
        for camera in self._truth:
            camera.remove()
        self._truth = []
        if self.scene.truth is None:
            return
        stage, tan = self.stage, self.scene.tan
        for n in np.flatnonzero(np.isfinite(self.scene.truth).all((1, 2))):
            pose = self.scene.truth[n]
            self._truth.append(
                self.server.scene.add_camera_frustum(
                    f"/truth/{n}",
                    fov=stage._vertical_fov(tan, int(n)),
                    aspect=float(stage.aspect[n]),
                    scale=TRUTH_SIZE * stage._size(tan)[n],
                    thickness=1.2,
                    thickness_units="screen",
                    color=palette.TRUTH,
                    wxyz=quaternion(pose[:3, :3]),
                    position=pose[:3, 3],
                    cast_shadow=False,
                    receive_shadow=False,
                )
            )

    def _hang_photos(self, stage: Stage, scene: PieceScene) -> None:
        """Put the photos on their cameras as they are read."""
        for n in range(len(scene.rec)):
            rgb = scene.photos(n, THUMBNAIL_PX)
            with self.lock:
                if self.closed.is_set() or stage is not self.stage:
                    return
                if rgb is not None:
                    stage.cameras[n].image = rgb

    # ---- playback

    def _toggle(self) -> None:
        with self.lock:
            if self.playing.is_set():
                self.playing.clear()
            else:
                if self.time.value >= self.time.max:
                    self.time.value = 0
                self.playing.set()

    def _play(self) -> None:
        while not self.closed.is_set():
            self.playing.wait()
            with self.lock:
                if self.playing.is_set() and not self.closed.is_set():
                    self.time.value = min(int(self.time.value) + 1, int(self.time.max))  # draws by its callback
                    if self.time.value >= self.time.max:
                        self.playing.clear()
            time.sleep(1 / PLAY_FPS)

    # ---- one camera

    def select(self, image: int) -> None:
        """Show what is known of a camera; a second click lets it go."""
        with self.lock, self.server.atomic():
            self.selected = -1 if image == self.selected else image
            self.stage.mark(self.selected)
            poses, _, weight = self._state()
            self.stage.place_edges(poses[:, :3, 3], weight, self.selected)
            self.details.remove()
            gui = self.server.gui
            self.details = gui.add_folder("camera")
            with self.details:
                if self.selected < 0:
                    gui.add_markdown("*click a camera*")
                    return
                gui.add_html(f"<div style='padding:0 1em;font-weight:600'>{html.escape(self._name(image))}</div>")
                picture = self.overlay(image)
                if picture is not None:
                    gui.add_image(picture, format="jpeg", label=f"green: seen, red: projected, error x {MAGNIFIED}")
                gui.add_html(self._tables(image))

    def _name(self, image: int) -> str:
        return self.scene.rec.image_names[image]

    def overlay(self, image: int) -> np.ndarray | None:
        """The photo with points where they were seen and where they project."""
        from PIL import Image, ImageDraw

        rgb = self.scene.photos(image, PHOTO_PX)
        if rgb is None:
            return None
        camera = self.scene.rec.camera(image)
        scale = np.array([rgb.shape[1] / camera.width, rgb.shape[0] / camera.height])
        seen, projected = self.scene.observations(image)
        every = max(1, len(seen) // MAX_SEEN)
        picture = Image.fromarray(rgb)
        draw = ImageDraw.Draw(picture)
        for a, b in zip(seen[::every] * scale, projected[::every] * scale, strict=True):
            if not np.isfinite(b).all():
                continue
            x, y = a
            u, v = a + MAGNIFIED * (b - a)
            draw.ellipse((x - 3, y - 3, x + 3, y + 3), outline=(61, 220, 132))
            draw.line((x, y, u, v), fill=(255, 84, 112))
            draw.ellipse((u - 1, v - 1, u + 1, v + 1), fill=(255, 84, 112))
        return np.asarray(picture)

    def _tables(self, image: int) -> str:
        """Numbers of a camera and its edges, as HTML; names come from outside and are escaped."""
        row = "<tr>{}</tr>".format
        cell = "<td style='padding:1px 6px 1px 0'>{}</td>".format
        facts = "".join(
            row(cell(key) + cell(html.escape(text))) for key, text in self.scene.camera_facts(image).items()
        )
        head = row("".join(cell(f"<i>{text}</i>") for text in ("edge to", "weight", "matches", "points", "error px")))
        edges = "".join(
            row(
                cell(html.escape(edge.name))
                + "".join(
                    cell(text) for text in (f"{edge.weight:.2f}", edge.matches, edge.shared, f"{edge.error_px:.2f}")
                )
            )
            for edge in self.scene.neighbours(image)[:MAX_EDGES]
        )
        style = "font-size:0.8em;padding:0.3em 1em"
        return f"<div style='{style}'><table>{facts}</table><br><table>{head}{edges}</table></div>"
