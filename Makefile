# The two commands that are green before every commit. Both use the Python on PATH.
export OMP_NUM_THREADS := 1

.PHONY: check format test

check:
	ruff format --check .
	ruff check .
	mypy
	lint-imports

format:
	ruff format .
	ruff check --fix .

test:
	python -m pytest
