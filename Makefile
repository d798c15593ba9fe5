# `make check test` is green before every commit. All commands use the Python on PATH.
export OMP_NUM_THREADS := 1
# The tests start thousands of processes, each of which would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

# Processes that `make test` runs files in: one more than two processors, since tests of limits and servers wait.
WORKERS := 3

# Comparisons of speed with peers; those in another environment are measured where `.ci/frameworks` made it.
PEERS := sandbox_latency rollout_throughput training_step generation_throughput endpoint_judging prefix_cache
CHECK = --check --json runs/bench/$@.json

.PHONY: check format test slow soak bench $(PEERS) containers verl verifiers vllm scale

check:
	ruff format --check .
	ruff check .
	mypy
	lint-imports

format:
	ruff format .
	ruff check --fix .

# The last line runs what may not run at the same time as another test.
test:
	python -m pytest --durations 60 --durations-min 4 --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
	python -m pytest -m alone $$(grep -rl --include='test_*.py' mark.alone tests)

# Tests marked `slow`, which CI runs after `make test`.
slow:
	python -m pytest -m slow --durations 20 --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

soak:
	python -m pytest -m "slow or soak" --durations 0

# `make -k bench` goes on after a ratio that has fallen; `make sandbox_latency` measures one script.
bench: $(PEERS) containers verl verifiers vllm scale

$(PEERS): | runs/bench
	$(PYTHON) -m benchmarks.$@ $(ONLY) $(CHECK)

PYTHON = python
rollout_throughput: ONLY = --only 'rollouts/trl/*' --model runs/bench
endpoint_judging: PYTHON = $(or $(wildcard .venv-inspect/bin/python),python)
vllm prefix_cache: PYTHON = $(or $(wildcard .venv-vllm/bin/python),python)
vllm prefix_cache: export VLLM_CPU_KVCACHE_SPACE := 1
vllm prefix_cache: export VLLM_CPU_OMP_THREADS_BIND := nobind
vllm prefix_cache: export TORCHDYNAMO_DISABLE := 1

containers: | runs/bench
	python -m benchmarks.sandbox_latency --only 'sandbox/exec/*' $(CHECK)

verl verifiers: | runs/bench
	$(or $(wildcard .venv-$@/bin/python),python) -m benchmarks.rollout_throughput \
		--only 'rollouts/$@/*' --model runs/bench $(CHECK)

vllm: | runs/bench
	$(PYTHON) -m benchmarks.vllm_throughput --model runs/bench $(CHECK)

# Reading, scoring, comparing and reporting, by the number of rows; these have no peer.
scale:
	python -m benchmarks.evaluation_scale --rows 1000 10000 100000
	python -m benchmarks.evaluation_scale --rows 1000000 --protocol net-vote
	python -m benchmarks.report_size --rows 1000
	python -m benchmarks.report_size --rows 10000

runs/bench:
	mkdir -p $@
