"""Datasets in their published layouts: real samples where they are, else folders in the exact layout."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from proba.bench.photo_sets import find_sets
from proba.cli import main
from proba.errors import InputError
from proba.evaluation import match_names
from proba.io.datasets import LAYOUTS, layouts_of
from proba.io.ground_truth import GroundTruth, load_ground_truth, true_points
from proba.io.ply import write_ply
from proba.synthetic import make_scene

REAL = ("dtu_scan24", "eth3d_pipes", "imc_reichstag", "middlebury_temple_sparse")
N = 3


@pytest.fixture(scope="module")
def truth() -> GroundTruth:
    """Three cameras of a scene."""
    return make_scene("object", n_images=N, seed=0).ground_truth(cloud=False)


def photo(path: Path, truth: GroundTruth) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (int(truth.width[0]), int(truth.height[0]))).save(path)


def calibration(truth: GroundTruth, n: int, centre: float) -> np.ndarray:  # [3, 3]
    fx, fy, cx, cy = truth.intrinsics[n]
    return np.array([[fx, 0, cx - 0.5 + centre], [0, fy, cy - 0.5 + centre], [0, 0, 1]])


def text(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def numbers(*arrays: np.ndarray) -> str:
    return "\n".join(" ".join(f"{value:.17g}" for value in row) for array in arrays for row in np.atleast_2d(array))


def world_from_cam(truth: GroundTruth) -> np.ndarray:  # [N, 4, 4]
    return np.linalg.inv(truth.cam_from_world)


def write_dtu(root: Path, truth: GroundTruth) -> Path:
    for n in range(N):
        photo(root / "Rectified" / "scan4" / f"rect_{n + 1:03d}_3_r5000.png", truth)
        photo(root / "Rectified" / "scan4" / f"rect_{n + 1:03d}_1_r5000.png", truth)
        matrix = calibration(truth, n, 0.0) @ truth.cam_from_world[n, :3]
        text(root / "Calibration" / "cal18" / f"pos_{n + 1:03d}.txt", numbers(matrix))
    return root / "Rectified" / "scan4"


def write_strecha(root: Path, truth: GroundTruth) -> Path:
    for n, pose in enumerate(world_from_cam(truth)):
        photo(root / "fountain" / "images" / f"{n:04d}.jpg", truth)
        size = np.array([truth.width[n], truth.height[n]])
        content = numbers(calibration(truth, n, 0.0), np.zeros(3), pose[:3, :3], pose[:3, 3], size)
        text(root / "fountain" / "gt_dense_cameras" / f"{n:04d}.jpg.camera", content)
    return root / "fountain"


def colmap_text(folder: Path, truth: GroundTruth, prefix: str, model: str, extra: int) -> None:
    cameras, images = [], []
    for n, pose in enumerate(truth.cam_from_world):
        lens = numbers(truth.intrinsics[n])
        cameras.append(f"{n} {model} {truth.width[n]} {truth.height[n]} {lens}" + " 0.01" * extra)
        x, y, z, w = Rotation.from_matrix(pose[:3, :3]).as_quat()
        images.append(f"{n} {w:.17g} {x:.17g} {y:.17g} {z:.17g} {numbers(pose[:3, 3])} {n} {prefix}DSC_{n}.JPG\n")
    text(folder / "cameras.txt", "\n".join(cameras))
    text(folder / "images.txt", "\n".join(images))
    text(folder / "points3D.txt", "")


def write_eth3d(root: Path, truth: GroundTruth) -> Path:
    scene = root / "pipes"
    for n in range(N):
        photo(scene / "images" / "dslr_images_undistorted" / f"DSC_{n}.JPG", truth)
        photo(scene / "images" / "dslr_images" / f"DSC_{n}.JPG", truth)
    colmap_text(scene / "dslr_calibration_undistorted", truth, "dslr_images_undistorted/", "PINHOLE", 0)
    colmap_text(scene / "dslr_calibration_jpg", truth, "dslr_images/", "THIN_PRISM_FISHEYE", 8)
    (scene / "dslr_scan_eval").mkdir()
    write_ply(scene / "dslr_scan_eval" / "scan1.ply", np.array([[0.0, 0, 0], [1, 2, 3]]))
    text(
        scene / "dslr_scan_eval" / "scan_alignment.mlp",
        """<!DOCTYPE MeshLabDocument>
