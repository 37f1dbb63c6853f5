"""Programs: a trained network as one file that C++ and C run without Python; docs/programs.md."""

from .export import ENDING, export
from .program import Program
from .recorder import ExportError

__all__ = ["ENDING", "ExportError", "Program", "export"]
