# All of it needs Python 3.11 or later and make, nothing else: the rest is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install -qq -c constraints.txt

# Tests run on two workers with one thread each. A file's tests stay together, so that its fixtures are made once; files
# run in the order of tests/conftest.py, long ones first.
WORKERS ?= 2
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 MPLBACKEND=Agg
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test test-all test-browser lint format docs wheel clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

install: $(VENV)/.installed ## make .venv and install faircl into it

demo: $(VENV)/.installed ## train the four runs of the demo and compare them (ARGS="--seed 1" is passed on)
	@$(BIN)/faircl demo $(ARGS)

test: $(VENV)/.installed-dev ## run the quick tests (ARGS is passed to pytest)
	@$(PYTEST) -m "not slow and not browser" $(ARGS)

test-all: $(VENV)/.installed-dev ## run all tests but those in a browser, the slow ones too
	@$(PYTEST) -m "not browser" $(ARGS)

test-browser: $(VENV)/.installed-browser ## run the tests of pages in Chromium, which Debian's packages provide
	@$(TEST_ENV) $(BIN)/python -m pytest tests/browser -m browser $(ARGS)

lint: $(VENV)/.installed-dev ## check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.installed-dev ## format the code and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(VENV)/.installed-docs ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "documentation: site/index.html"

wheel: $(VENV)/.made ## build the wheel into dist/
	@rm -rf build dist
	@$(BIN)/python -m pip --disable-pip-version-check wheel -qq --no-deps --wheel-dir dist .
	@rm -rf build
	@ls dist/*.whl

clean: ## remove what make made: .venv, dist/, site/ and caches (runs/ is kept)
	@rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . -name __pycache__ -not -path "./.git/*" -prune -exec rm -rf {} +

# A stamp is written when its installation is complete, never before: an interrupted one is taken up again.

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) was not found; faircl needs Python 3.11 or later: \
	make demo PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "faircl needs Python 3.11 or later, \
	but $(PYTHON) is $$($(PYTHON) --version 2>&1); name another, as in: make demo PYTHON=python3.12" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) could not make $(VENV); on Debian and Ubuntu install the package \
	python3-venv first" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	@rm -f $@
	@echo "installing torch and torchvision (several GB on Linux; about two minutes)"
	@$(PIP) torch torchvision
	@echo "installing faircl and what else it needs"
	@$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@rm -f $@
	@echo "installing what the tests need"
	@$(PIP) -e ".[dev]"
	@touch $@

$(VENV)/.installed-browser: $(VENV)/.installed-dev
	@rm -f $@
	@echo "installing what the tests in a browser need"
	@$(PIP) -e ".[browser]"
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { apt-get update -qq && \
	apt-get install -y -qq chromium >/dev/null; } || { echo "Chromium was not found and could not be installed from \
	Debian's packages; as root: apt-get install chromium" >&2; exit 1; }
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@rm -f $@
	@echo "installing what the documentation needs"
	@$(PIP) -e ".[docs]"
	@touch $@
