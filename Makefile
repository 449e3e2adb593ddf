# make run | make test: on a fresh machine each does all its own set-up first; later calls start at once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
DOCS := .venv/.docs

.PHONY: help setup run test test-slow browser check format bench docs charts clean

help:
	@echo "make run        train the default preset, print the result, write its report (sets everything up first)"
	@echo "make test       the fast tests          make test-slow   processes and long training too"
	@echo "make check      ruff and mypy           make format      ruff's fixes"
	@echo "make bench      speed and memory of the private step beside its peers"
	@echo "make docs       the documentation as a site, in site/: open site/index.html"
	@echo "make setup      the virtual environment alone"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,flower,ray,bench]'
	touch $@

run: $(STAMP)
	$(BIN)/fedfdp run --report

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n 2 --durations=40

test-slow: $(STAMP) $(DOCS) browser
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile -vv

browser: # for the report's tests, which skip where it cannot be had
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && \
	  apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; } || \
	  echo "no chromium here: the tests of the report in a browser are skipped"

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/fedfdp bench

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	$(BIN)/python scripts/check_site.py site

charts: # the vendored charting library, made anew in the versions of scripts/charts/package-lock.json (needs npm)
	cd scripts/charts && npm ci --silent && npm run --silent build

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
