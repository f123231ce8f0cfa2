"""Dense depth of rendered photos against the exact depth of their scene."""

import json
import shutil

import numpy as np
import pytest
from exact_reconstruction import exact_reconstruction
from PIL import Image

from proba import api
from proba.dense.dense_depth import DenseOptions
from proba.errors import InputError
from proba.io.dense_folder import DensePiece, load_dense
from proba.io.ground_truth import GroundTruth, save_ground_truth
from proba.io.ply import read_ply
from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction
from proba.synthetic.render import render

WIDTH, HEIGHT = 200, 150
OPTIONS = DenseOptions(max_side_px=WIDTH)


@pytest.fixture(scope="module")
def photographed(tmp_path_factory):
    """A scene, and a result with its exact cameras, before any dense depth."""
    folder = tmp_path_factory.mktemp("dense")
    scene, reconstruction = exact_reconstruction("object", 6)
    reconstruction.cameras[0].params = scene.intrinsics[0].copy()  # those the photos are rendered with
    points = reconstruction.points
    for n in range(len(reconstruction)):
        mine = points.obs_image == n
        points.obs_xy[mine] = reconstruction.project(n, points.xyz[points.obs_point[mine]])
    for n, name in enumerate(reconstruction.image_names):
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene, n, width=WIDTH, height=HEIGHT)).save(path)
    save_reconstruction([reconstruction], folder / "result")
    return scene, folder


@pytest.fixture(scope="module")
def found(photographed):
    scene, folder = photographed
    [result] = api.dense_folder(folder / "result", images=folder / "images", options=OPTIONS)
    return scene, folder, result


def errors(scene, folder):
    """Relative errors of all depths, errors in deviations, and the share of pixels with a depth."""
    reconstruction = load_reconstruction(folder / "result")[0]
    piece = load_dense(folder / "result", reconstruction)
    relative, ratio, shares = [], [], []
    for n, name in enumerate(reconstruction.image_names):
        found = piece.read_depth(name)
        truth = scene.depth_map(n, WIDTH, HEIGHT)
        known = found.depth > 0
        truth = np.where(np.isfinite(truth), truth, 1e3)  # the sky
        off = found.depth[known] - truth[known]
        relative.append(np.abs(off) / truth[known])
        ratio.append(np.abs(off) / found.sigma[known])
        shares.append(known[truth < 1e3].mean())
    return np.concatenate(relative), np.concatenate(ratio), np.mean(shares)


def test_depth_is_right_and_there_is_much_of_it(found):
    scene, folder, _ = found
    relative, _, share = errors(scene, folder)
    assert np.median(relative) < 0.003
    assert (relative < 0.02).mean() > 0.93  # the rest is at silhouettes: a patch is a twentieth of these small photos
    assert share > 0.3  # half of these six photos see a place under 40 degrees or more


def test_deviations_are_honest(found):
    scene, folder, _ = found
    relative, ratio, _ = errors(scene, folder)
    right = ratio[relative < 0.02]
    assert 0.5 < (right < 1).mean() < 0.76
    assert 0.75 < (right < 2).mean() < 0.98


def test_normals_look_at_the_camera_and_follow_the_surface(found):
    _, folder, _ = found
    reconstruction = load_reconstruction(folder / "result")[0]
    depth = load_dense(folder / "result", reconstruction).read_depth(reconstruction.image_names[0])
    known = depth.depth > 0
    row, column = np.nonzero(known)
    rays = depth.camera.rays(np.stack([column, row], axis=1) + 0.5)
    normal = depth.normal[known] / 127
    assert np.allclose(np.linalg.norm(normal, axis=1), 1, atol=0.02)
    assert ((rays * normal).sum(axis=1) < 0).all()


def test_the_cloud_is_dense_and_the_sparse_one_is_kept(found):
    _, folder, result = found
    dense, sparse = read_ply(folder / "result" / "points.ply"), read_ply(folder / "result" / "points_sparse.ply")
    reconstruction = load_reconstruction(folder / "result")[0]
    assert len(dense["xyz"]) == len(result.cloud.xyz) > 5 * len(sparse["xyz"])
    assert np.allclose(sparse["xyz"], reconstruction.points.xyz, atol=1e-5)
    assert (dense["sigma"] > 0).all() and np.allclose(np.linalg.norm(dense["normals"], axis=1), 1, atol=0.02)
    # A place that several photos see is one point: fewer points than pixels with a depth.
    pixels = sum(share * WIDTH * HEIGHT for share in result.shares.values())
    assert len(dense["xyz"]) < 0.8 * pixels


def test_the_sky_has_no_depth(found):
    scene, folder, _ = found
    reconstruction = load_reconstruction(folder / "result")[0]
    piece = load_dense(folder / "result", reconstruction)
    stray, sky = 0, 0
    for n, name in enumerate(reconstruction.image_names):
        nothing = ~np.isfinite(scene.depth_map(n, WIDTH, HEIGHT))
        sky += nothing.sum()
        stray += (nothing & (piece.read_depth(name).depth > 0)).sum()
    assert sky > 1000 and stray < 0.05 * sky


def test_depth_of_other_cameras_is_not_taken_for_ours(found):
    _, folder, _ = found
    reconstruction = load_reconstruction(folder / "result")[0]
    reconstruction.cam_from_world[0, 0, 3] += 1e-3
    assert load_dense(folder / "result", reconstruction) is None


