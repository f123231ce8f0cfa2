"""Which camera of a rig took a photo, and when: by folders and by files."""

import json

import numpy as np
import pytest

from proba.errors import InputError
from proba.io.rig_files import load_rigs, read_rigs, write_rigs
from proba.matches import ImageInfo, Matches
from proba.reconstruction import CameraRig, RigCamera
from proba.rigs import RigOptions, with_rigs
from proba.synthetic import turned_cameras


def infos(*names: str) -> list[ImageInfo]:
    return [ImageInfo(name=name, width=640, height=480) for name in names]


def camera(prefix: str, **more) -> dict:
    return {"image_prefix": prefix, **more}


TURNED = {"cam_from_rig_rotation": [0.5, 0.5, 0.5, 0.5], "cam_from_rig_translation": [0.1, 0, 0]}


def rig_file(tmp_path, *rigs: list[dict]) -> RigOptions:
    (tmp_path / "rig.json").write_text(json.dumps([{"cameras": cameras} for cameras in rigs]))
    return RigOptions(cameras=str(tmp_path / "rig.json"))


def test_folders_are_cameras_and_equal_names_one_moment():
    rigs = load_rigs(RigOptions(cameras="folders"), infos("l/1.jpg", "l/2.jpg", "r/1.png", "r/3.jpg", "x.jpg"))
    assert [sensor.name for sensor in rigs.sensors] == ["", "l/", "r/"]
    assert rigs.sensor_of_image.tolist() == [1, 1, 2, 2, 0]
    assert rigs.frame_of_image[0] == rigs.frame_of_image[2] and len(set(rigs.frame_of_image.tolist())) == 4
    assert [frame for frame, _ in rigs.incomplete()] == ["1", "2", "3", "x"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["1.jpg", "2.jpg"], "needs a folder for each camera"),
        (["l/1.jpg", "r/2.jpg"], "No two photos are of one moment"),
        (["l/1.jpg", "l/1.png", "r/1.jpg"], "are one moment of one camera"),
    ],
)
def test_folders_that_are_no_rig_are_refused(names, text):
    with pytest.raises(InputError, match=text) as error:
        load_rigs(RigOptions(cameras="folders"), infos(*names))
    assert "\n" not in str(error.value)


def test_a_file_says_where_cameras_sit_and_what_their_lens_is(tmp_path):
    lens = {"camera_model_name": "SIMPLE_PINHOLE", "camera_params": [500, 320, 240]}
    options = rig_file(tmp_path, [camera("l/", ref_sensor=True, **lens), camera("r/", **TURNED)])
    rigs = load_rigs(options, infos("l/a/1.jpg", "r/a/1.jpg", "other.jpg"))
    assert rigs.sensor_of_image.tolist() == [0, 1, -1] and rigs.frames == ("a/1",)
    np.testing.assert_allclose(rigs.sensors[1].cam_from_rig[:3, 3], [0.1, 0, 0])
    images = with_rigs(Matches(infos("l/a/1.jpg", "r/a/1.jpg", "other.jpg")), rigs).images
    assert images[0].lens.params == (500, 320, 240) and images[1].camera_key == "r/" and not images[2].camera_key


def test_matches_of_one_moment_and_one_place_are_dropped(tmp_path):
    turn = {"cam_from_rig_rotation": [0.5, 0.5, 0.5, 0.5], "cam_from_rig_translation": [0, 0, 0]}
    options = rig_file(tmp_path, [camera("l/", ref_sensor=True), camera("r/", **turn)])
    matches = Matches(infos("l/1.jpg", "l/2.jpg", "r/1.jpg", "r/2.jpg"))
    for i, j in ((0, 2), (0, 1), (0, 3)):
        matches.add(i, j, np.ones((5, 2)), np.ones((5, 2)))
    assert set(with_rigs(matches, load_rigs(options, matches.images)).pairs) == {(0, 1), (0, 3)}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "3",
        '[{"cameras": 3}]',
        '[{"cameras": []}]',
        '[{"cameras": [{"image_prefix": "l/", "ref_sensor": true}]}]',
        '[{"cameras": [{"image_prefix": "l/"}, {"image_prefix": "r/"}]}]',
        '[{"cameras": [{"image_prefix": "l/", "ref_sensor": true}, {"image_prefix": "l/"}]}]',
        '[{"cameras": [{"image_prefix": "l/", "ref_sensor": true}, {"image_prefix": 4}]}]',
        '[{"cameras": [{"image_prefix": "l/", "ref_sensor": true}, '
        '{"image_prefix": "r/", "cam_from_rig_rotation": [1]}]}]',
        '[{"cameras": [{"image_prefix": "l/", "ref_sensor": true}, '
        '{"image_prefix": "r/", "cam_from_rig_rotation": [0, 0, 0, 0]}]}]',
        '[{"cameras": [{"image_prefix": "l/", "ref_sensor": true}, '
        '{"image_prefix": "r/", "camera_model_name": "PINHOLE", "camera_params": [1, 2]}]}]',
    ],
)
def test_a_damaged_rig_file_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "rig.json").write_text(content)
    with pytest.raises(InputError) as error:
        read_rigs(tmp_path / "rig.json")
    assert "\n" not in str(error.value) and "rig.json" in str(error.value)


def test_an_unknown_camera_in_the_file_is_named(tmp_path):
    options = rig_file(tmp_path, [camera("l/", ref_sensor=True), camera("r/"), camera("back/")])
    with pytest.raises(InputError, match="a camera back/ of which there is no photo"):
        load_rigs(options, infos("l/1.jpg", "r/1.jpg"))


@pytest.mark.parametrize(
    "values", [{"centre_sigma": 0.0}, {"use": "prior"}, {"cameras": "a", "rotation_sigma_deg": -1}]
)
def test_settings_that_mean_nothing_are_refused(values):
    with pytest.raises(InputError):
        RigOptions(**values)


def test_a_written_rig_is_read_again(tmp_path):
    poses = turned_cameras([0.0, 40.0], [[0, 0, 0], [0.2, 0.1, 0.0]])
    cameras = tuple(
        RigCamera(name=name, cam_from_rig=pose, std=np.zeros(6), known=False, reference=k == 0)
        for k, (name, pose) in enumerate(zip(("l/", "r/"), poses, strict=True))
    )
    write_rigs(tmp_path / "rigs.json", [(0, CameraRig(cameras=cameras, frames={"1": np.eye(4)}, metric=True))])
    sensors = read_rigs(tmp_path / "rigs.json")
    assert [sensor.reference for sensor in sensors] == [True, False]
    np.testing.assert_allclose(sensors[1].cam_from_rig, poses[1], atol=1e-12)
