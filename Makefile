# Two commands on a fresh machine: `make run` and `make test`. Needs Python >= 3.11, g++ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PROBLEM ?= L1/matmul
GENERATIONS ?= 50
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test check clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/installed  ## virtual environment with everything, pinned by constraints.txt

$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: setup  ## evolve kernels: make run PROBLEM=L1/softmax GENERATIONS=20
	$(BIN)/kbevolve run --problem $(PROBLEM) --generations $(GENERATIONS)

test: setup  ## all tests
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

check: setup  ## ruff and mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## the virtual environment and every cache
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
