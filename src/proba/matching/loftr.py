"""LoFTR, the paper's matcher for the view graph: no keypoints, a match for each 8 x 8 cell that has one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proba.io.images import Pixels
from proba.matches import PairMatches
from proba.matching.matcher import Features
from proba.matching.verify import SEMI_DENSE
from proba.matching.weight_files import find_weights, fit_weights, load_weights


@dataclass(frozen=True, kw_only=True)
class LoftrOptions:
    """Settings of LoFTR."""

    max_side_px: int = 832
    """Larger photos are reduced; the outdoor weights were trained at this size."""
    min_confidence: float = 0.2
    """LoFTR's own bound."""


class Loftr:
    """kornia's LoFTR with the outdoor weights."""

    keep_features = False  # 100 MB an image: the reduced photo is kept instead, in memory
    preview = 0
    bounds = SEMI_DENSE

    def __init__(
        self, weights: Path | None = None, options: LoftrOptions | None = None, network: torch.nn.Module | None = None
    ):
        self.options = options or LoftrOptions()
        self.max_side_px = self.options.max_side_px
        self.network = (network or _pretrained(weights)).eval()

    def settings(self) -> dict[str, Any]:
        return {"matcher": "loftr", **asdict(self.options)}

    def extract(self, pixels: Pixels) -> Features:
        visible = np.ones(pixels.rgb.shape[:2], bool) if pixels.mask is None else pixels.mask
        return {"grey": pixels.grey, "visible": visible, "scale": pixels.scale}

    @torch.inference_mode()
    def match(self, one: Features, other: Features) -> PairMatches:
        image0, image1 = (torch.from_numpy(x["grey"].copy())[None, None].float() / 255 for x in (one, other))
        found = self.network({"image0": image0, "image1": image1})
        # LoFTR's own pixels have the first centre at (0.5, 0.5), unlike those of kornia's keypoint detectors.
        points_i = found["keypoints0"].numpy() * one["scale"]  # [M, 2]
        points_j = found["keypoints1"].numpy() * other["scale"]  # [M, 2]
        score = found["confidence"].numpy()  # [M]
        keep = (score > self.options.min_confidence) & seen(points_i, one) & seen(points_j, other)
        return PairMatches(points_i[keep], points_j[keep], score[keep])


def seen(points: np.ndarray, features: Features) -> np.ndarray:  # [M] bool
    """Which points, in original pixels, lie in the photo and on the white of its mask."""
    height, width = features["visible"].shape
    column, row = np.floor(points / features["scale"]).astype(int).T
    inside = (column >= 0) & (row >= 0) & (column < width) & (row < height)
    return inside & features["visible"][row.clip(0, height - 1), column.clip(0, width - 1)]


def _pretrained(weights: Path | None) -> torch.nn.Module:
    from kornia.feature import LoFTR as Network

    path = find_weights(weights, cached="loftr_outdoor.ckpt")
    state = load_weights(
        path,
        matcher="loftr",
        download=lambda: Network("outdoor").state_dict(),
        remedy="Download loftr_outdoor.ckpt (kornia/loftr on Hugging Face) on another machine",
    )
    network = Network(None)
    fit_weights(network, state.get("state_dict", state), matcher="loftr", strict=False)
    return network
