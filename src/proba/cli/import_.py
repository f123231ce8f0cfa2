"""`proba import`: matches of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba.cli.options import OUT
from proba.io.foreign_matches import import_matches
from proba.io.matches_h5 import save_matches


def main(
    file: Annotated[Path, tyro.conf.Positional],
    /,
    out: Annotated[Path, OUT],
    keypoints: Path | None = None,
    images: Path | None = None,
) -> None:
    """Turn matches of another program into a matches file for `proba solve`.

    Args:
        file: A COLMAP database (.db), hloc matches (.h5), or an .npz as `docs/conventions.md` describes it.
        out: Matches file to write (h5).
        keypoints: The feature file that hloc's sparse matches refer to.
        images: Folder of the photos, for dense hloc files, which do not tell image sizes.
    """
    matches = import_matches(file, keypoints=keypoints, images=images)
    save_matches(out, matches)
    total = sum(len(pair.points_i) for pair in matches.pairs.values())
    print(f"{len(matches.images)} images, {len(matches.pairs)} pairs, {total} matches")
    print(f"wrote {out}; next: proba solve {out} --out DIR")
