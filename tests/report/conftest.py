"""A finished solve made of the truth, without solving anything."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from proba.matches import Matches
from proba.pipeline import Piece, SolveOptions, SolveResult
from proba.reconstruction import Camera, Edge, Points, Reconstruction
from proba.report import report_dict
from proba.report.facts import match_errors
from proba.solution import Hypothesis
from proba.synthetic import make_scene, scene_matches

NOISE_PX = 0.3


@dataclass
class Finished:
    """What a run hands to the report, and the knobs of the tests."""

    matches: Matches
    rec: Reconstruction
    unmatched: list[str] = field(default_factory=list)
    unplaced: list[str] = field(default_factory=list)
    interrupted: bool = False

    def result(self) -> SolveResult:
        """As a solve would end: the share of each pair that is explained follows from the poses."""
        index = {info.name: k for k, info in enumerate(self.matches.images)}
        for k, edge in enumerate(self.rec.edges):
            i, j = index[edge.i], index[edge.j]
            errors = match_errors(self.rec, i, j, self.matches.pairs[i, j])
            self.rec.edges[k] = replace(edge, explained=float((errors < 3).mean()))
        curve = [[10 * k, 5.0 - k] for k in range(5)]
        worlds = [("fov50", True, None, 0.99), ("fov50-mirror", False, None, 0.71), ("fov17", False, 20, None)]
        piece = Piece(
            reconstruction=self.rec,
            hypotheses=[
                Hypothesis(
                    name=name,
                    loss=1.0,
                    chosen=chosen,
                    pruned_at=pruned_at,
                    epipolar_share=None if pruned_at else 0.9,
                    explained_share=share,
                    curve=curve,
                )
                for name, chosen, pruned_at, share in worlds
            ],
            attempt=0,
            iterations=40,
            surviving_share=0.95,
            noise_px=NOISE_PX,
            rescued=[],
            unplaced=self.unplaced,
            seconds={"solve": 1.0, "refine": 1.0},
        )
        return SolveResult(
            pieces=[piece],
            unmatched=self.unmatched,
            failed=[],
            seconds={"graph": 0.1, "solve": 1.0, "refine": 1.0},
            peak_rss_mb=100.0,
            interrupted=self.interrupted,
        )

    def report(self) -> dict:
        return report_dict(self.matches, self.result(), SolveOptions())


@pytest.fixture
def finished() -> Finished:
    scene = make_scene("object", n_images=8, seed=0)
    matches = scene_matches(scene, grid=24, min_matches=20, noise_px=NOISE_PX)
    names = [info.name for info in matches.images]
    rec = Reconstruction(
        image_names=names,
        cameras=[
            Camera(
                model="SIMPLE_PINHOLE",
                width=scene.width,
                height=scene.height,
                params=scene.intrinsics[0, [0, 2, 3]],
                focal_std_px=1.0,
            )
        ],
        camera_of_image=np.zeros(len(names), int),
        cam_from_world=scene.cam_from_world,
        pose_std=np.full((len(names), 6), 1e-4),
        points=_points(scene),
        edges=[
            Edge(i=names[i], j=names[j], matches=len(pair.points_i), weight=0.8, explainable=1.0, explained=1.0)
            for (i, j), pair in matches.pairs.items()
        ],
    )
    return Finished(matches, rec)


def _points(scene) -> Points:
    """True points with noisy observations in the images that see them."""
    rng = np.random.default_rng(0)
    xyz = scene.sample_points(24, 18)
    obs_point, obs_image, obs_xy = [], [], []
    for n in range(scene.n_images):
        pixels = scene.project(n, xyz)[0]  # NaN behind the camera
        framed = (pixels > 0).all(axis=1) & (pixels < [scene.width, scene.height]).all(axis=1)
        seen = np.flatnonzero(framed & scene.visible(n, xyz))
        pixels = pixels[seen]
        obs_point.append(seen)
        obs_image.append(np.full(len(seen), n))
        obs_xy.append(pixels + rng.normal(0, NOISE_PX, pixels.shape))
    return Points(
        xyz=xyz,
        rgb=np.full((len(xyz), 3), 90, np.uint8),
        sigma=np.full(len(xyz), 0.01),
        error_px=np.full(len(xyz), NOISE_PX),
        obs_point=np.concatenate(obs_point),
        obs_image=np.concatenate(obs_image),
        obs_xy=np.concatenate(obs_xy).astype(np.float32),
    )
