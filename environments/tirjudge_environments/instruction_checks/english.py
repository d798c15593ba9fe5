"""Words, sentences and languages of a text, counted as IFEval does, without downloads."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_EXTRA = "constraints on words, sentences and languages need the extra `eval`: pip install 'tirjudge[eval]'"
_SEED = 0


class MissingExtra(ValueError):
    """A missing library; the message names the extra that installs it, in one line."""


def count_words(text: str) -> int:
    """Count runs of letters, digits and underscores."""
    return sum(1 for _ in re.finditer(r"\w+", text))


def count_sentences(text: str) -> int:
    """Count sentences with Punkt's English model (Kiss & Strunk 2006). Raises MissingExtra."""
    return len(_sentences().tokenize(text))


def words_and_marks(text: str) -> list[str]:
    """Return Penn Treebank tokens, sentence by sentence. Raises MissingExtra."""
    return [token for sentence in _sentences().tokenize(text) for token in _words().tokenize(sentence)]


def detected_language(text: str) -> str | None:
    """Return the most likely language as an ISO 639-1 code; None for a text without informative letters.

    The detector samples the letters that it looks at. A fixed seed and a fixed order of its profiles make the
    result a function of the text. Raises MissingExtra.
    """
    factory, undetectable = _detectors()
    detector = factory.create()
    detector.append(text)
    try:
        return str(detector.detect())
    except undetectable:
        return None


@cache
def _sentences() -> Any:
    try:
        import punkt
    except ImportError:
        raise MissingExtra(_EXTRA) from None
    return punkt.tokenizer_for("english")


@cache
def _words() -> Any:
    try:
        from nltk.tokenize.destructive import NLTKWordTokenizer
    except ImportError:
        raise MissingExtra(_EXTRA) from None
    return NLTKWordTokenizer()


@cache
def _detectors() -> tuple[Any, type[Exception]]:
    """Return a detector factory of our own, since the library's global one shares its seed with all users."""
    try:
        from langdetect import LangDetectException
        from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
    except ImportError:
        raise MissingExtra(_EXTRA) from None
    factory = DetectorFactory()
    profiles = sorted(Path(PROFILES_DIRECTORY).iterdir())
    factory.load_json_profile([profile.read_text(encoding="utf-8") for profile in profiles])
    factory.set_seed(_SEED)
    return factory, LangDetectException
