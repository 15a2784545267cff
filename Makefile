# Needs make and python3 (3.11 to 3.14); everything else is installed into $(VENV) on first use.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
ARGS ?=
# One process more than there are cores: some tests wait for processes of their own.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')
# Seconds that a test may take. One that hangs prints where it is and fails by name: its worker ends,
# and another takes the worker's place.
LIMIT := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

# What tests import little of, and half of all source: Python compiles it when it is imported.
RARE := /(tests|transformers|ray|mlflow|networkx|mypy)/

# Where this is set Python keeps no bytecode, and every later command compiles its imports again: it
# takes twice the time to start. The environment is ours, so the first command keeps bytecode in it.
unexport PYTHONDONTWRITEBYTECODE

# Real data, where there are any; tests that need them are skipped otherwise.
ifneq ($(wildcard ../shared/data/.),)
export COTERIE_DATA ?= $(abspath ../shared/data)
endif

.DEFAULT_GOAL := help
.PHONY: bench-gpu help demo test test-all test-quick test-flower test-spawn soak damage resumes lint check docs bench bench-peers bench-whole scoreboard golden dist clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] < (3, 15); sys.exit(not ok and "Coterie needs Python 3.11, 3.12, 3.13 or 3.14; set PYTHON=python3.x")'
	@$(PYTHON) -m venv $(VENV)

# CITATION.cff changes with the version, and so must what is installed of Coterie's metadata.
$(VENV)/.run: pyproject.toml constraints.txt CITATION.cff | $(VENV)/bin/python
	@echo "installing coterie into $(VENV)"
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install --no-compile -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing the development tools into $(VENV)"
	@$(PIP) install --no-compile -c constraints.txt --group dev
	@$(BIN)/python -m compileall -qq -j 0 -x '$(RARE)' $(VENV)/lib || true # sooner than pip does it; tests start many processes
	@touch $@

$(VENV)/.docs: $(VENV)/.run
	@echo "installing what builds the documentation into $(VENV)"
	@$(PIP) install --no-compile -c constraints.txt --group docs
	@touch $@

$(VENV)/.dist: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing what builds a release into $(VENV)"
	@$(PIP) install --upgrade 'pip>=25.1'
	@$(PIP) install --no-compile -c constraints.txt --group dist
	@touch $@

demo: $(VENV)/.run ## FedAvg and FedGroup on real images, ending in an HTML page
	@$(BIN)/coterie demo $(ARGS)

test: $(VENV)/.dev ## tests and doctests, and which of them took longest
	@OMP_NUM_THREADS=1 $(PYTEST) -m "not slow and not flower" -n $(WORKERS) --dist worksteal --durations=15 $(LIMIT) $(ARGS)

test-quick: $(VENV)/.dev ## some of each kind, which tests/quick.py names: a minute
	@OMP_NUM_THREADS=1 $(PYTEST) -m "not slow and not flower" -n $(WORKERS) --dist worksteal --quick $(LIMIT) tests $(ARGS)

test-all: $(VENV)/.dev ## also the tests marked slow: all pairs of methods with tasks and workers
	@OMP_NUM_THREADS=1 $(PYTEST) -m "not flower" -n $(WORKERS) --dist worksteal --durations=15 $(ARGS)

lint: $(VENV)/.dev ## ruff, mypy, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint test ## all that CI runs

docs: $(VENV)/.docs ## the documentation, into docs/_build/html, without a warning
	@OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html $(ARGS)
	@echo "page: $(abspath docs/_build/html/index.html)"

test-flower: $(VENV)/.dev ## federations of real processes: kills, newcomers, hostile nodes
	@OMP_NUM_THREADS=1 $(PYTEST) -m flower tests/live $(ARGS)

soak: $(VENV)/.dev ## a federation whose processes are killed every 20 s for an hour: ARGS=FOLDER
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.live.soak $(ARGS)

test-spawn: $(VENV)/.dev ## the contract suite and the pool with workers that are spawned, as on macOS
	@OMP_NUM_THREADS=1 $(PYTEST) -m "not slow and not flower" -n auto --dist worksteal --start-method spawn tests/contract tests/engines/test_pool.py tests/engines/test_pool_scoring.py tests/engines/test_pool_parts.py $(ARGS)

damage: $(VENV)/.dev ## run folders damaged at random 10,000 times and read by every command: about 20 minutes
	@$(BIN)/python -m tests.runs.damage $(ARGS)

resumes: $(VENV)/.dev ## two, three and five `resume` of a run at once, 50 times, some during the live run
	@OMP_NUM_THREADS=1 $(BIN)/python -m tests.runs.resumes $(ARGS)

bench: $(VENV)/.dev ## seconds a round against a bare PyTorch loop, kept with machine and commit
	@$(BIN)/python -m benchmarks.local_sgd --keep $(ARGS)
	@$(BIN)/python -m benchmarks.history

bench-peers: $(VENV)/.dev ## seconds a round, and those of Flower, FedJAX and pfl-research, each in its own environment
	@$(BIN)/python -m benchmarks.peers.run $(ARGS)

bench-gpu: $(VENV)/.dev ## seconds a round on a GPU, and on the pool on all cores of its machine: some ten minutes
	@$(BIN)/python -m benchmarks.gpu $(ARGS)

bench-whole: $(VENV)/.dev ## whole experiments in Coterie and in other frameworks: half an hour
	@$(BIN)/python -m benchmarks.whole.run --recipes flute pfl $(ARGS)

scoreboard: $(VENV)/.dev ## the small scoreboard, whose results and page come with Coterie: up to half an hour
	@$(BIN)/coterie scoreboard small --out runs/scoreboard-small $(ARGS)
	@$(BIN)/python docs/scoreboard_page.py runs/scoreboard-small/scoreboard.json

golden: $(VENV)/.dev ## the golden numbers alone
	@$(PYTEST) tests/golden $(ARGS)

# A release has a day: make dist ARGS=--final
dist: $(VENV)/.dist ## the wheel and the source archive, built and tried in a clean environment
	@$(BIN)/python tools/check_release.py versions $(ARGS)
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@$(BIN)/python -m twine check --strict dist/*
	@$(BIN)/python tools/check_release.py archives dist

clean: ## remove the environment and the caches
	@rm -rf $(VENV) build dist docs/_build .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
