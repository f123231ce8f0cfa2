"""All targets by name, and the one function that writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from proba.dense.fusion import CloudOptions, dense_cloud
from proba.errors import InputError
from proba.export.depth import DepthFormat, write_depth
from proba.export.glb import write_glb
from proba.export.nerfstudio import write_nerfstudio
from proba.export.splat import write_splat
from proba.export.tum import write_tum
from proba.export.undistorted import write_undistorted
from proba.io.colmap import write_colmap
from proba.io.ply import write_ply
from proba.point_cloud import Cloud, point_cloud
from proba.reconstruction import Reconstruction

Format = Literal["colmap", "colmap-txt", "colmap-undistorted", "nerfstudio", "ply", "splat", "depth", "tum", "glb"]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What can be chosen about an export."""

    density_px: float | None = None
    """ply, splat: pixels of the photo between the points of a dense cloud; None: the refined points alone.
    depth: pixels of the photo for each value; None: as many as give 1024 values along the longest side."""
    depth_format: DepthFormat = "npy"
    """Files of depth maps: npy (float32), png (16 bit, its unit in depth.json) or exr (needs OpenEXR)."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One piece of a result on its way out."""

    reconstruction: Reconstruction
    index: int
    """Which piece, the largest first."""
    out: Path
    """Folder of the whole export."""
    photos: Path | None
    options: ExportOptions

    @property
    def folder(self) -> Path:
        """Folder of this piece, for formats that hold one piece alone."""
        return self.out if self.index == 0 else self.out / f"piece{self.index}"

    @property
    def model_folder(self) -> Path:
        """Folder of this piece's COLMAP model."""
        return self.out / "sparse" / str(self.index)

    def cloud(self) -> Cloud:
        """The refined points, or the dense ones where a density is given."""
        if self.options.density_px is None:
            return point_cloud(self.reconstruction)
        assert self.photos is not None
        return dense_cloud(self.reconstruction, self.photos, CloudOptions(step_px=self.options.density_px))


@dataclass(frozen=True, kw_only=True)
class Target:
    """How a format is written, and what that takes."""

    write: Callable[[Job], str | None]
    """Writes one piece; may return a line to print."""
    photos: Literal["never", "for density", "always"] = "never"


def _ply(job: Job) -> str:
    cloud = job.cloud()
    write_ply(job.folder / "points.ply", cloud.xyz, cloud.rgb, cloud.sigma, cloud.normals)
    return f"{len(cloud.xyz)} points"


def _splat(job: Job) -> str:
    cloud = job.cloud()
    write_splat(job.folder / "splat.ply", cloud)
    return f"{len(cloud.xyz)} points"


def _depth(job: Job) -> None:
    options = job.options
    write_depth(job.reconstruction, job.folder, form=options.depth_format, step_px=options.density_px)


def _undistorted(job: Job) -> None:
    assert job.photos is not None
    write_undistorted(job.reconstruction, job.out, job.photos, job.index)


TARGETS: dict[Format, Target] = {
    "colmap": Target(write=lambda job: write_colmap(job.reconstruction, job.model_folder)),
    "colmap-txt": Target(write=lambda job: write_colmap(job.reconstruction, job.model_folder, text=True)),
    "colmap-undistorted": Target(write=_undistorted, photos="always"),
    "nerfstudio": Target(
        write=lambda job: write_nerfstudio(job.reconstruction, job.folder, job.photos), photos="always"
    ),
    "ply": Target(write=_ply, photos="for density"),
    "splat": Target(write=_splat, photos="for density"),
    "depth": Target(write=_depth),
    "tum": Target(write=lambda job: write_tum(job.reconstruction, job.folder / "trajectory.txt")),
    "glb": Target(write=lambda job: write_glb(job.reconstruction, job.folder / "scene.glb")),
}


def needs_photos(to: Format, options: ExportOptions | None = None) -> bool:
    """Whether an export cannot be made without the photos."""
    dense = options is not None and options.density_px is not None
    return TARGETS[to].photos == "always" or (TARGETS[to].photos == "for density" and dense)


def export(
    reconstructions: Reconstruction | Sequence[Reconstruction],
    *,
    to: Format,
    out: str | Path,
    photos: str | Path | None = None,
    options: ExportOptions | None = None,
) -> list[str]:
    """Write reconstructions in another program's format; returns what there is to say about it, in lines.

    Further pieces, each with its own frame and scale, go to OUT/sparse/1 (colmap) or OUT/piece1 (others).

    Args:
        reconstructions: One reconstruction, or the connected pieces of one result, largest first.
        to: Name of a target.
        out: Folder to write to.
        photos: Folder of the photos, for the targets that need them (`needs_photos`).
        options: What can be chosen about the target.
    """
    options, out = options or ExportOptions(), Path(out)
    if to not in TARGETS:
        raise InputError(f"There is no export to {to!r}. Choose one of {', '.join(get_args(Format))}.")
    if options.density_px is not None and not options.density_px >= 1:
        raise InputError(f"A density of {options.density_px:g} is finer than the photos. Give 1 or more pixels.")
    if photos is None and needs_photos(to, options):
        raise InputError(f"The export to {to} needs the folder of the photos. Give it as `photos`.")
    if out.is_file():
        raise InputError(f"{out} is a file. Give a folder to write to.")
    pieces = [reconstructions] if isinstance(reconstructions, Reconstruction) else reconstructions
    folder = None if photos is None else Path(photos)
    lines = []
    for index, piece in enumerate(pieces):
        line = TARGETS[to].write(Job(reconstruction=piece, index=index, out=out, photos=folder, options=options))
        lines += [line] if line else []
    return lines
