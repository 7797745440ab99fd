# Two commands on a fresh machine: `make run` and `make test`. Needs Python >= 3.11, g++ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PROBLEM ?= L1/matmul
GENERATIONS ?= 50
KERNELS ?= 1000000
GPU_JOBS ?= 6
PYTEST_ARGS ?=

# Tests start hundreds of processes; without bytecode each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow test-gpu coverage check bench-engine bench-cluster clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/installed  ## virtual environment with everything, pinned by constraints.txt

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: setup  ## evolve kernels: make run PROBLEM=L1/softmax GENERATIONS=20
	$(BIN)/kbevolve run --problem $(PROBLEM) --generations $(GENERATIONS)

test: setup  ## all tests but the slow ones
	$(BIN)/python -m pytest -n 2 -m "not slow" $(PYTEST_ARGS)

test-slow: setup  ## those that take more than about five seconds each
	$(BIN)/python -m pytest -n 2 -m slow $(PYTEST_ARGS)

test-gpu: setup  ## those that need a CUDA device: side by side, then those that want it for themselves
	$(BIN)/python -m pytest -n $(GPU_JOBS) -m "not alone" tests/gpu $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m alone tests/gpu $(PYTEST_ARGS)

coverage: setup  ## the share of lines and branches that `make test` runs, by file, in .coverage-report
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=term:skip-covered --cov-report=html:.coverage-report $(PYTEST_ARGS)

check: setup  ## ruff and mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench-engine: setup  ## what the loop and the archive cost a child, beside a million kernels: make bench-engine KERNELS=10000
	$(BIN)/python -m benchmarks.engine --kernels $(KERNELS)

bench-cluster: setup  ## how work grows with judges: 4 against 1 through Ray, on simulated evaluations of 1 s
	$(BIN)/python -m benchmarks.cluster

clean:  ## the virtual environment and every cache
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
