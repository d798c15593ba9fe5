# `make check test` is green before every commit. All commands use the Python on PATH.
export OMP_NUM_THREADS := 1

# Processes that `make test` runs files in.
WORKERS := 2

.PHONY: check format test soak

check:
	ruff format --check .
	ruff check .
	mypy
	lint-imports

format:
	ruff format .
	ruff check --fix .

# The second line runs what may not run at the same time as another test.
test:
	python -m pytest --durations 60 --durations-min 4 --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
	python -m pytest -m alone tests/sandbox

soak:
	python -m pytest -m soak --durations 0
