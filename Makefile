# Two commands set everything up on a machine with Python 3.11 or 3.12 and make: `make quickstart`, `make test`.
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PARALLEL := --numprocesses auto --dist loadfile

.PHONY: quickstart test test-system test-all site mutants fuzz soak protections golden lint clean

quickstart: .venv/installed
	$(BIN)/harness run suites/quickstart.yaml

# The fast tests, in as many processes as there are cores, at most four. One file runs in one process.
test: .venv/installed
	$(BIN)/pytest $(PARALLEL) tests -m "not system"

# Ray, killed processes, clusters, servers, a browser, memory, builds of packages: tests/system, and files with the
# marker `system`. The fast tests are not among them.
test-system: .venv/installed
	$(BIN)/pytest $(PARALLEL) tests -m system

test-all: test test-system

# The committed records as web pages: open site/index.html.
site: .venv/installed
	$(BIN)/harness site --records results/showcase/records --out site

# Faults planted in heads/ and in the tests' loop oracles, one by one: none may go unnoticed. See tests/meta/mutants.py.
mutants: .venv/installed
	$(BIN)/python tests/meta/mutants.py

# Suites and records changed at random: each is read or refused with a sentence, nothing else. See tests/meta/fuzz.py.
fuzz: .venv/installed
	$(BIN)/python tests/meta/fuzz.py

# 200 trials, workers and drivers killed at random, until all are finished: what must hold then. See tests/meta/soak.py.
soak: .venv/installed
	PYTHONPATH=tests/support $(BIN)/python tests/meta/soak.py

# Each protection that RELIABILITY names is taken away in turn: its tests must fail. See tests/meta/protections.txt.
protections: .venv/installed
	$(BIN)/python tests/meta/protections.py

# Ids, weights and scores of fixed trials, written to a file before a change and compared with it afterwards, on one
# machine: `make golden FILE=before.json`, then `make golden FILE=before.json GOLDEN=compare`. See tests/meta/golden.py.
GOLDEN ?= write
golden: .venv/installed
	@test -n "$(FILE)" || { echo "Name the file: make golden FILE=before.json [GOLDEN=compare]"; exit 2; }
	$(BIN)/python tests/meta/golden.py $(GOLDEN) $(FILE)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf .venv results/runs results/artifacts results/mlflow.db *.egg-info .pytest_cache .ruff_cache .hypothesis

.venv/installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed and neither was found; name one: make PYTHON=..."; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@
