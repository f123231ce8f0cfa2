"""Video: frames by motion, no blurred ones, and what is said to files that are no video."""

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "matching"))
from textures import noise

from proba.cli import main
from proba.errors import InputError
from proba.io.video import VideoOptions, extract_frames, is_video, photos_of

av = pytest.importorskip("av")
WIDTH, HEIGHT = 320, 240


def write_video(path: Path, pictures) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=30)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = WIDTH, HEIGHT, "yuv420p", 4_000_000
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")))
        container.mux(stream.encode())
    return path


def pan(steps, blurred=()):
    """A camera that moves sideways over a wall by `steps` pixels from frame to frame."""
    wall = noise(WIDTH + int(sum(steps)) + 2, HEIGHT, seed=3)
    left = 0
    for k, step in enumerate(steps):
        left += step
        picture = wall[:, left : left + WIDTH]
        yield cv2.GaussianBlur(picture, (0, 0), 4) if k in blurred else picture


def numbers(folder: Path) -> list[int]:
    return [int(path.stem.split("_")[1]) for path in sorted(folder.iterdir())]


def test_frames_are_taken_by_motion_not_by_time(tmp_path):
    still_then_moving = [0] * 20 + [4] * 40  # 160 of 320 pixels: half the width
    video = write_video(tmp_path / "a.mp4", pan(still_then_moving))
    count = extract_frames(video, tmp_path / "frames", VideoOptions(motion=0.1))
    taken = numbers(tmp_path / "frames")
    assert count == len(taken) and 4 <= count <= 7  # one each 32 pixels, or a little before
    assert taken[0] == 0 and taken[1] > 20
    assert Image.open(tmp_path / "frames" / "frame_000000.jpg").size == (WIDTH, HEIGHT)
    assert not (tmp_path / "frames.partial").exists()


def test_blurred_frames_are_never_taken(tmp_path):
    blurred = set(range(3, 60, 3)) | set(range(4, 60, 3))  # two of three
    video = write_video(tmp_path / "a.mp4", pan([4] * 60, blurred))
    extract_frames(video, tmp_path / "frames")
    taken = numbers(tmp_path / "frames")
    assert len(taken) > 5 and not blurred & set(taken)


def test_long_videos_are_thinned(tmp_path):
    video = write_video(tmp_path / "a.mp4", pan([8] * 60))
    assert extract_frames(video, tmp_path / "frames", VideoOptions(motion=0.02, max_frames=10)) <= 10


def test_frames_are_kept_for_a_resume_and_other_files_are_never_deleted(tmp_path):
    video = write_video(tmp_path / "a.mp4", pan([8] * 20))
    folder, is_one = photos_of(video, tmp_path / "frames")
    assert is_one and folder == tmp_path / "frames"
    dates = [path.stat().st_mtime_ns for path in sorted(folder.iterdir())]
    photos_of(video, folder, resume=True)
    assert dates == [path.stat().st_mtime_ns for path in sorted(folder.iterdir())]
    photos_of(video, folder)
    (folder / "holiday.jpg").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        photos_of(video, folder)
    assert (folder / "holiday.jpg").read_text() == "precious"
    assert photos_of(tmp_path, tmp_path / "frames") == (tmp_path, False)


def test_what_is_no_usable_video_is_refused_in_one_line(tmp_path):
    (tmp_path / "text.mp4").write_text("hello")
    still = write_video(tmp_path / "still.mp4", pan([0] * 10))
    for path, message in (
        (tmp_path / "none.mp4", "no video"),
        (tmp_path / "text.mp4", "cannot be read as a video"),
        (still, "1 usable frame that"),
    ):
        assert is_video(path)
        with pytest.raises(InputError, match=message) as error:
            extract_frames(path, tmp_path / "frames")
        assert "\n" not in str(error.value) and not (tmp_path / "frames").exists()


def test_a_video_cut_off_gives_the_frames_before(tmp_path):
    video = write_video(tmp_path / "a.avi", pan([8] * 60))
    content = video.read_bytes()
    video.write_bytes(content[: len(content) // 2])
    assert 2 <= extract_frames(video, tmp_path / "frames") < 30


def test_match_of_a_video(tmp_path, capsys):
    video = write_video(tmp_path / "a.mp4", pan([6] * 30))
    main(["match", str(video), "--out", str(tmp_path / "m.h5"), "--matcher", "sift", "--quiet"])
    taken = numbers(tmp_path / "m.h5.frames")
    assert f"{len(taken)} images" in capsys.readouterr().out and (tmp_path / "m.h5").exists()
