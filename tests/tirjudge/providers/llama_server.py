"""Serve a GGUF file with llama.cpp as an OpenAI-compatible endpoint until standard input ends.

python tests/tirjudge/providers/llama_server.py MODEL.gguf
"""

import sys

import xllamacpp  # type: ignore[import-not-found]

given = xllamacpp.CommonParams()
given.model.path = sys.argv[1]
given.port = 0
given.n_parallel, given.n_ctx = 4, 16384
given.cpuparams.n_threads = given.cpuparams_batch.n_threads = 2
server = xllamacpp.Server(given)
print(server.listening_address, flush=True)
sys.stdin.read()
