"""AdamW (Loshchilov and Hutter 2019) whose state can be cut, copied and resampled along worlds and map levels."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from proba.kernels import Machine


@dataclass
class Moments:
    """Running first and second moments of a gradient, and the number of updates behind them."""

    first: torch.Tensor
    second: torch.Tensor
    count: int = 0

    @classmethod
    def like(cls, tensor: torch.Tensor) -> Moments:
        return cls(torch.zeros_like(tensor), torch.zeros_like(tensor))

    def to(self, device: torch.device) -> Moments:
        return Moments(self.first.to(device), self.second.to(device), self.count)

    def select(self, worlds: torch.Tensor) -> Moments:
        return Moments(self.first[worlds].clone(), self.second[worlds].clone(), self.count)

    def direction(self, machine: Machine, grad: torch.Tensor, beta1: float, beta2: float) -> torch.Tensor:
        """Take in a gradient and overwrite it with the bias-corrected step of unit size; downhill is minus it."""
        self.count += 1
        machine.direction(grad, self.first, self.second, beta1=beta1, beta2=beta2, count=self.count)
        return grad
