"""Best-of-N of one prompt: what Python programs use of `tirjudge.selection`."""

from tirjudge.selection.best_of_n import Selection, abest_of, best_of
from tirjudge.selection.grading import RefereeUnavailable

__all__ = ["RefereeUnavailable", "Selection", "abest_of", "best_of"]
