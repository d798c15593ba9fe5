"""A model's tokenizer as an encoder, from the folder or hub id where the model lies."""

from __future__ import annotations

from tirjudge.generation.base import GeneratorFailed
from tirjudge_environments.tokenization import ChatEncoder


def load_encoder(path: str) -> ChatEncoder:
    """The model's generation config, where it has one, also says which tokens end a turn.

    None of the repository's own code is run. Raises GeneratorFailed.
    """
    try:
        from transformers import AutoTokenizer, GenerationConfig
    except ImportError as error:
        raise GeneratorFailed(f"a tokenizer needs `pip install tirjudge[local]`: {error}") from error
    try:
        loaded = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise GeneratorFailed(f"cannot load the tokenizer {path!r}: {reason}") from error
    try:
        ends = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:  # many models have none
        ends = None
    return ChatEncoder(loaded, ends=[ends] if isinstance(ends, int) else ends or ())
