"""Words, sentences and languages of a text, as IFEval counts them; nothing is downloaded for it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

_EXTRA = "constraints on words, sentences and languages need the extra `eval`: pip install 'tirjudge[eval]'"
_SEED = 0


class MissingExtra(ValueError):
    """A library is not installed; the text says in one line which extra brings it."""


def count_words(text: str) -> int:
    """Runs of letters, digits and underscores."""
    return sum(1 for _ in re.finditer(r"\w+", text))


def count_sentences(text: str) -> int:
    """As Punkt's English model splits them (Kiss & Strunk 2006). Raises MissingExtra."""
    return len(_sentences().tokenize(text))


def words_and_marks(text: str) -> list[str]:
    """Tokens of the Penn Treebank's kind, sentence by sentence. Raises MissingExtra."""
    return [token for sentence in _sentences().tokenize(text) for token in _words().tokenize(sentence)]


def detected_language(text: str) -> str | None:
    """The likeliest language as an ISO 639-1 code; None for a text without any letter that tells.

    The detector draws which letters it looks at: here from one seed, and with its profiles in one order, so
    that a text has one language. Raises MissingExtra.
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
    """A factory of our own: the library's is shared with whoever else uses it, and so is its seed."""
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