def test_resume_keeps_finished_photos_and_ends_in_the_same_bits(found, tmp_path, monkeypatch):
    _, folder, result = found
    shutil.copytree(folder / "result", tmp_path / "result")
    again = {"images": folder / "images", "options": OPTIONS}
    real, done = api.dense_depth, []

    class Stop:
        def begin(self, what, total, unit):
            self.what = what

        def advance(self):
            done.append(self.what)
            if self.what == "fine depth" and done.count(self.what) == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.dense_folder(tmp_path / "result", **again, observer=Stop())
    reconstruction = load_reconstruction(tmp_path / "result")[0]
    assert load_dense(tmp_path / "result", reconstruction) is not None  # the older one, whole
    work = DensePiece(tmp_path / "result", 0).work
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*.npz")}
    assert len(before) == 6 + 2
    kept = []
    monkeypatch.setattr(api, "dense_depth", lambda *a, **k: (kept.extend(work.rglob("*.npz")), real(*a, **k))[1])
    [second] = api.dense_folder(tmp_path / "result", **again, resume=True, threads=1)
    assert {path: path.stat().st_mtime_ns for path in kept if path.exists()} == {}  # all work files are gone
    assert set(kept) == set(before)
    assert np.array_equal(second.cloud.xyz, result.cloud.xyz) and np.array_equal(second.cloud.rgb, result.cloud.rgb)


def test_a_mask_takes_depth_away(found, tmp_path):
    _, folder, result = found
    names = list(result.shares)
    for name in names:
        white = np.full((HEIGHT, WIDTH), 255, np.uint8)
        white[:, : WIDTH // 2] = 0
        path = tmp_path / "masks" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(white).save(path)
    shutil.copytree(folder / "result", tmp_path / "result")
    api.dense_folder(tmp_path / "result", images=folder / "images", masks=tmp_path / "masks", options=OPTIONS)
    reconstruction = load_reconstruction(tmp_path / "result")[0]
    piece = load_dense(tmp_path / "result", reconstruction)
    depth = piece.read_depth(names[0]).depth
    assert (depth[:, : WIDTH // 2 - 2] == 0).all() and (depth[:, WIDTH // 2 + 2 :] > 0).any()


def test_photos_that_are_gone_and_damaged_files_are_told(found, tmp_path):
    _, folder, _ = found
    with pytest.raises(InputError, match="--images"):
        api.dense_folder(folder / "result", options=OPTIONS)
    shutil.copytree(folder / "result", tmp_path / "result")
    reconstruction = load_reconstruction(tmp_path / "result")[0]
    piece = load_dense(tmp_path / "result", reconstruction)
    piece.depth_file(reconstruction.image_names[0]).write_bytes(b"PK nonsense")
    with pytest.raises(InputError, match="proba dense"):
        piece.read_depth(reconstruction.image_names[0])
    index = tmp_path / "result" / "dense" / "dense.json"
    index.write_text(json.dumps([1, 2]))
    with pytest.raises(InputError, match="proba dense"):
        load_dense(tmp_path / "result", reconstruction)


def true_cameras(scene, path, scale=1.0):
    """The scene's cameras as a gt.json, in a world that is larger by `scale`."""
    pose = scene.cam_from_world.copy()
    pose[:, :3, 3] *= scale
    count = scene.n_images
    truth = GroundTruth(
        names=scene.image_names, cam_from_world=pose, intrinsics=np.tile(scene.intrinsics[0], (count, 1)),
        width=np.full(count, scene.width), height=np.full(count, scene.height),
    )  # fmt: skip
    save_ground_truth(truth, path)


def test_given_cameras_take_the_place_of_the_results_own(found, tmp_path):
    scene, folder, own = found
    spoilt = load_reconstruction(folder / "result")[0]
    spoilt.cam_from_world[:, :3, 3] += np.random.default_rng(0).normal(0, 0.3, (len(spoilt), 3))
    save_reconstruction([spoilt], tmp_path / "spoilt")
    before = {path: path.read_bytes() for path in (tmp_path / "spoilt").rglob("*") if path.is_file()}
    true_cameras(scene, tmp_path / "gt.json", scale=10)
    [result] = api.dense_folder(
        tmp_path / "spoilt", images=folder / "images", cameras=tmp_path / "gt.json", out=tmp_path / "out",
        options=OPTIONS,
    )  # fmt: skip
    assert {path: path.read_bytes() for path in (tmp_path / "spoilt").rglob("*") if path.is_file()} == before
    given = load_reconstruction(tmp_path / "out")[0]
    assert np.allclose(given.cam_from_world[:, :3, :3], scene.cam_from_world[:, :3, :3])
    assert len(given.points.xyz) > 0.9 * len(spoilt.points.xyz)
    depth = load_dense(tmp_path / "out", given).read_depth(given.image_names[0]).depth
    truth = 10 * scene.depth_map(0, WIDTH, HEIGHT)
    assert np.median(np.abs(depth / truth - 1)[depth > 0]) < 0.003
    assert len(result.cloud.xyz) > 0.9 * len(own.cloud.xyz)


def test_given_cameras_need_a_folder_of_their_own_and_the_same_photos(photographed, tmp_path):
    scene, folder = photographed
    true_cameras(scene, tmp_path / "gt.json")
    with pytest.raises(InputError, match="--out"):
        api.dense_folder(folder / "result", images=folder / "images", cameras=tmp_path / "gt.json")
    content = json.loads((tmp_path / "gt.json").read_text())
    for camera in content["cameras"]:
        camera["image"] = f"other_{camera['image']}"
    (tmp_path / "gt.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="other photos"):
        api.dense_folder(
            folder / "result", images=folder / "images", cameras=tmp_path / "gt.json", out=tmp_path / "out"
        )
