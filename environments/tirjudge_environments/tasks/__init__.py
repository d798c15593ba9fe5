"""Conversion of dataset rows to tasks."""

from tirjudge_environments.tasks.cells import RowError
from tirjudge_environments.tasks.columns import DEFAULT_COLUMNS, ColumnPlaces, Columns
from tirjudge_environments.tasks.conversion import read_task
from tirjudge_environments.tasks.criteria import LARGEST_WEIGHT, read_criteria
from tirjudge_environments.tasks.labels import read_label

__all__ = [
    "DEFAULT_COLUMNS",
    "LARGEST_WEIGHT",
    "ColumnPlaces",
    "Columns",
    "RowError",
    "read_criteria",
    "read_label",
    "read_task",
]
