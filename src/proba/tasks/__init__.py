"""Work in independent parts: in this process, in local workers, or on a scheduler that the user has."""

from proba.tasks.engine import Engine, InProcess, Part, TaskError, WorkerOptions
from proba.tasks.packing import pack, unpack
from proba.tasks.starting import open_engine

__all__ = ["Engine", "InProcess", "Part", "TaskError", "WorkerOptions", "open_engine", "pack", "unpack"]
