"""`proba align`: z up, lengths as measured, and everything that has a length scaled with them."""

import json

import numpy as np
import pytest
from exact_reconstruction import exact_reconstruction
from failing import fails_in_one_line
from PIL import ExifTags, Image
from scipy.spatial.transform import Rotation

from proba.align import align_up, place_of, transformed
from proba.cli import main
from proba.errors import InputError
from proba.geometry.axes import camera_up
from proba.geometry.sim3 import Sim3
from proba.history.evolution import Evolution, WorldHistory, load_evolutions, save_evolutions
from proba.io.gps import to_enu
from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction

TURN = Sim3(0.37, Rotation.from_euler("xyz", [40, -70, 15], degrees=True).as_matrix(), np.array([3.0, -1.0, 2.0]))


@pytest.fixture(scope="module")
def scene():
    """A scene of ours (metres, y down) with depth maps."""
    _, reconstruction = exact_reconstruction("object", models=("PINHOLE", "RADIAL"))
    _ = reconstruction.depth(0)  # fits the maps
    return reconstruction


@pytest.fixture
def exact(scene):
    """The same in some other frame and scale."""
    return transformed(scene, TURN)


@pytest.fixture
def result(exact, tmp_path):
    folder = tmp_path / "result"
    save_reconstruction([exact], folder)
    component = {"pose_std": {name: {"rotation_deg": 0.1, "centre": 1.0} for name in exact.image_names}}
    (folder / "report.json").write_text(json.dumps({"components": [component]}))
    return folder


def pixels(reconstruction):  # [K, 2]
    points = reconstruction.points
    out = np.empty((len(points.obs_image), 2))
    for n in range(len(reconstruction)):
        mine = points.obs_image == n
        out[mine] = reconstruction.project(n, points.xyz[points.obs_point[mine]])
    return out


def test_a_turned_reconstruction_sees_the_same_pixels_at_scaled_depths(exact):
    back = transformed(exact, TURN.inverse())
    np.testing.assert_allclose(pixels(back), exact.points.obs_xy, atol=1e-3)
    np.testing.assert_allclose(pixels(exact), exact.points.obs_xy, atol=1e-3)
    np.testing.assert_allclose(exact.points.sigma, 0.37 * back.points.sigma)
    xy = np.array([[100.0, 200.0], [320.0, 240.0]])
    np.testing.assert_allclose(exact.depth(1, xy), 0.37 * back.depth(1, xy), rtol=1e-5)
    np.testing.assert_allclose(exact.depth_sigma(1, xy), 0.37 * back.depth_sigma(1, xy), rtol=1e-5)
    # A pose's std: rotations keep theirs (camera axes), the centre's total grows with the scale.
    np.testing.assert_allclose(exact.pose_std[:, :3], back.pose_std[:, :3])


def test_standard_deviations_of_centres_turn_with_the_axes(exact):
    exact.pose_std[:, 3:] = [1.0, 2.0, 3.0]
    quarter = Sim3(2.0, Rotation.from_euler("z", 90, degrees=True).as_matrix())
    np.testing.assert_allclose(transformed(exact, quarter).pose_std[:, 3:], np.tile([4.0, 2.0, 6.0], (6, 1)))


@pytest.mark.parametrize("layout", ["object", "room", "ring"])
def test_gravity_finds_the_true_up(layout):
    _, scene = exact_reconstruction(layout, n_images=8)
    lost = transformed(scene, TURN)
    up = align_up(lost, "gravity").similarity.rotation @ TURN.rotation @ [0, -1, 0]  # y is down in our scenes
    assert np.degrees(np.arccos(np.clip(up[2], -1, 1))) < 3


def test_pca_finds_the_plane_of_the_cameras():
    _, scene = exact_reconstruction("ring", n_images=10)
    centres = scene.centres
    flat = centres - np.outer(centres[:, 1] - centres[:, 1].mean(), [0, 1, 0])
    for n in range(10):
        scene.cam_from_world[n, :3, 3] = -scene.cam_from_world[n, :3, :3] @ flat[n]
    lost = transformed(scene, TURN)
    up = align_up(lost, "pca").similarity.rotation @ TURN.rotation @ [0, -1, 0]
    np.testing.assert_allclose(up, [0, 0, 1], atol=1e-6)


