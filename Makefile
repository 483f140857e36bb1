# Two commands set everything up on a machine with Python 3.11 or 3.12 and make: `make quickstart`, `make test`.
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin

.PHONY: quickstart test mutants fuzz soak protections lint clean

quickstart: .venv/installed
	$(BIN)/harness run suites/quickstart.yaml

test: .venv/installed
	$(BIN)/pytest

# Faults planted in heads/ and in the tests' loop oracles, one by one: none may go unnoticed. See tests/mutants.py.
mutants: .venv/installed
	$(BIN)/python tests/mutants.py

# Suites and records changed at random: each is read or refused with a sentence, nothing else. See tests/fuzz.py.
fuzz: .venv/installed
	$(BIN)/python tests/fuzz.py

# 200 trials, workers and drivers killed at random, until all are finished: what must hold then. See tests/soak.py.
soak: .venv/installed
	$(BIN)/python tests/soak.py

# Each protection that RELIABILITY names is taken away in turn: its tests must fail. See tests/protections.txt.
protections: .venv/installed
	$(BIN)/python tests/protections.py

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
