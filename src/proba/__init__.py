"""ProBA: probabilistic bundle adjustment. Pairwise matches in; poses, focals and Gaussians out."""

from proba._version import __version__

__all__ = ["__version__"]
