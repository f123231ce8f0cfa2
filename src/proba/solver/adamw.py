"""AdamW (Loshchilov and Hutter 2019) whose state can be cut, copied and resampled along worlds and map levels."""

from __future__ import annotations

from dataclasses import dataclass

import torch

EPS = 1e-12
"""Losses are means over matches, so gradients of single map cells are tiny; the usual 1e-8 would swallow them."""


@dataclass
class Moments:
    """Running first and second moments of a gradient, and the number of updates behind them."""

    first: torch.Tensor
    second: torch.Tensor
    count: int = 0

    @classmethod
    def like(cls, tensor: torch.Tensor) -> Moments:
        return cls(torch.zeros_like(tensor), torch.zeros_like(tensor))

    def select(self, worlds: torch.Tensor) -> Moments:
        return Moments(self.first[worlds].clone(), self.second[worlds].clone(), self.count)

    def direction(self, grad: torch.Tensor, beta1: float, beta2: float) -> torch.Tensor:
        """Take in a gradient and return the bias-corrected step of unit size, downhill is minus it."""
        self.count += 1
        self.first.lerp_(grad, 1 - beta1)
        self.second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        denominator = (self.second / (1 - beta2**self.count)).sqrt_().add_(EPS)
        return (self.first / (1 - beta1**self.count)).div_(denominator)
