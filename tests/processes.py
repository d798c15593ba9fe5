"""The scheduler of `make test`, whose processes do not all collect the same files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdist.scheduler.loadfile import LoadFileScheduling


class Scheduling(LoadFileScheduling):
    """Gives a process the files that no other process has collected, and then files that others have too.

    A process begins once it has collected, while others still collect.
    """

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._able: dict[str, set[Any]] = {}
        """By file, the processes that have collected it."""

    @property
    def collection_is_completed(self) -> bool:
        return bool(self.registered_collections)

    @property
    def tests_finished(self) -> bool:
        return len(self.registered_collections) >= self.numnodes and super().tests_finished

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        known = {test for tests in self.registered_collections.values() for test in tests}
        self.registered_collections[node] = list(collection)
        for test in collection:
            file = self._split_scope(test)
            self._able.setdefault(file, set()).add(node)
            if test not in known:
                self.workqueue.setdefault(file, {})[test] = False
        # For the share of finished tests in the output.
        session: Any = self.config.pluginmanager.get_plugin("session")
        session.testscollected = len(known.union(collection))

    def schedule(self) -> None:
        for node in self.registered_collections.keys() & self.assigned_work.keys():
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node.shutting_down or self._pending_of(self.assigned_work[node]) > 2:
            return
        files = [file for file in self.workqueue if node in self._able[file]]
        if not files:
            node.shutdown()
            return
        self.workqueue.move_to_end(min(files, key=lambda file: len(self._able[file])), last=False)
        self._assign_work_unit(node)
