"""How a sampler gets the weights of the trainer: in this process, in a vLLM beside it, or on vLLM servers."""