@pytest.mark.parametrize("axis", ["x", "-x", "y", "-y", "z", "-z"])
def test_a_named_axis_becomes_z(exact, axis):
    named = np.eye(3)["xyz".index(axis[-1])] * (-1 if axis[0] == "-" else 1)
    rotation = align_up(exact, axis).similarity.rotation
    np.testing.assert_allclose(rotation @ named, [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(rotation) > 0


def test_align_in_place_keeps_pixels_and_says_what_it_did(result, capsys):
    before = load_reconstruction(result)[0]
    main(["align", str(result)])
    assert capsys.readouterr().out.strip() == f"up from the cameras' horizons: wrote {result}"
    after = load_reconstruction(result)[0]
    np.testing.assert_allclose(pixels(after), before.points.obs_xy, atol=1e-3)
    assert camera_up(after.cam_from_world)[2] > 0.8
    assert before.up is None and after.up == "z"  # remembered on disk, for exports
    np.testing.assert_allclose(np.median(after.points.xyz, axis=0), 0, atol=0.5)
    assert sorted(path.name for path in result.iterdir()) == ["maps.npz", "points.ply", "report.json", "sparse"]
    main(["align", str(result), "--up", "-z"])  # and on its head again
    assert camera_up(load_reconstruction(result)[0].cam_from_world)[2] < -0.8


def test_a_baseline_scales_everything(result, tmp_path, capsys):
    before = load_reconstruction(result)[0]
    one, other = before.image_names[0], before.image_names[3]
    main(["align", str(result), "--baseline", one, other, "2.5", "--up", "gravity", "--out", str(tmp_path / "metric")])
    after = load_reconstruction(tmp_path / "metric")[0]
    assert np.linalg.norm(after.centres[0] - after.centres[3]) == pytest.approx(2.5)
    scale = 2.5 / np.linalg.norm(before.centres[0] - before.centres[3])
    np.testing.assert_allclose(after.points.sigma, scale * before.points.sigma)
    np.testing.assert_allclose(after.depth(2), scale * before.depth(2), rtol=1e-5)
    np.testing.assert_allclose(after.depth_sigma(2), scale * before.depth_sigma(2), rtol=1e-5)
    total = np.linalg.norm(after.pose_std[:, 3:], axis=1)
    np.testing.assert_allclose(total, scale * np.linalg.norm(before.pose_std[:, 3:], axis=1))
    assert camera_up(after.cam_from_world)[2] > 0.8 and f"scale x {scale:.6g}" in capsys.readouterr().out
    component = json.loads((tmp_path / "metric" / "report.json").read_text())["components"][0]
    assert component["pose_std"][one]["centre"] == pytest.approx(after.pose_std[0, 3:].max())
    new_from_old = np.array(component["alignments"][0]["new_from_old"])
    np.testing.assert_allclose(before.points.xyz @ new_from_old[:3, :3].T + new_from_old[:3, 3], after.points.xyz)
    untouched = load_reconstruction(result)[0]
    np.testing.assert_array_equal(untouched.points.xyz, before.points.xyz)


def test_lengths_between_points_and_between_pixels(result):
    before = load_reconstruction(result)[0]
    points = before.points
    main(["align", str(result), "--distance", "1", "200", "0.8"])
    after = load_reconstruction(result)[0]
    assert np.linalg.norm(after.points.xyz[0] - after.points.xyz[199]) == pytest.approx(0.8)
    mine = np.flatnonzero(points.obs_image == 2)[[10, 60]]
    picks = [f"{before.image_names[2]}:{x:.2f},{y:.2f}" for x, y in points.obs_xy[mine]]
    main(["align", str(result), "--distance", *picks, "3"])
    after = load_reconstruction(result)[0]
    one, other = after.points.xyz[points.obs_point[mine]]
    assert np.linalg.norm(one - other) == pytest.approx(3)


def test_a_pixel_without_a_point_is_placed_by_the_depth_map(exact):
    place = place_of(exact, f"{exact.image_names[0]}:320,240")
    np.testing.assert_allclose(exact.project(0, place), [320, 240], atol=1e-6)
    pose = exact.cam_from_world[0]
    depth = pose[2, :3] @ place + pose[2, 3]
    assert depth == pytest.approx(exact.depth(0, np.array([[320.0, 240.0]]))[0], rel=0.02)
    with pytest.raises(InputError, match="640 x 480"):
        place_of(exact, f"{exact.image_names[0]}:700,240")


def degrees_minutes_seconds(value):
    value = abs(value)
    minutes = value % 1 * 60
    return int(value), int(minutes), round(minutes % 1 * 60, 6)


def photos_with_gps(folder, names, places):
    for name, (latitude, longitude, altitude) in zip(names, places, strict=True):
        exif = Image.Exif()
        gps = exif.get_ifd(ExifTags.IFD.GPSInfo)
        gps[ExifTags.GPS.GPSLatitudeRef] = "S" if latitude < 0 else "N"
        gps[ExifTags.GPS.GPSLatitude] = degrees_minutes_seconds(latitude)
        gps[ExifTags.GPS.GPSLongitudeRef] = "W" if longitude < 0 else "E"
        gps[ExifTags.GPS.GPSLongitude] = degrees_minutes_seconds(longitude)
        gps[ExifTags.GPS.GPSAltitude] = float(altitude)
        exif[ExifTags.IFD.GPSInfo] = gps
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(folder / name, exif=exif)


def test_gps_gives_metres_and_compass_directions(tmp_path, capsys):
    """Sydney: south and east. A metre north is 1 / 110,900 degree there, a metre east 1 / 92,500 degree."""
    _, scene = exact_reconstruction("ring", n_images=8)
    enu = 20 * scene.centres @ np.array([[1.0, 0, 0], [0, 0, -1.0], [0, 1.0, 0]])  # x, -z... as east, north, up
    latitude = -33.86
    north_m, east_m = 110_919.0, 92_546.0
    places = np.column_stack([latitude + enu[:, 1] / north_m, 151.21 + enu[:, 0] / east_m, 50 + enu[:, 2]])
    photos_with_gps(tmp_path / "set", scene.image_names, places)
    save_reconstruction([transformed(scene, TURN)], tmp_path / "result")
    main(["align", str(tmp_path / "result"), "--gps", "--images", str(tmp_path / "set")])
    after = load_reconstruction(tmp_path / "result")[0]
    expected = enu - np.median(enu, axis=0)
    np.testing.assert_allclose(after.centres - np.median(after.centres, axis=0), expected, atol=0.02)
    assert "GPS of 8 of 8 photos" in capsys.readouterr().out


def test_enu_of_known_places():
    # Along a meridian at the equator a degree is 110,574 m; along the equator 111,320 m.
    places = np.array([[0.0, 10.0, 0.0], [0.01, 10.0, 0.0], [0.0, 10.01, 0.0], [0.0, 10.0, 7.0], [0.0, 10.0, 0.0]])
    enu = to_enu(places)
    np.testing.assert_allclose(enu[1], [0, 1105.74, 0], atol=0.2)
    np.testing.assert_allclose(enu[2], [1113.2, 0, 0], atol=0.2)
    np.testing.assert_allclose(enu[3], [0, 0, 7], atol=1e-6)


def test_bad_input_gets_one_line_and_code_2(result, tmp_path, capsys):
    name = exact_reconstruction(n_images=2)[1].image_names[0]
    (tmp_path / "empty").mkdir()
    assert "sparse/0" in fails_in_one_line(capsys, "align", str(tmp_path / "empty"))
    assert "no image 'x.jpg'" in fails_in_one_line(capsys, "align", str(result), "--baseline", name, "x.jpg", "1")
    assert "positive" in fails_in_one_line(capsys, "align", str(result), "--distance", "1", "2", "-3")
    assert "no point 0" in fails_in_one_line(capsys, "align", str(result), "--distance", "0", "2", "3")
    assert "is no place" in fails_in_one_line(capsys, "align", str(result), "--distance", f"{name}:1;2", "2", "3")
    assert "are one" in fails_in_one_line(capsys, "align", str(result), "--distance", "2", "2", "3")
    assert "--images" in fails_in_one_line(capsys, "align", str(result), "--gps")
    assert "one of" in fails_in_one_line(capsys, "align", str(result), "--gps", "--distance", "1", "2", "3")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "holiday.jpg").write_text("precious")
    assert "not a ProBA result" in fails_in_one_line(capsys, "align", str(result), "--out", str(tmp_path / "other"))


def test_photos_without_gps_and_places_on_a_line(result, tmp_path, capsys):
    names = load_reconstruction(result)[0].image_names
    for name in names:
        (tmp_path / "bare" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(tmp_path / "bare" / name)
    assert "0 photos have a GPS place" in fails_in_one_line(
        capsys, "align", str(result), "--gps", "--images", str(tmp_path / "bare")
    )
    line = [(48 + k * 1e-4, 11.0, 500.0) for k in range(len(names))]
    photos_with_gps(tmp_path / "line", names, line)
    assert "on one line" in fails_in_one_line(capsys, "align", str(result), "--gps", "--images", str(tmp_path / "line"))


def test_pieces_are_measured_apart(exact, tmp_path, capsys):
    other = exact_reconstruction(n_images=3, seed=5)[1]
    other.image_names = ["p.png", "q.png", "r.png"]
    save_reconstruction([exact, other], tmp_path / "two")
    main(["align", str(tmp_path / "two"), "--baseline", "p.png", "q.png", "7"])
    first, second = load_reconstruction(tmp_path / "two")
    np.testing.assert_allclose(first.centres, exact.centres, atol=1e-9)
    assert np.linalg.norm(second.centres[0] - second.centres[1]) == pytest.approx(7)
    assert "unchanged | p.png and q.png are 7 apart" in capsys.readouterr().out
    assert "not connected" in fails_in_one_line(
        capsys, "align", str(tmp_path / "two"), "--baseline", exact.image_names[0], "q.png", "7"
    )


def test_the_history_moves_with_the_result(exact, result):
    n_images, n_points = len(exact), 4
    pick = np.flatnonzero(exact.points.obs_image == 0)[:n_points]
    place = exact.points.xyz[exact.points.obs_point[pick]]
    in_camera = place @ exact.cam_from_world[0, :3, :3].T + exact.cam_from_world[0, :3, 3]
    evolution = Evolution(
        image_names=exact.image_names,
        size_px=np.tile([640, 480], (n_images, 1)),
        edges=np.array([[0, 1]]),
        point_image=np.zeros(n_points, int),
        point_xy=(in_camera[:, :2] / in_camera[:, 2:]).astype(np.float32),
        worlds=[WorldHistory(name="cold", loss=0.0, chosen=True, pruned_at=None)],
        world=np.array([-1]),
        iteration=np.array([10]),
        loss=np.zeros(1, np.float32),
        cam_from_world=exact.cam_from_world[None, :, :3].astype(np.float32),
        tan=np.ones((1, n_images), np.float32),
        edge_weight=np.ones((1, 1), np.float16),
        log_depth=np.log(in_camera[None, :, 2]).astype(np.float16),
        log_sigma=np.zeros((1, n_points), np.float16),
    )
    save_evolutions(result / "evolution.npz", [evolution])
    main(["align", str(result), "--up", "gravity", "--baseline", exact.image_names[0], exact.image_names[1], "5"])
    moved = load_reconstruction(result)[0].points.xyz[exact.points.obs_point[pick]]
    again = load_evolutions(result / "evolution.npz")[0]
    extent = np.ptp(moved, axis=0).max()
    np.testing.assert_allclose(again.points(0), moved, atol=0.02 * extent)  # half precision
    assert again.log_depth.dtype == np.float16
