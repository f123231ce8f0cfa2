"""What a run leaves on disk besides the model: report.json for programs, report.html for people."""

from proba.report.dense_part import LITTLE_DEPTH, main_reason, tell_of_dense, with_dense
from proba.report.html import html_report, redraw_scenes
from proba.report.results import (
    DEMO_FILE,
    folder_summary,
    judge,
    output_folder,
    prepare_output,
    report_dict,
    write_results,
)
from proba.report.troubleshooting import troubleshooting_path

__all__ = [
    "DEMO_FILE",
    "LITTLE_DEPTH",
    "folder_summary",
    "html_report",
    "judge",
    "main_reason",
    "output_folder",
    "prepare_output",
    "redraw_scenes",
    "report_dict",
    "tell_of_dense",
    "troubleshooting_path",
    "with_dense",
    "write_results",
]
