"""Photos looked for in a model, added to it, and two models made one, on rendered photos."""

import json
from dataclasses import replace

import numpy as np
import pytest

import proba
from proba import api
from proba.cli import main
from proba.combine import add_photos, first_from_second, merge_models
from proba.errors import GeometryError, InputError
from proba.evaluation import evaluate
from proba.geometry.sim3 import Sim3, umeyama
from proba.io.ground_truth import GroundTruth
from proba.matches import Matches
from proba.matching import MatchOptions
from proba.synthetic import make_scene
from proba.synthetic.render import render_images

N, NEW = 9, (3, 6)
SIFT = MatchOptions(matcher="sift")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Folders of old and new photos, the model of the old ones, and the truth."""
    folder = tmp_path_factory.mktemp("growing")
    scene = make_scene("object", n_images=N, seed=0, width=480, height=360)
    render_images(scene, folder / "all")
    truth = scene.ground_truth()
    for k, name in enumerate(truth.names):
        place = folder / ("new" if k in NEW else "old")
        place.mkdir(exist_ok=True)
        (place / name).write_bytes((folder / "all" / name).read_bytes())
    api.reconstruct(folder / "old", out=folder / "model", match=SIFT)
    return folder, truth


def same_frame(model: proba.Reconstruction, truth: GroundTruth) -> Sim3:
    mine = [truth.names.index(name) for name in model.image_names]
    return umeyama(model.centres, truth.centres[mine])


def test_a_photo_is_found_within_its_deviations(world):
    folder, truth = world
    names = [truth.names[k] for k in NEW]
    found = api.localize(folder / "model", [folder / "new" / name for name in names])
    frame = same_frame(proba.Reconstruction.load(folder / "model"), truth)
    for name, pose in zip(names, found, strict=True):
        assert pose.camera_known and pose.share > 0.5
        true = truth.centres[truth.names.index(name)]
        off = np.linalg.norm(frame.apply(pose.centre) - true)
        assert off < 0.01 * np.linalg.norm(true)
        # The model's own error comes on top of the deviation, which does not know it.
        assert off < 8 * frame.scale * np.linalg.norm(pose.std[3:])
    assert (folder / "model" / "features").is_dir()


def test_a_cropped_photo_is_found_with_its_focal_length(world, tmp_path):
    from PIL import Image

    folder, truth = world
    name = truth.names[NEW[0]]
    with Image.open(folder / "new" / name) as image:
        image.crop((60, 45, 420, 315)).save(tmp_path / "crop.png")
    (pose,) = api.localize(folder / "model", [tmp_path / "crop.png"])
    focal = proba.Reconstruction.load(folder / "model").cameras[0].focal_px[0]
    assert not pose.camera_known and abs(pose.camera.focal_px[0] / focal - 1) < 0.03


def test_a_stranger_is_not_found(world, tmp_path, capsys):
    from PIL import Image

    folder, truth = world
    noise = np.random.default_rng(0).integers(0, 255, (360, 480, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    (reason,) = api.localize(folder / "model", [tmp_path / "noise.png"])
    assert isinstance(reason, GeometryError)
    known = folder / "new" / truth.names[NEW[0]]
    words = ["localize", str(folder / "model"), str(known), str(tmp_path / "noise.png")]
    with pytest.raises(SystemExit) as end:
        main([*words, "--json", str(tmp_path / "poses.json")])
    assert end.value.code == 1
    rows = json.loads((tmp_path / "poses.json").read_text())
    assert [row["found"] for row in rows] == [True, False]
    assert "points agree" in capsys.readouterr().out


@pytest.mark.parametrize("keep", [False, True])
def test_added_photos_join_the_old_frame(world, tmp_path, keep):
    folder, truth = world
    result = add_photos(folder / "model", folder / "new", out=tmp_path / "more", keep_cameras=keep, match=SIFT)
    before, after = proba.Reconstruction.load(folder / "model"), result.best
    assert len(after) == N
    old = np.array([after.poses[name] for name in before.image_names])
    size = np.linalg.norm(before.centres.std(axis=0))
    if keep:
        np.testing.assert_allclose(old, before.cam_from_world, atol=1e-8)
    else:
        assert np.abs(after.centres[[after.index(n) for n in before.image_names]] - before.centres).max() < 0.02 * size
    assert evaluate(result.reconstructions, truth)["rta@5"] == 100
    assert {path.name for path in (tmp_path / "more" / "photos").iterdir()} == set(truth.names)


@pytest.mark.slow
def test_two_models_with_photos_in_common_become_one(world, tmp_path):
    folder, truth = world
    for name, keep in (("a", range(6)), ("b", range(3, N))):
        (tmp_path / name).mkdir()
        for k in keep:
            (tmp_path / name / truth.names[k]).write_bytes((folder / "all" / truth.names[k]).read_bytes())
        api.reconstruct(tmp_path / name, out=tmp_path / f"model-{name}", match=SIFT)
    result = merge_models(tmp_path / "model-a", tmp_path / "model-b", out=tmp_path / "both", match=SIFT)
    metrics = evaluate(result.reconstructions, truth)
    assert metrics["registered"] == N and metrics["rra@5"] == metrics["rta@5"] == 100
    first = proba.Reconstruction.load(tmp_path / "model-a")
    apart = result.best.centres[[result.best.index(name) for name in first.image_names]] - first.centres
    assert np.abs(apart).max() < 0.05 * np.linalg.norm(first.centres.std(axis=0))


def test_models_that_share_scenery_alone_find_their_frame_by_points(world):
    folder, _ = world
    matches = proba.load_matches(folder / "model" / "matches.h5")
    model = proba.Reconstruction.load(folder / "model")
    frame = Sim3(3.0, np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]), np.array([1.0, 2.0, 3.0]))
    halves = [part_of(model, range(0, len(model), 2)), part_of(model, range(1, len(model), 2))]
    moved = replace(
        halves[1],
        cam_from_world=frame.apply_to_poses(halves[1].cam_from_world),
        points=replace(halves[1].points, xyz=frame.apply(halves[1].points.xyz)),
    )
    found = first_from_second(halves[0], moved, matches)
    np.testing.assert_allclose(found.matrix(), frame.inverse().matrix(), atol=1e-6)
    with pytest.raises(GeometryError, match="points in common"):
        first_from_second(halves[0], moved, Matches(images=matches.images, pairs={}))


def part_of(model: proba.Reconstruction, images) -> proba.Reconstruction:
    """The model with some of its images and the observations of these."""
    images = list(images)
    where = np.full(len(model), -1)
    where[images] = np.arange(len(images))
    seen = where[model.points.obs_image] >= 0
    points = replace(
        model.points,
        obs_point=model.points.obs_point[seen],
        obs_image=where[model.points.obs_image[seen]],
        obs_xy=model.points.obs_xy[seen],
    )
    return replace(
        model,
        image_names=[model.image_names[k] for k in images],
        cam_from_world=model.cam_from_world[images],
        camera_of_image=model.camera_of_image[images],
        pose_std=model.pose_std[images],
        points=points,
    )


def test_the_model_itself_is_not_overwritten(world):
    folder, _ = world
    with pytest.raises(InputError, match="another folder"):
        add_photos(folder / "model", folder / "new", out=folder / "model")


def test_a_photo_that_is_none_is_refused_in_one_line(world, capsys, tmp_path):
    folder, _ = world
    (tmp_path / "broken.jpg").write_bytes(b"no photo")
    for photo in (tmp_path / "broken.jpg", tmp_path / "missing.jpg"):
        with pytest.raises(SystemExit) as end:
            main(["localize", str(folder / "model"), str(photo)])
        assert end.value.code == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
