"""Results for other programs, one file for each target. `export` is the way in."""

from proba.export.targets import TARGETS, ExportOptions, Format, export, needs_photos, next_commands

__all__ = ["TARGETS", "ExportOptions", "Format", "export", "needs_photos", "next_commands"]
