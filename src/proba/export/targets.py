"""All targets by name, and the one function that writes them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from proba.dense.fusion import CloudOptions, dense_cloud
from proba.errors import InputError
from proba.export.depth import DepthFormat, write_depth
from proba.export.glb import write_glb, y_up
from proba.export.mesh import write_mesh
from proba.export.nerfstudio import write_nerfstudio
from proba.export.photo_files import LinkMode, photo_source
from proba.export.splat import write_splat
from proba.export.tum import write_tum
from proba.export.undistorted import write_undistorted
from proba.io.atomic import all_or_nothing
from proba.io.colmap import write_colmap
from proba.io.dense_folder import DensePiece
from proba.io.ply import write_ply
from proba.point_cloud import Cloud, point_cloud
from proba.reconstruction import Reconstruction

Format = Literal[
    "colmap", "colmap-txt", "colmap-undistorted", "nerfstudio", "ply", "splat", "depth", "mesh", "tum", "glb"
]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What can be chosen about an export."""

    density_px: float | None = None
    """ply, splat: pixels of the photo between the points of a dense cloud; None: the refined points alone.
    depth: pixels of the photo for each value; None: as many as give 1024 values along the longest side."""
    depth_format: DepthFormat = "npy"
    """Files of depth maps: npy (float32), png (16 bit, its unit in depth.json) or exr (needs OpenEXR)."""
    photo_files: LinkMode = "copy"
    """nerfstudio: photos are copied, so that the folder can be moved, or linked, which saves space."""
    sparse: bool = False
    """Take the refined points and the smooth maps, even where there is dense depth."""
    max_points: int | None = None
    """ply, splat, nerfstudio: points of a larger cloud that are kept, chosen at random; None: all."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The connected pieces of a result on their way out."""

    pieces: list[Reconstruction]
    out: Path
    photos: Path | None
    masks: Path | None
    options: ExportOptions
    dense: list[DensePiece | None]
    """Dense depth of each piece."""

    def folders(self) -> list[tuple[Reconstruction, DensePiece | None, Path]]:
        """Each piece with a folder of its own, for formats that hold one piece alone."""
        folders = [self.out if k == 0 else self.out / f"piece{k}" for k in range(len(self.pieces))]
        return list(zip(self.pieces, self.dense, folders, strict=True))

    def cloud(self, piece: Reconstruction, dense: DensePiece | None) -> Cloud:
        """The dense points where there are any or a density is given, else the refined ones."""
        if dense is not None and self.options.density_px is None:
            cloud = dense.read_cloud()
        elif self.options.density_px is None:
            cloud = point_cloud(piece)
        else:
            cloud = dense_cloud(piece, self.photo_folder(), CloudOptions(step_px=self.options.density_px))
        return cloud if self.options.max_points is None else cloud.some(self.options.max_points)

    def photo_folder(self) -> Path:
        if self.photos is None:
            raise InputError("This export needs the folder of the photos. Give it as `photos`.")
        return self.photos


@dataclass(frozen=True, kw_only=True)
class Target:
    """How a format is written, and what that takes."""

    write: Callable[[Job], list[str] | None]
    """Writes all pieces; may return lines to print."""
    photos: Literal["never", "for density", "always"] = "never"
    """Whether it takes the photos."""
    next_commands: tuple[tuple[str, str], ...] = ()
    """Programs that go on from there, and their commands with {out} for the folder."""


def _colmap(job: Job, *, text: bool) -> None:
    for index, piece in enumerate(job.pieces):
        write_colmap(piece, job.out / "sparse" / str(index), text=text)


def _undistorted(job: Job) -> None:
    write_undistorted(job.pieces, job.out, photo_source(job.photo_folder(), job.masks, job.out))


def _nerfstudio(job: Job) -> None:
    for piece, dense, folder in job.folders():
        source = photo_source(job.photo_folder(), job.masks, folder)
        cloud = None if dense is None and job.options.density_px is None else job.cloud(piece, dense)
        write_nerfstudio(piece, folder, source, job.options.photo_files, cloud=cloud, dense=dense)


def _ply(job: Job) -> list[str]:
    lines = []
    for piece, dense, folder in job.folders():
        cloud = job.cloud(piece, dense)
        write_ply(folder / "points.ply", cloud.xyz, cloud.rgb, cloud.sigma, cloud.normals)
        lines.append(f"{len(cloud.xyz)} points")
    return lines


