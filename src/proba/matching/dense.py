"""Dense matchers of the paper (DKM, RoMa) and RoMa v2: adapters to what the user has installed.

A dense warp is sampled on a grid of 64 x 64 points of either image; a point is kept if the warp there and back returns
to within 5 pixels (the paper's appendix).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from proba.errors import InputError
from proba.io.images import Pixels
from proba.matches import PairMatches
from proba.matching.loftr import seen
from proba.matching.matcher import Features
from proba.matching.verify import SEMI_DENSE
from proba.matching.weight_files import read_weights


@dataclass(frozen=True, kw_only=True)
class WarpOptions:
    """How a dense warp becomes a list of matches."""

    max_side_px: int = 1600
    """Larger photos are reduced; these networks work on about 860 pixels anyway."""
    grid: int = 64
    """Points a side (the paper's)."""
    cycle_px: float = 5.0
    """Largest distance after going there and back (the paper's)."""
    min_certainty: float = 0.1
    """Below it these networks mean "not visible"."""


class WarpMatcher:
    """DKM and RoMa share one interface: `match(image, image)` gives a warp [H, 2 W, 4] and a certainty [H, 2 W]."""

    keep_features = False
    preview = 0
    bounds = SEMI_DENSE

    def __init__(self, name: str, model: Any, options: WarpOptions | None = None):
        self.name, self.model, self.options = name, model, options or WarpOptions()
        self.max_side_px = self.options.max_side_px

    def settings(self) -> dict[str, Any]:
        return {"matcher": self.name, **asdict(self.options)}

    def extract(self, pixels: Pixels) -> Features:
        visible = np.ones(pixels.rgb.shape[:2], bool) if pixels.mask is None else pixels.mask
        return {"rgb": pixels.rgb, "visible": visible, "scale": pixels.scale}

    @torch.inference_mode()
    def match(self, one: Features, other: Features) -> PairMatches:
        images = [Image.fromarray(features["rgb"]) for features in (one, other)]
        warp, certainty = self.model.match(*images, device=_device())
        points_i, points_j, scores = sample_warp(
            warp, certainty, original_size(one), original_size(other), self.options
        )
        keep = seen(points_i, one) & seen(points_j, other)
        return PairMatches(points_i[keep], points_j[keep], scores[keep])


class RomaV2Matcher(WarpMatcher):
    """RoMa v2 samples by itself."""

    @torch.inference_mode()
    def match(self, one: Features, other: Features) -> PairMatches:
        images = [Image.fromarray(features["rgb"]) for features in (one, other)]
        sampled, overlap, *_ = self.model.sample(self.model.match(*images), self.options.grid**2)
        sampled, overlap = sampled.float().cpu().numpy(), overlap.float().cpu().numpy().reshape(-1)  # [M, 4], [M]
        points_i = (sampled[:, :2] + 1) / 2 * original_size(one)  # [M, 2], -1 and 1 are the outer edges of the image
        points_j = (sampled[:, 2:4] + 1) / 2 * original_size(other)  # [M, 2]
        keep = (overlap > self.options.min_certainty) & seen(points_i, one) & seen(points_j, other)
        return PairMatches(*(column[keep].astype(np.float32) for column in (points_i, points_j, overlap)))


def sample_warp(
    warp: torch.Tensor, certainty: torch.Tensor, size_i: np.ndarray, size_j: np.ndarray, options: WarpOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points [M, 2] in original pixels of both images, and certainties [M], that survive the way there and back.

    The left half of `warp` [H, 2 W, 4] is on the pixels of image i, the right half on those of j; each entry is
    (x_i, y_i, x_j, y_j) with -1 and 1 at the outer edges of an image. Sizes are (width, height) of the originals.
    """
    warp, certainty = warp.float().cpu(), certainty.float().cpu()
    if warp.dim() == 4:
        warp, certainty = warp[0], certainty[0]
    half = warp.shape[1] // 2
    to_j, to_i = warp[:, :half, 2:], warp[:, half:, :2]  # [H, W, 2] each
    return sample_fields(to_j, to_i, certainty[:, :half, None], certainty[:, half:, None], size_i, size_j, options)


def sample_fields(
    to_j: torch.Tensor,
    to_i: torch.Tensor,
    sure_j: torch.Tensor | None,
    sure_i: torch.Tensor | None,
    size_i: np.ndarray,
    size_j: np.ndarray,
    options: WarpOptions,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for one field of places a direction, [H, W, 2] each, whose sizes may differ, and certainties [H, W, 1].

    Without certainties a match counts the more, the nearer the way there and back ends to where it began.
    """
    i_first = _there_and_back(to_j, to_i, sure_j, size_i, options)
    j_first = _there_and_back(to_i, to_j, sure_i, size_j, options)
    x_i, x_j, score = (
        torch.cat(two).numpy() for two in zip(i_first, (j_first[1], j_first[0], j_first[2]), strict=True)
    )
    return _pixels(x_i, size_i), _pixels(x_j, size_j), score


def _there_and_back(
    there: torch.Tensor, back: torch.Tensor, sure: torch.Tensor | None, size: np.ndarray, options: WarpOptions
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Start points and ends [M, 2] in [-1, 1], and certainties [M], on a regular grid of start points."""
    ticks = (torch.arange(options.grid) + 0.5) / options.grid * 2 - 1  # cell centres
    start = torch.stack(torch.meshgrid(ticks, ticks, indexing="xy"), dim=-1).reshape(-1, 2)  # [G, 2]
    end = _sample(there, start)  # [G, 2]
    miss_px = torch.linalg.norm((_sample(back, end) - start) / 2 * torch.from_numpy(size), dim=1)  # [G]
    keep = (miss_px < options.cycle_px) & (end.abs() <= 1).all(dim=1)  # [G]
    if sure is None:
        score = 1 - miss_px / options.cycle_px  # [G]
    else:
        score = _sample(sure, start)[:, 0]  # [G]
        keep &= score > options.min_certainty
    return start[keep], end[keep], score[keep]


def _sample(field: torch.Tensor, points: torch.Tensor) -> torch.Tensor:  # [G, C]
    """Bilinear values of a field [H, W, C] at points [G, 2] in [-1, 1], outer edges at -1 and 1."""
    values = F.grid_sample(
        field.permute(2, 0, 1)[None], points[None, None], mode="bilinear", padding_mode="border", align_corners=False
    )
    return values[0, :, 0].T


def _pixels(points: np.ndarray, size: np.ndarray) -> np.ndarray:  # [M, 2] float32
    return ((points + 1) / 2 * size).astype(np.float32)


def original_size(features: Features) -> np.ndarray:  # [2] width and height of the original image
    height, width = features["visible"].shape
    return np.array([width, height], np.float32) * features["scale"]


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_dkm(weights: Path | None) -> WarpMatcher:
    module = importlib.import_module("dkm")
    return WarpMatcher("dkm", _load("dkm", lambda: module.DKMv3_outdoor(path_to_weights=weights)))


def make_roma(weights: Path | None) -> WarpMatcher:
    """`weights` is RoMa's file, or a folder with roma_outdoor.pth and dinov2_vitl14_pretrain.pth."""
    module = importlib.import_module("romatch")
    given: dict[str, Any] = {}
    if weights is not None:
        folder = weights if weights.is_dir() else weights.parent
        given["weights"] = read_weights(weights / "roma_outdoor.pth" if weights.is_dir() else weights)
        if (folder / "dinov2_vitl14_pretrain.pth").exists():
            given["dinov2_weights"] = read_weights(folder / "dinov2_vitl14_pretrain.pth")
    return WarpMatcher("roma", _load("roma", lambda: module.roma_outdoor(device=_device(), **given)))


def make_romav2(weights: Path | None) -> RomaV2Matcher:
    module = importlib.import_module("romav2")
    if weights is not None:
        cache = Path(torch.hub.get_dir()) / "checkpoints"
        raise InputError(f"romav2 loads its own weights from torch's cache: copy {weights} to {cache} instead.")
    return RomaV2Matcher("romav2", _load("romav2", module.RoMaV2))


def _load(name: str, build: Callable[[], Any]) -> Any:
    try:
        return build()
    except InputError:
        raise
    except Exception as error:  # these packages fetch from hubs, which can fail in any way
        text = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(
            f"{name} could not be loaded ({text}). Without network, give its file with --weights."
        ) from error
