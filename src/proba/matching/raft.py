"""RAFT, a network for optical flow: where each pixel of one image lies in another.

Teed and Deng, "RAFT: Recurrent All-Pairs Field Transforms for Optical Flow", ECCV 2020. The modules are named as in the
published weights. Two things are arranged differently, with the same result: an image is encoded once for all its
pairs, and what does not change from one iteration to the next is computed before the first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

CELL_PX = 8  # the flow is estimated for cells of this side, and brought to pixels at the end
WIDTH = 128  # channels of the hidden state, of the context, and of what is known of the motion
LEVELS = 4  # of the correlation pyramid
RADIUS = 4  # cells that are looked at around the present place, at each level


class Encoded(NamedTuple):
    """What RAFT knows of one image [1, 3, 8 h, 8 w]."""

    features: torch.Tensor  # [1, 256, h, w] to be compared
    hidden: torch.Tensor  # [1, 128, h, w] first state of the recurrent part
    context: torch.Tensor  # [1, 128, h, w]


class Raft(nn.Module):
    """The published network without its training code."""

    def __init__(self) -> None:
        super().__init__()
        self.fnet = _Encoder(nn.InstanceNorm2d)
        self.cnet = _Encoder(nn.BatchNorm2d)
        self.update_block = _Update()

    def encode(self, image: torch.Tensor) -> Encoded:
        """Encode an image [1, 3, H, W] with values from -1 to 1; the sides are multiples of 8."""
        hidden, context = self.cnet(image).split(WIDTH, dim=1)
        return Encoded(self.fnet(image), hidden.tanh(), context.relu())

    def flow(self, one: Encoded, other: Encoded, iterations: int) -> torch.Tensor:  # [2, H, W]
        """Displacement in pixels (x, y) of every pixel of the first image, the centres of both laid on each other."""
        look = _Correlation(one.features, other.features)
        height, width = one.features.shape[-2:]
        rows, columns = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in (height, width)), indexing="ij")
        home = torch.stack([columns, rows]).to(one.features)[None]  # [1, 2, h, w] cells
        there = (
            home
            + home.new_tensor([n - m for n, m in zip(look.size, (width, height), strict=True)]).view(1, 2, 1, 1) / 2
        )
        hidden, gates = one.hidden, self.update_block.gru.prepared(one.context)
        for _ in range(iterations):
            motion = self.update_block.encoder(there - home, look(there))
            hidden = self.update_block.gru(hidden, motion, gates)
            there = there + self.update_block.flow_head(hidden)
        return _to_pixels(there - home, 0.25 * self.update_block.mask(hidden))


class _Correlation:
    """Products of all cells of one image with all of another, at several resolutions of the other."""

    def __init__(self, one: torch.Tensor, other: torch.Tensor):
        height, width = other.shape[-2:]
        self.size = width, height
        products = one[0].flatten(1).T @ other[0].flatten(1) / math.sqrt(one.shape[1])  # [h w, h' w']
        self.levels = [products.view(-1, 1, height, width)]  # [h w, 1, h', w']
        for _ in range(LEVELS - 1):
            self.levels.append(F.avg_pool2d(self.levels[-1], 2))
        ticks = torch.arange(-RADIUS, RADIUS + 1).to(one)  # [D]
        # The published weights count the steps in x first.
        self.steps = torch.stack(torch.meshgrid(ticks, ticks, indexing="ij"), dim=-1)  # [D, D, 2] x, y

    def __call__(self, places: torch.Tensor) -> torch.Tensor:  # [1, LEVELS D D, h, w]
        """Products around the places [1, 2, h, w], in cells of the other image."""
        _, _, height, width = places.shape
        centres = places[0].permute(1, 2, 0).reshape(-1, 1, 1, 2)  # [h w, 1, 1, 2]
        found = []
        for level, products in enumerate(self.levels):
            sides = products.new_tensor([max(n - 1, 1) for n in products.shape[:1:-1]])  # [2] width, height
            at = 2 * (centres / 2**level + self.steps) / sides - 1  # [h w, D, D, 2]
            found.append(F.grid_sample(products, at, align_corners=True).view(height * width, -1))
        return torch.cat(found, dim=1).T.reshape(1, -1, height, width)


class _Residual(nn.Module):
    def __init__(self, before: int, after: int, norm: type[nn.Module], stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, stride=stride)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.norm1, self.norm2 = norm(after), norm(after)
        shrink = (nn.Conv2d(before, after, 1, stride=stride), norm(after)) if stride > 1 else ()
        self.downsample = nn.Sequential(*shrink)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu())).relu()
        return (self.downsample(x) + y).relu()


class _Encoder(nn.Module):
    def __init__(self, norm: type[nn.Module]):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 64, 7, stride=2, padding=3), norm(64)
        self.layer1 = nn.Sequential(_Residual(64, 64, norm, 1), _Residual(64, 64, norm, 1))
        self.layer2 = nn.Sequential(_Residual(64, 96, norm, 2), _Residual(96, 96, norm, 1))
        self.layer3 = nn.Sequential(_Residual(96, 128, norm, 2), _Residual(128, 128, norm, 1))
        self.conv2 = nn.Conv2d(128, 2 * WIDTH, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:  # [1, 256, H / 8, W / 8]
        return self.conv2(self.layer3(self.layer2(self.layer1(self.norm1(self.conv1(image)).relu()))))


class _Motion(nn.Module):
    """Sums up the flow so far and the products around it."""

    def __init__(self) -> None:
        super().__init__()
        self.convc1 = nn.Conv2d(LEVELS * (2 * RADIUS + 1) ** 2, 256, 1)
        self.convc2 = nn.Conv2d(256, 192, 3, padding=1)
        self.convf1 = nn.Conv2d(2, 128, 7, padding=3)
        self.convf2 = nn.Conv2d(128, 64, 3, padding=1)
        self.conv = nn.Conv2d(192 + 64, WIDTH - 2, 3, padding=1)

    def forward(self, flow: torch.Tensor, products: torch.Tensor) -> torch.Tensor:  # [1, 128, h, w]
        seen = self.convc2(self.convc1(products).relu()).relu()
        past = self.convf2(self.convf1(flow).relu()).relu()
        return torch.cat([self.conv(torch.cat([seen, past], dim=1)).relu(), flow], dim=1)


class _Gate(NamedTuple):
    """Convolutions of one direction: weights for hidden state and motion, and what the context adds to the result."""

    weight: torch.Tensor  # [256, 256, 1 or 5, 5 or 1] of update and reset gate
    constant: torch.Tensor  # [1, 256, h, w]
    new_weight: torch.Tensor  # [128, 256, 1 or 5, 5 or 1] of the new state
    new_constant: torch.Tensor  # [1, 128, h, w]
    padding: tuple[int, int]


class _Gru(nn.Module):
    """A gated recurrent unit, along rows and then along columns."""

    def __init__(self) -> None:
        super().__init__()
        for direction, kernel in ((1, (1, 5)), (2, (5, 1))):
            padding = kernel[0] // 2, kernel[1] // 2
            for gate in "zrq":
                self.add_module(f"conv{gate}{direction}", nn.Conv2d(3 * WIDTH, WIDTH, kernel, padding=padding))

    def prepared(self, context: torch.Tensor) -> list[_Gate]:
        """The part of the work that is the same in all iterations."""
        gates = []
        for direction in (1, 2):
            convs = [self.get_submodule(f"conv{gate}{direction}") for gate in "zrq"]
            weights = [conv.get_parameter("weight") for conv in convs]  # [128, 384, ...] hidden, context, motion
            own = [torch.cat([w[:, :WIDTH], w[:, 2 * WIDTH :]], dim=1) for w in weights]
            padding = weights[0].shape[2] // 2, weights[0].shape[3] // 2
            z, r, q = (
                F.conv2d(context, weight[:, WIDTH : 2 * WIDTH], conv.get_parameter("bias"), padding=padding)
                for conv, weight in zip(convs, weights, strict=True)
            )
            gates.append(_Gate(torch.cat(own[:2]), torch.cat([z, r], dim=1), own[2], q, padding))
        return gates

    def forward(self, hidden: torch.Tensor, motion: torch.Tensor, gates: list[_Gate]) -> torch.Tensor:
        for gate in gates:
            both = F.conv2d(torch.cat([hidden, motion], dim=1), gate.weight, padding=gate.padding) + gate.constant
            update, reset = both.sigmoid().split(WIDTH, dim=1)
            new = F.conv2d(torch.cat([reset * hidden, motion], dim=1), gate.new_weight, padding=gate.padding)
            hidden = (1 - update) * hidden + update * (new + gate.new_constant).tanh()
        return hidden


class _FlowHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(WIDTH, 256, 3, padding=1)
        self.conv2 = nn.Conv2d(256, 2, 3, padding=1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:  # [1, 2, h, w]
        return self.conv2(self.conv1(hidden).relu())


class _Update(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.gru, self.flow_head = _Motion(), _Gru(), _FlowHead()
        self.mask = nn.Sequential(nn.Conv2d(WIDTH, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 9 * CELL_PX**2, 1))


def _to_pixels(flow: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:  # [2, 8 h, 8 w]
    """A flow in cells [1, 2, h, w] as one in pixels: means of the nine cells around, with weights [1, 576, h, w]."""
    _, _, height, width = flow.shape
    share = weights.view(9, CELL_PX, CELL_PX, height, width).softmax(dim=0)
    around = F.unfold(CELL_PX * flow, 3, padding=1).view(2, 9, 1, 1, height, width)
    fine = (share * around).sum(dim=1)  # [2, 8, 8, h, w]
    return fine.permute(0, 3, 1, 4, 2).reshape(2, CELL_PX * height, CELL_PX * width)


def published_names(state: dict) -> dict:
    """The published weights as this module names them: without the wrapper for several GPUs, and each norm once."""
    return {name.removeprefix("module."): value for name, value in state.items() if ".norm3." not in name}
