# Every target sets up what it needs by itself; the second time it is quick and needs no network.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
ARGS ?=
N ?= 20
# What needs no engine runs on all cores; an engine wants them for itself.
TESTS := $(BIN)/pytest --durations=15 --numprocesses auto --dist worksteal
ENGINE_TESTS := $(BIN)/pytest --durations=15

.PHONY: run test test-engine check fix soak shots bench upgrade

## the window with the demo started, or (without a display) the demo in the terminal; make run ARGS="--for 20"
run: $(READY)
	@$(BIN)/specdeck demo --yes-cpu $(ARGS)

## quick tests and the few that need a real engine
test: $(READY)
	@$(BIN)/specdeck engines install --cpu --yes
	$(TESTS) -m "not engine and not full"
	$(ENGINE_TESTS) -m "engine and not full"

## every test, those with many engine starts too
test-engine: $(READY)
	@$(BIN)/specdeck engines install --cpu --yes
	$(TESTS) -m "not engine"
	$(ENGINE_TESTS) -m engine

## style, types and the layers of the house
check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

## repair what a tool can repair
fix: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

## N starts and stops of a real engine, a third with a SIGKILL; nothing may be left
soak: $(READY)
	@$(BIN)/specdeck engines install --cpu --yes
	$(BIN)/pytest -s -q -p no:randomly --soak-starts $(N) tests/e2e/test_soak.py

## pictures of every page and state, of a real run and of invented GPUs, into assets/screenshots
shots: $(READY)
	@$(BIN)/specdeck engines install --cpu --yes
	$(BIN)/python -m tests.tools.shots assets/screenshots

## what the window costs: each budget with its figure; fails nothing
bench: $(READY)
	@$(BIN)/specdeck engines install --cpu --yes
	@$(BIN)/python -m tests.tools.bench $(ARGS)

## newest allowed versions into constraints.txt, kept only when all tests pass with them
upgrade:
	rm -rf .venv && $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(READY)
	$(MAKE) check test || { rm -f $(READY); exit 1; }
	$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Specdeck needs Python 3.11 or newer; name one with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "This Python cannot make environments; on Debian and Ubuntu: sudo apt-get install python3-venv"; exit 1; }
	@echo "Setting up .venv ..."
	@rm -f $(READY)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $(READY)
