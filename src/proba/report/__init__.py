"""What a run leaves on disk besides the model: report.json for programs, report.html for people."""

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
    "folder_summary",
    "html_report",
    "judge",
    "output_folder",
    "prepare_output",
    "redraw_scenes",
    "report_dict",
    "troubleshooting_path",
    "write_results",
]
