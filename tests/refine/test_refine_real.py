"""The refinement on real photos: surveyed cameras, disturbed, must come back more accurate than COLMAP's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pycolmap
import pytest
from perturbed_world import disturb_poses, relative_errors_deg

from proba.cameras import make_setup
from proba.graph import build_view_graphs
from proba.io.ground_truth import GroundTruth, load_ground_truth
from proba.matches import ImageInfo, Matches
from proba.refine import refine
from proba.solution import Solution

NAME = "strecha_herzjesu_p8"


def sift_matches(folder: Path, work: Path, truth: GroundTruth) -> Matches:
    """Verified SIFT matches of all pairs, by COLMAP."""
    database_path = work / "sift.db"
    extraction = pycolmap.FeatureExtractionOptions()
    extraction.use_gpu, extraction.num_threads = False, 1
    extraction.sift.max_num_features = 2000
    pycolmap.extract_features(database_path, folder, extraction_options=extraction)
    matching = pycolmap.FeatureMatchingOptions()
    matching.use_gpu, matching.num_threads = False, 1
    pycolmap.match_exhaustive(database_path, matching_options=matching)
    matches = Matches(
        images=[
            ImageInfo(name=n, width=int(w), height=int(h))
            for n, w, h in zip(truth.names, truth.width, truth.height, strict=True)
        ]
    )
    with pycolmap.Database.open(database_path) as database:
        ids = {image.name: image.image_id for image in database.read_all_images()}
        keypoints = [database.read_keypoints(ids[name])[:, :2] for name in truth.names]
        for i, a in enumerate(truth.names):
            for j in range(i + 1, len(truth.names)):
                found = database.read_two_view_geometry(ids[a], ids[truth.names[j]]).inlier_matches
                if len(found):
                    matches.add(i, j, keypoints[i][found[:, 0]], keypoints[j][found[:, 1]])
    return matches


@pytest.mark.real
@pytest.mark.slow
def test_surveyed_cameras_come_back(data_root: Path, tmp_path: Path) -> None:
    folder = data_root / NAME
    truth = load_ground_truth(folder / "gt.json")
    matches = sift_matches(folder / "images", tmp_path, truth)
    graph = build_view_graphs(matches)[0][0]
    rng = np.random.default_rng(0)
    poses = disturb_poses(truth.cam_from_world[graph.images], rotation_deg=4, position=0.1, rng=rng)
    # The depth of a facade seen from everywhere: one number is enough to start from.
    typical = np.log(np.linalg.norm(truth.centres - truth.centres.mean(axis=0), axis=1).max() * 2)
    n = graph.n_images
    solution = Solution(
        graph=graph,
        name="disturbed",
        loss=0.0,
        epipolar_share=1.0,
        cam_from_world=poses,
        cameras=make_setup([matches.images[k] for k in graph.images]),
        focal_px=np.full((n, 2), truth.intrinsics[0, 0] * 1.15),
        log_depth=np.full((n, 1, 1), typical, np.float32),
        log_variance=np.zeros((n, 1, 1), np.float32),
        edge_weight=np.ones(graph.n_edges, np.float32),
    )
    result = refine(matches, [solution])
    rotation, translation = relative_errors_deg(
        result.reconstruction.cam_from_world, truth.cam_from_world[graph.images]
    )
    assert np.median(rotation) < 0.1  # a centred principal point gives 0.12, COLMAP's default
    assert np.median(translation) < 0.15
    assert translation.max() < 1
    focal_px = result.reconstruction.cameras[0].focal_px[0]
    assert focal_px == pytest.approx(truth.intrinsics[0, 0], rel=0.003)