<MeshLabProject><MeshGroup><MLMesh label="scan1" filename="scan1.ply">
<MLMatrix44>
0 -1 0 10
1 0 0 20
0 0 1 30
0 0 0 1
</MLMatrix44></MLMesh></MeshGroup></MeshLabProject>""",
    )
    return scene


def poses_bounds(folder: Path, truth: GroundTruth) -> None:
    pose = world_from_cam(truth)[:, :3]  # [N, 3, 4]
    lens = np.stack([truth.height, truth.width, truth.intrinsics[:, 0]], axis=1)[:, :, None]  # [N, 3, 1]
    matrix = np.concatenate([pose[:, :, 1:2], pose[:, :, :1], -pose[:, :, 2:3], pose[:, :, 3:], lens], axis=2)
    np.save(folder / "poses_bounds.npy", np.hstack([matrix.reshape(N, 15), np.ones((N, 2))]))


def write_llff(root: Path, truth: GroundTruth) -> Path:
    for n in range(N):
        photo(root / "fern" / "images" / f"IMG_{n}.JPG", truth)
    poses_bounds(root / "fern", truth)
    return root / "fern"


def write_mip360(root: Path, truth: GroundTruth) -> Path:
    for n in range(N):
        photo(root / "bonsai" / "images" / f"DSCF{n}.JPG", truth)
        photo(root / "bonsai" / "images_2" / f"DSCF{n}.JPG", truth)
    poses_bounds(root / "bonsai", truth)
    return root / "bonsai"


def write_tum(root: Path, truth: GroundTruth) -> Path:
    scene, lines, track = root / "rgbd_dataset_freiburg3_toy", ["# photos"], ["# timestamp tx ty tz qx qy qz qw"]
    for n, pose in enumerate(world_from_cam(truth)):
        photo(scene / "rgb" / f"{n}.5.png", truth)
        photo(scene / "depth" / f"{n}.51.png", truth)
        lines.append(f"{n}.5 rgb/{n}.5.png")
        quaternion = Rotation.from_matrix(pose[:3, :3]).as_quat()
        track += [f"{n}.{part} {numbers(pose[:3, 3])} {numbers(quaternion)}" for part in (4, 6)]
    lines.append("9.5 rgb/none.png")  # after the last pose
    text(scene / "rgb.txt", "\n".join(lines))
    text(scene / "depth.txt", "\n".join(f"{n}.51 depth/{n}.51.png" for n in range(N)))
    text(scene / "groundtruth.txt", "\n".join(track))
    return scene


def write_seven_scenes(root: Path, truth: GroundTruth) -> Path:
    scene = root / "chess" / "seq-01"
    for n, pose in enumerate(world_from_cam(truth)):
        photo(scene / f"frame-{n:06d}.color.png", truth)
        depth = np.full((truth.height[0], truth.width[0]), 65535, np.uint16)
        depth[0, :2] = (0, 2000)
        Image.fromarray(depth).save(scene / f"frame-{n:06d}.depth.png")
        text(scene / f"frame-{n:06d}.pose.txt", numbers(pose))
    return scene


WRITERS = {
    "dtu": write_dtu,
    "strecha": write_strecha,
    "eth3d": write_eth3d,
    "llff": write_llff,
    "mip360": write_mip360,
    "tum": write_tum,
    "7scenes": write_seven_scenes,
}


@pytest.mark.parametrize("name", WRITERS)
def test_cameras_come_back_from_every_layout(name: str, tmp_path: Path, truth: GroundTruth) -> None:
    folder = WRITERS[name](tmp_path, truth)
    (layout, *_) = layouts_of(folder)
    assert layout.name == name
    found = load_ground_truth(folder)  # what `proba eval --gt` reads
    assert len(found.names) == N
    np.testing.assert_allclose(found.cam_from_world, truth.cam_from_world, atol=1e-6)
    if name not in ("tum", "7scenes"):  # whose lenses are the dataset's, not the file's
        centred = name in ("llff", "mip360")
        np.testing.assert_allclose(
            found.intrinsics[:, : 2 if centred else 4], truth.intrinsics[:, : 2 if centred else 4]
        )
    (photos, *_) = find_sets(tmp_path)
    assert photos.name.startswith(f"{name}_") and photos.dataset == name
    shown = sorted(path.name for path in photos.images(tmp_path / "cache").iterdir())
    assert [match_names([one], found.names) for one in shown] == [[n] for n in range(N)]


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_real_samples_agree_with_their_other_ground_truth(name: str) -> None:
    root = os.environ.get("PROBA_DATA")
    if not root or not (Path(root) / name).is_dir():
        pytest.skip("needs PROBA_DATA")
    folder = Path(root) / name
    (layout,) = layouts_of(folder)
    found, known = layout.load(folder), load_ground_truth(folder / "gt.json")
    index = match_names(found.names, known.names)
    np.testing.assert_allclose(found.cam_from_world, known.cam_from_world[index], atol=1e-9)
    aspect = found.intrinsics[:, 0] / found.intrinsics[:, 1]
    np.testing.assert_allclose(aspect, known.intrinsics[index, 0] / known.intrinsics[index, 1], rtol=2e-3)


def test_eth3d_has_two_sets_and_laser_points_in_the_cameras_frame(tmp_path: Path, truth: GroundTruth) -> None:
    folder = write_eth3d(tmp_path, truth)
    assert [photos.name for photos in find_sets(tmp_path)] == ["eth3d_pipes", "eth3d_distorted_pipes"]
    for layout in layouts_of(folder):
        found = layout.load(folder)
        assert found.metres_per_unit == 1.0
        np.testing.assert_allclose(found.points, [[10, 20, 30], [8, 21, 33]])
    assert layouts_of(folder)[1].photos(folder).name == "dslr_images"


def test_depth_sensors_have_two_ways_to_see_nothing(tmp_path: Path, truth: GroundTruth) -> None:
    found = load_ground_truth(write_seven_scenes(tmp_path, truth))
    points = true_points(found)
    assert points is not None and len(points) == N  # one valid count in each
    in_camera = np.einsum("nij,nj->ni", found.cam_from_world[:, :3, :3], points) + found.cam_from_world[:, :3, 3]
    np.testing.assert_allclose(in_camera[:, 2], 2.0)


def test_tum_photos_find_their_depth_and_lens(tmp_path: Path, truth: GroundTruth) -> None:
    found = load_ground_truth(write_tum(tmp_path, truth))
    assert found.intrinsics[0, 0] == 535.4 and found.distortion is None
    assert found.depth_paths is not None and next(path.name for path in found.depth_paths if path) == "0.51.png"


def test_damaged_scenes_are_refused_in_one_line(tmp_path: Path, truth: GroundTruth) -> None:
    folder = write_strecha(tmp_path, truth)
    (folder / "gt_dense_cameras" / "0000.jpg.camera").write_text("1 2 3")
    with pytest.raises(InputError, match=r"3 numbers, not 26.*proba bench datasets"):
        load_ground_truth(folder)
    folder = write_llff(tmp_path, replace(truth))
    (folder / "images" / "IMG_0.JPG").unlink()
    with pytest.raises(InputError, match="2 photos and 3 poses"):
        load_ground_truth(folder)


def test_the_command_says_where_each_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    main(["bench", "datasets"])
    shown = capsys.readouterr().out
    assert all(layout.source in shown and layout.licence in shown for layout in LAYOUTS)
