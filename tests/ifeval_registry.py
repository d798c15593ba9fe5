"""The instruction checks that IFEval's authors released, packaged as `if-verifiable`."""

from __future__ import annotations

from typing import Any

import nltk
import pytest
from if_verifiable.ifeval import instructions_registry, instructions_util
from langdetect import DetectorFactory
from nltk.tokenize.destructive import NLTKWordTokenizer
from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
from punkt import load_model


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the released classes, with the parameters that NLTK's sentence splitter would download."""
    model, parameters = load_model("english"), PunktParameters()
    parameters.abbrev_types = set(model.abbrev_types)
    parameters.collocations = set(model.collocations)
    parameters.sent_starters = set(model.sent_starters)
    parameters.ortho_context.update(model.ortho_context)
    splitter, words = PunktSentenceTokenizer(parameters), NLTKWordTokenizer()
    monkeypatch.setattr(instructions_util, "_get_sentence_tokenizer", lambda: splitter)
    monkeypatch.setattr(
        nltk,
        "word_tokenize",
        lambda text: [token for part in splitter.tokenize(text) for token in words.tokenize(part)],
    )
    monkeypatch.setattr(DetectorFactory, "seed", 0)
    found: dict[str, Any] = instructions_registry.INSTRUCTION_DICT
    return found
