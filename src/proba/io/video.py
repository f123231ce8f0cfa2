"""A video as a folder of photos: frames that have moved enough since the last one, the sharpest of their neighbours."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from proba.errors import InputError
from proba.io.picture_files import write_picture

SUFFIXES = {".mp4", ".mov", ".m4v", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".mts", ".3gp"}
FRAMES = "frames"
FRAME_NAME = "frame_{:06d}.jpg"
SHARP = 0.8  # quantile of sharpness that counts as usual: most frames of a hasty video may be blurred
LOOK_PX = 320  # longest side of the copy on which motion and sharpness are measured


@dataclass(frozen=True, kw_only=True)
class VideoOptions:
    """Which frames are taken."""

    motion: float = 0.05
    """Median displacement of tracked points since the last frame taken, as a share of the longest side."""
    max_lost: float = 0.6
    """A frame is due as well when so large a share of the points is out of sight."""
    window: float = 0.6
    """From this share of the motion on frames compete, and the sharpest is taken."""
    min_sharpness: float = 0.5
    """Frames with less than this share of the usual sharpness of the last two seconds are blurred and never taken."""
    max_frames: int = 400
    """Where more would be taken, every second one is left out and the motion doubled."""
    jpeg_quality: int = 95


def is_video(path: Path) -> bool:
    """Whether a path names a video file."""
    return path.suffix.lower() in SUFFIXES and not path.is_dir()


def check_photo_source(images: Path) -> None:
    """Refuse a folder of photos or a video that is not there."""
    if is_video(images):
        if not images.is_file():
            raise InputError(f"There is no video {images}. Check the path.")
    elif not images.exists():
        raise InputError(f"There is no folder {images}. Check the path.")


def photos_of(images: Path, frames: Path, *, resume: bool = False) -> tuple[Path, bool]:
    """The folder of photos, and whether it comes from a video, whose frames are then written to the folder `frames`."""
    if not is_video(images):
        return images, False
    if not (resume and frames.is_dir()):
        extract_frames(images, frames)
    return frames, True


def extract_frames(video: Path, folder: Path, options: VideoOptions | None = None) -> int:
    """Write the chosen frames as JPEG; the folder appears when all are written. Returns how many."""
    options = options or VideoOptions()
    if not video.is_file():
        raise InputError(f"There is no video {video}. Check the path.")
    _refuse_other_content(folder)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        count = _write_frames(video, partial, options)
        if count < 2:
            raise InputError(
                f"{video} has {count} usable frame{'s' * (count != 1)} that differ; at least two are needed. "
                "Give a video in which the camera moves through the scene."
            )
        if folder.is_dir():
            shutil.rmtree(folder)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return count


def _refuse_other_content(folder: Path) -> None:
    """Frames of an earlier run are replaced, nothing else is."""
    strange = [path for path in folder.glob("*") if not path.match("frame_??????.jpg")] if folder.is_dir() else []
    if strange or folder.is_file():
        raise InputError(
            f"{folder} is where the frames of the video go, but holds other files. Move it, or choose --out."
        )


def _write_frames(video: Path, folder: Path, options: VideoOptions) -> int:
    chooser = _Chooser(options)
    written: list[Path] = []
    for index, rgb in _decode(video):
        for number, picture in chooser.offer(index, rgb):
            path = folder / FRAME_NAME.format(number)
            write_picture(path, Image.fromarray(picture), quality=options.jpeg_quality, subsampling=0)
            written.append(path)
        if len(written) > options.max_frames:
            for path in written[1::2]:
                path.unlink()
            written = written[::2]
            chooser.motion *= 2
    return len(written)


def _decode(video: Path) -> Iterator[tuple[int, np.ndarray]]:
    """Number and RGB [h, w, 3] of every frame, upright."""
    try:
        import av
    except ImportError as error:
        raise InputError("A video needs PyAV: `pip install av`, or give a folder of photos.") from error
    index = -1
    try:
        with av.open(str(video)) as container:
            if not container.streams.video:
                raise InputError(f"{video} holds no pictures. Give a video file or a folder of photos.")
            container.streams.video[0].thread_type = "AUTO"
            for index, frame in enumerate(container.decode(video=0)):
                turns = round(getattr(frame, "rotation", 0) / 90)  # counter-clockwise, from the file's display matrix
                yield index, np.ascontiguousarray(np.rot90(frame.to_ndarray(format="rgb24"), turns))
    except (av.FFmpegError, ValueError) as error:
        if index < 1:
            raise InputError(f"{video} cannot be read as a video ({error}). Is it complete?") from error
        warnings.warn(f"{video} is damaged after frame {index} ({error}); what came before is used", stacklevel=2)


class _Chooser:
    """Looks at frame after frame and says which to take."""

    def __init__(self, options: VideoOptions):
        self.options, self.motion = options, options.motion
        self.before: np.ndarray | None = None  # [h, w] uint8, the frame before
        # Points [K, 1, 2] in the last frame taken, where they are now, and how many there were.
        self.start: np.ndarray = np.zeros((0, 1, 2), np.float32)
        self.now: np.ndarray = self.start
        self.wanted = 1
        self.usual: list[float] = []
        self.best: tuple[float, int, np.ndarray] | None = None

    def offer(self, index: int, rgb: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Number and pixels of a frame to take, if one is due."""
        import cv2

        factor = LOOK_PX / max(rgb.shape[:2])
        small = cv2.resize(rgb, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
        grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
        sharpness = float(cv2.Laplacian(grey, cv2.CV_32F).var())
        self.usual = [*self.usual[-60:], sharpness]
        blurred = sharpness < self.options.min_sharpness * float(np.quantile(self.usual, SHARP))
        moved, lost = self._follow(grey)
        self.before = grey
        first = moved < 0
        enough = first or moved >= self.options.window * self.motion or lost >= self.options.max_lost
        if enough and not blurred and (self.best is None or sharpness > self.best[0]):
            self.best = sharpness, index, rgb
        if self.best is not None and (first or moved >= self.motion or lost >= self.options.max_lost):
            yield self.best[1:]
            self.best = None
            found = cv2.goodFeaturesToTrack(grey, 300, 0.01, 5)
            self.start = self.now = np.zeros((0, 1, 2), np.float32) if found is None else found
            self.wanted = max(1, len(self.now))

    def _follow(self, grey: np.ndarray) -> tuple[float, float]:
        """Median motion since the last frame taken, as a share of the image, and the share of lost points."""
        import cv2

        if self.before is None or self.before.shape != grey.shape:
            return -1.0, 1.0
        if not len(self.now):
            return np.inf, 1.0  # nothing to follow: every frame is new
        now, found, _ = cv2.calcOpticalFlowPyrLK(self.before, grey, self.now, None)  # type: ignore[call-overload]
        seen = found[:, 0] == 1
        self.start, self.now = self.start[seen], now[seen]
        if not seen.any():
            return np.inf, 1.0
        moved = float(np.median(np.linalg.norm(self.now - self.start, axis=2))) / LOOK_PX
        return moved, 1 - len(self.now) / self.wanted
