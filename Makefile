# Every target sets itself up: Python 3.11+ and make are all a fresh machine needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: test-cluster docs help setup demo up test unit check control-plane bench format lock clean

help:  ## What each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("wainwright needs Python 3.11 or newer; found " + sys.version.split()[0] + ". Set PYTHON=python3.11 (or newer).") if sys.version_info < (3, 11) else None'
	@echo "setting up $(VENV) (about a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet --require-hashes --compile-bytecode -r requirements.lock
	@VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet --no-deps -e .
	@$(BIN)/python -m compileall -q wainwright workers tasks config || true
	@touch $(READY)

setup: $(READY)  ## Create the virtual environment with the locked dependencies

demo: $(READY)  ## Run the main job end to end on embedded parts, then exit
	@$(BIN)/wainwright demo

up: $(READY)  ## Start the embedded stack in the foreground (Ctrl-C stops it)
	@$(BIN)/wainwright up

check: $(READY)  ## Format, lint, types and import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

unit: $(READY)  ## The quick tests only
	@$(BIN)/pytest tests/unit

test: check  ## What CI runs: make check, then all tests but those marked cluster or unsettled
	@$(BIN)/pytest tests -m "not cluster and not unsettled"

test-cluster: control-plane  ## The tests marked `cluster`, on a real Kubernetes control plane
	@$(BIN)/pytest tests -m cluster

control-plane: $(READY)  ## Build the Kubernetes control plane that tests marked `cluster` run on (once; about five minutes)
	@$(BIN)/python -m tests.control_plane.build

bench: $(READY)  ## Measure; figures go to docs/performance.md
	@$(BIN)/python -m bench

format: $(READY)  ## Format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(READY)  ## Write the documents made from code anew
	@$(BIN)/wainwright settings --markdown > docs/settings.md
	@$(BIN)/wainwright keys --markdown > docs/redis.md

lock: $(READY)  ## Resolve pyproject.toml anew into requirements.lock
	@$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --python-version 3.11 --extra dev pyproject.toml -o requirements.lock --quiet

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
