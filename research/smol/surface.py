"""A baseline without a judge: logistic regression on surface features, with the family predicted.

The family of a prompt is predicted from its words. A pair's features are the differences of two responses'
surface features, by themselves and weighted with each family's probability. Both models are fitted on
training rows. `cross_validated` fits on the measured rows instead and uses their true families: it flatters
the baseline, as a bound on what the editors of a set give away.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array

from research.smol.passages import sentences
from research.smol.sources import Fields
from research.smol.splits import rank

Array = NDArray[np.float64]

_BUCKETS = 4096
"""Hashed words and word pairs of a prompt."""
_FOLDS = 10
_COUNTED = (
    r",",
    r"\n",
    r"\n\n",
    r"[.!?]",
    r"\*",
    r"[\[\]]",
    r"<<|>>",
    r"^\s*[*-] ",
    r'"',
    r"\d",
    r"[;–]",
    r"[A-Z]",
)


class Fluency:
    """The mean log probability of a text's character 4-grams, with add-one smoothing."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._grams: Counter[str] = Counter()
        self._contexts: Counter[str] = Counter()
        for text in texts:
            for i in range(len(text) - 3):
                self._grams[text[i : i + 4]] += 1
                self._contexts[text[i : i + 3]] += 1

    def __call__(self, text: str) -> float:
        scores = [
            math.log((self._grams[text[i : i + 4]] + 1) / (self._contexts[text[i : i + 3]] + 200))
            for i in range(len(text) - 3)
        ]
        return sum(scores) / len(scores) if scores else -10.0


def features(text: str, fluency: Fluency) -> list[float]:
    """Return the surface features of a response; counts as logarithms of one plus the count."""
    counts = [len(re.findall(pattern, text, re.MULTILINE)) for pattern in _COUNTED]
    tokens = text.split()
    letters = [sign for sign in text if sign.isalpha()]
    return [
        *(math.log1p(count) for count in (len(text), len(tokens), len(sentences(text)), *counts)),
        sum(sign.isupper() for sign in letters) / max(1, len(letters)),
        sum(token.isupper() and len(token) > 1 for token in tokens) / max(1, len(tokens)),
        len({token.lower() for token in tokens}) / max(1, len(tokens)),
        float(text.strip()[:1] == '"'),
        float(text.strip()[-1:] == '"'),
        float(text.strip()[-1:] in ".!?"),
        float(text.strip()[:1].islower()),
        fluency(text),
    ]


def fit(inputs: Array | csr_array, targets: Array, penalty: float) -> Array:
    """Return the weights of a logistic regression with a squared penalty, without an intercept."""

    def loss(weights: Array) -> tuple[float, Array]:
        logits = inputs @ weights
        value = np.logaddexp(0.0, logits).sum() - targets @ logits + penalty / 2 * weights @ weights
        errors = 1 / (1 + np.exp(-np.clip(logits, -40, 40))) - targets
        return float(value), inputs.T @ errors + penalty * weights

    found = minimize(loss, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x, dtype=np.float64)


def bag(prompt: str) -> Array:
    """Return the hashed words and word pairs of a prompt, present or not, and a constant."""
    tokens = re.findall(r"[a-z]+|\d|[^\w\s]", prompt.lower())
    found = np.zeros(_BUCKETS + 1)
    for gram in (*tokens, *map(" ".join, pairwise(tokens))):
        found[zlib.crc32(gram.encode()) % _BUCKETS] = 1.0
    found[-1] = 1.0
    return found


@dataclass(frozen=True, slots=True)
class FamilyModel:
    """One logistic regression for each family, on a prompt's words."""

    names: tuple[str, ...]
    weights: Array

    @classmethod
    def fitted(cls, rows: Sequence[Fields]) -> FamilyModel:
        names = tuple(sorted({family for row in rows for family in row["families"]}))
        prompts = {row["prompt"]: set(row["families"]) for row in rows}
        # A prompt has some hundred of the buckets.
        inputs = csr_array(np.stack([bag(prompt) for prompt in prompts]))
        found = [
            fit(inputs, np.array([float(name in families) for families in prompts.values()]), 1.0)
            for name in names
        ]
        return cls(names, np.stack(found))

    def __call__(self, prompt: str) -> Array:
        return np.asarray(1 / (1 + np.exp(-np.clip(self.weights @ bag(prompt), -40, 40))))


def _difference(row: Fields, fluency: Fluency) -> Array:
    first, second = (np.array(features(text, fluency)) for text in row["responses"])
    return np.asarray(first - second)


def _with_families(differences: Array, families: Array) -> Array:
    """Return the differences, followed by those of each family; shape (rows, features * (families + 1))."""
    weighted = families[:, :, None] * differences[:, None, :]
    return np.hstack([differences, weighted.reshape(len(differences), -1)])


def fitted_on_training(training: Sequence[Fields], rows: Sequence[Fields]) -> list[int]:
    """Return the response chosen for each pair, by models fitted on training rows with two responses."""
    pairs = [row for row in training if len(row["responses"]) == 2]
    fluency = Fluency([text for row in pairs for text in row["responses"]])
    model = FamilyModel.fitted(pairs)
    learned = np.stack([_difference(row, fluency) for row in pairs])
    scale = learned.std(axis=0) + 1e-9
    guesses = {prompt: model(prompt) for prompt in {row["prompt"] for row in (*pairs, *rows)}}
    inputs = _with_families(learned / scale, np.stack([guesses[row["prompt"]] for row in pairs]))
    targets = np.array([float(row["label"] == 0) for row in pairs])
    weights = fit(inputs, targets, 3.0)
    differences = np.stack([_difference(row, fluency) for row in rows]) / scale
    logits = _with_families(differences, np.stack([guesses[row["prompt"]] for row in rows])) @ weights
    return [int(logit < 0) for logit in logits]


def cross_validated(rows: Sequence[Fields]) -> list[int]:
    """Return the choices of a model fitted on the other nine tenths of the same rows, true families known."""
    families = sorted({family for row in rows for family in row.get("broken", row["families"])})
    fluency = Fluency([text for row in rows for text in row["responses"]])
    known = np.array(
        [[float(name in row.get("broken", row["families"])) for name in families] for row in rows]
    )
    differences = np.stack([_difference(row, fluency) for row in rows])
    inputs = _with_families(differences / (differences.std(axis=0) + 1e-9), known)
    targets = np.array([float(row["label"] == 0) for row in rows])
    folds = np.array([rank("fold", row["prompt"]) % _FOLDS for row in rows])
    choices = np.zeros(len(rows), dtype=int)
    for fold in range(_FOLDS):
        held = folds == fold
        if held.any() and not held.all():
            choices[held] = (inputs[held] @ fit(inputs[~held], targets[~held], 3.0)) < 0
    return [int(choice) for choice in choices]