def _splat(job: Job) -> list[str]:
    lines = []
    for piece, dense, folder in job.folders():
        cloud = job.cloud(piece, dense)
        write_splat(folder / "splat.ply", cloud)
        lines.append(f"{len(cloud.xyz)} Gaussians")
    return lines


def _depth(job: Job) -> None:
    for piece, dense, folder in job.folders():
        write_depth(piece, folder, form=job.options.depth_format, step_px=job.options.density_px, dense=dense)


def _mesh(job: Job) -> list[str]:
    lines = []
    for piece, dense, folder in job.folders():
        corners, triangles = write_mesh(job.cloud(piece, dense), folder, turn=y_up(piece))
        lines.append(f"{triangles} triangles, {corners} corners")
    return lines


def _tum(job: Job) -> None:
    for piece, _, folder in job.folders():
        write_tum(piece, folder / "trajectory.txt")


def _glb(job: Job) -> None:
    for piece, _, folder in job.folders():
        write_glb(piece, folder / "scene.glb")


TARGETS: dict[Format, Target] = {
    "colmap": Target(write=lambda job: _colmap(job, text=False)),
    "colmap-txt": Target(write=lambda job: _colmap(job, text=True)),
    "colmap-undistorted": Target(
        write=_undistorted,
        photos="always",
        next_commands=(
            ("3D Gaussian splatting", "python train.py -s {out}"),
            ("gsplat", "python simple_trainer.py default --data_dir {out} --data_factor 1"),
            ("Brush", "brush {out}"),
            ("nerfstudio", "ns-train splatfacto colmap --data {out} --images-path images --colmap-path sparse/0"),
        ),
    ),
    "nerfstudio": Target(
        write=_nerfstudio,
        photos="always",
        next_commands=(("nerfstudio", "ns-train splatfacto --data {out}"), ("Brush", "brush {out}")),
    ),
    "ply": Target(write=_ply, photos="for density"),
    "splat": Target(write=_splat, photos="for density"),
    "depth": Target(write=_depth),
    "mesh": Target(write=_mesh, photos="for density"),
    "tum": Target(write=_tum),
    "glb": Target(write=_glb),
}


def needs_photos(to: Format, options: ExportOptions | None = None) -> bool:
    """Whether an export cannot be made without the photos."""
    dense = options is not None and options.density_px is not None
    return TARGETS[to].photos == "always" or (TARGETS[to].photos == "for density" and dense)


def next_commands(to: Format, out: Path) -> list[str]:
    """What to run next, one line for each known program."""
    return [f"{program}: {command.format(out=shlex.quote(str(out)))}" for program, command in TARGETS[to].next_commands]


def export(
    reconstructions: Reconstruction | Sequence[Reconstruction],
    *,
    to: Format,
    out: str | Path,
    photos: str | Path | None = None,
    masks: str | Path | None = None,
    options: ExportOptions | None = None,
    dense: Sequence[DensePiece | None] = (),
) -> list[str]:
    """Write reconstructions in another program's format; returns what there is to say about it, in lines.

    Further pieces, each with its own frame and scale, go to OUT/sparse/1 (colmap) or OUT/piece1 (others).

    Args:
        reconstructions: One reconstruction, or the connected pieces of one result, largest first.
        to: Name of a target.
        out: Folder to write to.
        photos: Folder of the photos, for the targets that need them (`needs_photos`).
        masks: Folder of masks named like the photos, for colmap-undistorted and nerfstudio.
        options: What can be chosen about the target.
        dense: Dense depth of the pieces, where there is any (`proba.io.dense_folder.load_dense`).
    """
    options = options or ExportOptions()
    if to not in TARGETS:
        raise InputError(f"There is no export to {to!r}. Choose one of {', '.join(get_args(Format))}.")
    if options.density_px is not None and not options.density_px >= 1:
        raise InputError(f"A density of {options.density_px:g} is finer than the photos. Give 1 or more pixels.")
    if options.max_points is not None and options.max_points < 1:
        raise InputError(f"--max-points must be 1 or more, not {options.max_points}.")
    pieces = [reconstructions] if isinstance(reconstructions, Reconstruction) else list(reconstructions)
    known = [] if options.sparse else list(dense)
    job = Job(
        pieces=pieces,
        dense=[*known, *[None] * (len(pieces) - len(known))],
        out=Path(out),
        photos=None if photos is None else Path(photos),
        masks=None if masks is None else Path(masks),
        options=options,
    )
    if job.out.is_file():
        raise InputError(f"{out} is a file. Give a folder to write to.")
    with all_or_nothing(job.out):
        return TARGETS[to].write(job) or []
