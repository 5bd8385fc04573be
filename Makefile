# make demo [SHOW=ladder] | test | bench | soak | models | docs. Each sets up what it needs in .venv, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test lint types bench soak models docs clean

demo: $(READY)
	$(BIN)/holdfast demo $(SHOW)

test: $(READY) lint types
	$(BIN)/pytest -m "not soak" -n 4 --dist loadfile --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/holdfast bench --json docs/bench/results.json --charts docs/bench
	PYTHONPATH=tests $(BIN)/python -m docs.figures

soak: $(READY)
	$(BIN)/pytest -m soak

models:
	$(PYTHON) models/check.py

docs: $(READY)
	$(BIN)/pytest tests/docs

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[server]" --group dev
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
