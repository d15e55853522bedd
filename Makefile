# The doors of the project: run, test, check, bench. Needs Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help run test browser pictures soak check format bench bench-check clients lock audit clean

help:  ## what there is to make
	@sed -n "s/^\([a-z-]*\):.*## /\1\t/p" $(MAKEFILE_LIST) | expand -t 14

run: $(VENV)/run.stamp  ## serve on 127.0.0.1:20128 from this folder
	$(BIN)/krouter serve --home .

test: $(VENV)/dev.stamp  ## the whole suite; no network beyond loopback
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)
JOBS ?= 3

browser:  ## install the Chromium that the pages are tested in; Debian, as root
	apt-get update && apt-get install -y --no-install-recommends chromium

pictures: $(VENV)/dev.stamp  ## draw and photograph the pages for the documentation
	$(BIN)/python -m tests.pages.pictures

soak: $(VENV)/dev.stamp  ## ten minutes of failing providers, crowds and kills; MINUTES=3 for fewer
	$(BIN)/python -m tests.soak $(MINUTES)

check: $(VENV)/dev.stamp  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/dev.stamp  ## cost beside a forwarder and LiteLLM's proxy, to docs/performance.md; QUICK=1 only prints
ifdef QUICK
	$(BIN)/python -m benchmarks --quick
else
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.litellm_lane
	$(BIN)/python -m benchmarks.planning
	$(BIN)/python -m benchmarks.ledger
	$(BIN)/python -m benchmarks.fusion
endif

bench-check: $(VENV)/dev.stamp  ## fail where a quick run is 25 % worse than what is committed
	$(BIN)/python -m benchmarks --check

clients: $(VENV)/dev.stamp  ## run real coding clients and SDKs against krouter, without a network; CLIENT=codex for one
	$(BIN)/python -m tests.clients $(CLIENT)

audit: $(VENV)/dev.stamp  ## look what krouter installs up among known vulnerabilities; needs a network
	@told=$$($(BIN)/pip-audit --strict --progress-spinner off --require-hashes --disable-pip \
		-r requirements.lock 2>&1) && { echo "$$told"; exit 0; }; \
	echo "$$told" | tail -n 40 >&2; \
	case "$$told" in (*"Found "*" known vulnerabilit"*) ;; \
		(*) echo "NOT AUDITED: the advisories could not be had, so nothing is known." >&2 ;; esac; \
	exit 1

lock: $(VENV)/dev.stamp  ## resolve the dependencies again, with hashes
	$(BIN)/uv pip compile pyproject.toml --group build $(LOCK) -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --group dev -c requirements.lock $(LOCK) -o requirements-dev.lock
	for set in sdks aider; do \
		$(BIN)/uv pip compile tests/clients/install/$$set.in $(LOCK) -o tests/clients/install/$$set.txt || exit; \
	done
	cd tests/clients/install && npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved
LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "krouter needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing what krouter needs, once; this takes a minute or more"
	$(PIP) install --require-hashes -r requirements.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock pyproject.toml | $(BIN)/python
	@echo "installing what krouter and its tests need, once; this takes some minutes"
	$(PIP) install --require-hashes -r requirements-dev.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/run.stamp

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
