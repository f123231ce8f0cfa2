"""A solve in the browser while it runs."""

from __future__ import annotations

import time

import numpy as np

from proba.graph import ViewGraph
from proba.history.evolution import State
from proba.history.recorder import PixelSample
from proba.pipeline import Observer
from proba.solver import Progress
from proba.viewer import palette
from proba.viewer.framing import frame_scene
from proba.viewer.gate import plain_markdown
from proba.viewer.server import Stage, Viewer

SECONDS_BETWEEN = 0.25
"""The solver waits while a moment is drawn, so there are not too many."""


class LiveView(Observer):
    """An observer that shows the best world of the moment."""

    def __init__(self, viewer: Viewer):
        self.viewer = viewer
        self._text = viewer.server.gui.add_markdown("starting ...")
        self._stage: Stage | None = None
        self._sample: PixelSample | None = None
        self._colours = np.zeros((0, 3), np.uint8)
        self._last = 0.0

    def piece(self, index: int, total: int, graph: ViewGraph) -> None:
        if self._stage is not None:
            self._stage.clear()
        self._stage = self._sample = None

    def iteration(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN and progress.iteration != progress.iterations:
            return
        self._last = now
        state = self._state(progress)
        with self.viewer.server.atomic():
            stage = self._stage or self._open(progress, state)
            stage.place_cameras(state.world_from_cam, state.tan)
            stage.place_edges(state.world_from_cam[:, :3, 3], state.edge_weight)
            stage.place_gaussians(state, self._colours, 1.0)
            self._text.content = plain_markdown(state.title)

    def stage(self, text: str) -> None:
        self._text.content = plain_markdown(f"{text} ...")

    def _open(self, progress: Progress, state: State) -> Stage:
        # The scene is not known yet. Its depth is 1 all along, and so are the distances of the cameras, about.
        framing = frame_scene(state.world_from_cam, state.points * [2, 2, 1])
        width, height = progress.problem.matches.extent.numpy().T  # [N]
        self._stage = Stage(self.viewer.server, framing, width / height, progress.problem.graph.edges)
        self._stage.look()
        return self._stage

    def _state(self, progress: Progress) -> State:
        """The best world, in the frame of its root camera."""
        worlds, problem, best = progress.worlds, progress.problem, progress.best
        if self._sample is None:
            self._sample = PixelSample(problem)
            self._colours = palette.of_images(problem.n_images)[self._sample.image]
        world_from_cam = problem.tree.compose(worlds.parent_from_child[best]).numpy()  # [N, 4, 4]
        tan = worlds.log_tan[best, :, 0].exp().numpy()[problem.camera_of_image.numpy()]  # [N]
        samples = self._sample(worlds.maps[best : best + 1].numpy())[0].astype(np.float64)  # [P, 2]
        image, depth = self._sample.image, np.exp(samples[:, :1])
        local = depth * np.column_stack([self._sample.xy * tan[image, None], np.ones(len(image))])  # [P, 3]
        points = np.einsum("pij,pj->pi", world_from_cam[image, :3, :3], local) + world_from_cam[image, :3, 3]
        title = (
            f"**{worlds.names[best]}** of {len(worlds.names)} worlds, iteration {progress.iteration} of "
            f"{progress.iterations}, loss {progress.loss:.2f}, FoV {progress.fov_deg:.1f}°, "
            f"median error {progress.median_px:.2f} px"
        )
        return State(
            world_from_cam=world_from_cam,
            tan=tan,
            edge_weight=worlds.edge_weight[best].numpy().astype(np.float64),
            points=points,
            sigma=np.exp(samples[:, 1] / 2),
            title=title,
        )
