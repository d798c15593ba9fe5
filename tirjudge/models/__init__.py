"""Base models by name: GGUF files that are converted once into a cache, model folders and hub ids."""

from tirjudge.models.machine import ModelUnavailable
from tirjudge.models.resolve import SMOL, KnownModel, is_local_name, resolve_model, weights_sha256

__all__ = ["SMOL", "KnownModel", "ModelUnavailable", "is_local_name", "resolve_model", "weights_sha256"]
