# Every target first makes the virtual environment .venv, and makes it anew when pyproject.toml has changed.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PYTEST := $(BIN)/python -m pytest
# One more than there are processors, because many tests wait for servers and processes. Counted when it is used: the
# Python of a new environment is not there before.
PYTEST_WORKERS ?= $(shell $(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')
# A process that is done takes tests from the others, because some tests take a hundred times as long as most.
IN_PARALLEL = -n $(PYTEST_WORKERS) --maxprocesses 8 --dist worksteal
# The first of these that runs and is new enough makes the environment; `make test PYTHON=python3.12` names one.
PYTHON ?= python3.13 python3.12 python3.11 python3 python

.DEFAULT_GOAL := test
.PHONY: test check lint types all-tests nightly coverage pyright bench run docs shots vendor clean

test: lint ## the gate: lint, then types, layers and all tests
	@# Side by side, because on a fresh checkout mypy keeps one processor busy for a minute.
	@$(MAKE) --no-print-directory --jobs=2 types all-tests

check: lint types ## lint, types and layers only

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy
	$(BIN)/lint-imports

all-tests: $(READY)
	@$(BIN)/python -m tests.install_browser
	$(PYTEST) $(IN_PARALLEL)

# `make nightly ONLY="new_histories and sqlite"` looks at some of it; HISTORY_STEPS and HISTORY_SEED are explained in
# tests/exploration.py.
NIGHTLY := histories or nightly or hypothesis
nightly: $(READY) ## new histories of the state machine, property tests with many more examples, tests marked nightly
	HYPOTHESIS_PROFILE=nightly $(PYTEST) $(IN_PARALLEL) -m "$(NIGHTLY)" $(if $(ONLY),-k "$(ONLY)")

coverage: $(READY) ## all tests of the gate, and which branches of src they take; fails below the floor in pyproject.toml
	$(PYTEST) $(IN_PARALLEL) --cov --cov-report=term-missing:skip-covered --cov-report=html:.coverage-html

pyright: $(READY) ## a second type checker on src
	$(BIN)/pyright

bench: $(READY) ## the figures, as ratios within one run
	$(BIN)/python -m bench

run: $(READY) ## a worker and the demo workload on an SQLite file, until Ctrl-C
	$(BIN)/qo up --demo --url sqlite:///demo.db

docs: $(READY) ## the documentation as a site in .site/html, its links checked; needs no network
	$(BIN)/python -m tools.site

shots: $(READY) ## pictures of every page of the dashboard in .shots, with the demo at work
	@$(BIN)/python -m tests.install_browser
	$(BIN)/python -m tests.dashboard.shots .shots

vendor: ## the dashboard's libraries, bundled anew from the versions in tools/vendor/package.json; needs node and npm
	node tools/vendor/make.mjs

clean:
	rm -rf $(VENV) .coverage .coverage.* .coverage-html .hypothesis .import_linter_cache .mypy_cache .nightly .pytest_cache .ruff_cache .shots .site build dist
	find bench src tests tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp holds the directory it was made in, so that a copied or moved checkout does not test the old place,
# and is worth nothing when the Python behind the environment has gone.
MADE_IN := $(shell $(BIN)/python --version >/dev/null 2>&1 && cat $(READY) 2>/dev/null)

.PHONY: stale
$(READY): pyproject.toml $(if $(filter $(CURDIR),$(MADE_IN)),,stale)
	@set -eu; \
	rm -rf $(VENV); \
	for python in $(PYTHON); do \
		: "a name on the PATH may be a shim without a Python behind it, so it has to run"; \
		if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
			echo "Making $(VENV) with $$($$python --version), about half a minute"; \
			$$python -m venv $(VENV); \
			break; \
		fi; \
	done; \
	test -x $(BIN)/python || { \
		echo "qo needs Python 3.11 or newer with venv and pip: put one on the PATH and run make again." >&2; exit 1; }; \
	: "the pip that comes with Python 3.11 and 3.12 knows no dependency groups"; \
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --upgrade 'pip>=25.1'; \
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable . --group dev; \
	echo "$(CURDIR)" > $@
