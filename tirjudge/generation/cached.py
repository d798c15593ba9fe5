"""A cache of completions on disk, and a generator that asks only for missing ones."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tirjudge.generation.base import Generator, Sampling, WrappedGenerator
from tirjudge.storage.run_settings import hashed
from tirjudge_environments import Completion, Context, Finish, ToolCall, Usage

CACHE_VARIABLE = "TIRJUDGE_CACHE"
"""Environment variable that names the cache file."""
ASKED_SINCE = "0.1.0"
"""The version since which generators send the same request for the same context and sampling. Users pay again
for completions of earlier versions: raise the version only if requests change."""
_PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""


def cache_file() -> Path:
    """Return the file of completions: the environment's choice, or one in the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "tirjudge" / "completions.sqlite"


class CompletionStore:
    """Completions by key, in one SQLite file that several processes may share.

    Raises ValueError, in one line, for a file that cannot be used.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            # In this mode a reader does not block a writer of another process.
            self._database.execute("PRAGMA journal_mode=WAL")
            # A power cut may lose the last completions, which are generated again; the file stays intact.
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS completions (key BLOB PRIMARY KEY, completion TEXT) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise ValueError(
                f"the cache {path} cannot be used ({error}): --no-cache runs without it"
            ) from None

    def get(self, key: bytes) -> Completion | None:
        """Return a completion; None for a missing key and for an unreadable entry.

        Raises OSError if the file cannot be read.
        """
        try:
            query = "SELECT completion FROM completions WHERE key = ?"
            found = self._database.execute(query, (key,)).fetchone()
        except sqlite3.Error as error:
            raise OSError(f"the cache cannot be read ({error}): --no-cache runs without it") from None
        if found is None:
            return None
        with suppress(ValueError, KeyError, TypeError):
            return _completion(json.loads(found[0]))
        return None

    def put(self, key: bytes, completion: Completion) -> None:
        """Store a completion without its logprobs. Raises OSError if the file cannot be written."""
        # Judging does not need logprobs, which would be the larger part of an entry.
        record = asdict(completion) | {"logprobs": None}
        try:
            self._database.execute("REPLACE INTO completions VALUES (?, ?)", (key, json.dumps(record)))
        except sqlite3.Error as error:
            raise OSError(f"the cache cannot be written ({error}): --no-cache runs without it") from None

    def close(self) -> None:
        self._database.close()


class CachedGenerator(WrappedGenerator):
    """A generator that asks an inner generator only for completions missing in `store`.

    The key of a completion holds everything that decides the completion: the model (`identity`), the
    conversation so far as token ids or texts, the sampling (with the seed unless greedy) and `ASKED_SINCE`.
    The key omits the row's id and position, and unused fields that a later version added (`Later`).

    A completion with an unknown end is not stored.
    """

    def __init__(self, inner: Generator, store: CompletionStore, identity: Mapping[str, Any]) -> None:
        """`identity` identifies the model: a name alone is not enough where its weights may change."""
        super().__init__(inner)
        self._store = store
        self._identity = {"tirjudge": ASKED_SINCE, **identity}
        self.hits = 0

    async def generate(self, context: Context, sampling: Sampling) -> Completion:
        key = self._key(context, sampling)
        kept = self._store.get(key)
        if kept is not None:
            self.hits += 1
            return kept
        completion = await self._inner.generate(context, sampling)
        if completion.finish is not Finish.UNKNOWN:
            self._store.put(key, completion)
        return completion

    async def close(self) -> None:
        await super().close()
        self._store.close()

    def _key(self, context: Context, sampling: Sampling) -> bytes:
        dialogue: dict[str, Any] = {"prompt": hashed(context.prompt)}
        if context.ids is not None:
            dialogue["ids"] = context.ids
        else:
            dialogue["segments"] = hashed(context.segments)
        # A greedy completion does not depend on the seed.
        drawn_with = hashed(sampling) | ({} if sampling.temperature else {"seed": None})
        text = json.dumps([self._identity, dialogue, drawn_with], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _completion(record: Mapping[str, Any]) -> Completion:
    ids = record["token_ids"]
    return Completion(
        text=record["text"],
        finish=Finish(record["finish"]),
        token_ids=None if ids is None else tuple(ids),
        reasoning=record["reasoning"],
        tool_calls=tuple(ToolCall(**call) for call in record["tool_calls"]),
        further=record.get("further") or {},
        usage=Usage(**record["usage"]),
    )
