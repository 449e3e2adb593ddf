# make run | make test: on a fresh machine each does all its own set-up first; later calls start at once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help setup run test test-slow check format bench clean

help:
	@echo "make run        train the default preset and print the result (sets everything up first)"
	@echo "make test       the fast tests          make test-slow   processes and long training too"
	@echo "make check      ruff and mypy           make format      ruff's fixes"
	@echo "make bench      speed and memory of the private step beside its peers"
	@echo "make setup      the virtual environment alone"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,flower,bench]'
	touch $@

run: $(STAMP)
	$(BIN)/fedfdp run

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n 2

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/fedfdp bench

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
