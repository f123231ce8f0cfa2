"""Divide and conquer: clusters of the view graph are solved one by one, joined by averaging, and adjusted together."""

from proba.clusters.dividing import Dividing

__all__ = ["Dividing"]
