# Two commands set everything up on a machine with make and Python 3.11, 3.12 or 3.13: `make quickstart`, `make test`.
# The interpreter: that of .venv, else the first of the usual names that starts and has ensurepip. A shim that does not
# start is passed over. 3.14 is the last choice, since nothing was run on it yet. Another one: make quickstart PYTHON=...
NAMES := python3 python3.13 python3.12 python3.11 python3.14
PYTHON ?= $(shell fits() { "$$1" -c "import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $$2))" \
	2>/dev/null && echo "$$1"; }; fits .venv/bin/python 14 || \
	for newest in 13 14; do for p in $(NAMES); do fits $$p $$newest && exit; done; done)
BIN := .venv/bin
PARALLEL := --numprocesses auto --dist loadfile
# Modules are compiled once, not by each process anew: without this, collecting the tests takes half as long again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: quickstart test newest test-system test-all without wheel release site docs mutants fuzz golden showcase lint words clean

quickstart: .venv/installed
	$(BIN)/harness run suites/quickstart.yaml --executor inline

# The fast tests, in as many processes as there are cores, at most four. One file runs in one process.
test: .venv/installed
	$(BIN)/pytest $(PARALLEL) tests -m "not system"

# The fast tests with the newest releases that pip finds, without constraints.txt, in an environment of its own: so the
# next release of a dependency fails here first. What differs from the tested set is listed before the tests.
newest:
	$(call environment,.venv-newest)
	$(call install,.venv-newest,--upgrade --upgrade-strategy eager)
	@echo "Not in constraints.txt:"; \
	.venv-newest/bin/python -m pip freeze --exclude-editable | grep -vixFf constraints.txt || echo "nothing"
	.venv-newest/bin/pytest $(PARALLEL) tests -m "not system"

# What takes longer: whole trials and commands, Ray, killed processes, clusters, servers, a browser, memory, builds of
# packages. All of tests/system, and what has the marker `system`. The fast tests are not among them. In twice as many
# processes.
test-system: .venv/installed
	$(BIN)/pytest $(PARALLEL) tests -m system

test-all: test test-system

# The fast tests in copies of the repository, from each of which an extension was deleted, and at last all of them.
# WITHOUT="gpu awd,board": from the first copy gpu, from the second awd and board. See tests/meta/without.py.
WITHOUT ?= $(shell $(BIN)/python -c "from harness.extensions import EXTENSIONS as e; print(*e, ','.join(e))")
without: .venv/installed
	for names in $(WITHOUT); do $(BIN)/python tests/meta/without.py $$names $(PARALLEL) -q tests -m "not system" || exit; done

# The package as one file, dist/*.whl, for `pip install` anywhere. Built from a copy: a build leaves files beside its sources.
wheel: .venv/installed
	rm -rf build/source && mkdir -p build/source && tar cf - --exclude=__pycache__ harness heads backbones suites \
		docs results/published pyproject.toml README.md LICENSE | tar xf - -C build/source
	$(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist build/source

# A new version, after all checks: `make release VERSION=0.2.0`. See tests/meta/release.py.
release: .venv/installed
	$(BIN)/python tests/meta/release.py $(VERSION) --check
	$(MAKE) lint test-all
	$(BIN)/python tests/meta/release.py $(VERSION)
	$(MAKE) wheel
	@echo "Look at git show, then: git tag v$(VERSION)"

# The committed records as web pages: open site/index.html.
site: .venv/installed
	$(BIN)/harness site --records results/showcase/records --out site

# The documents as web pages with a search, a page for each head and a gallery: open build/docs/index.html. It needs no network.
docs: .venv/installed
	mkdir -p build/documents
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site build/documents build/docs

# Faults planted in heads/ and in the tests' loop oracles, one by one: none may go unnoticed. See tests/meta/mutants.py.
mutants: .venv/installed
	$(BIN)/python tests/meta/mutants.py

# 5,000 suites and 5,000 records changed at random, others each time: each is read or refused with a sentence.
fuzz: .venv/installed
	HARNESS_TEST_MUTANTS=5000 $(BIN)/pytest tests/security/test_fuzz.py

# After an edit of a component: its hash is listed where its numbers are those of before (tests/meta/known.py). With a
# FILE, ids, weights and scores of fixed trials are written to it before a change, and compared with it afterwards, on one
# machine: `make golden FILE=before.json`, then `make golden FILE=before.json GOLDEN=compare` (tests/meta/golden.py).
GOLDEN ?= write
golden: .venv/installed
	$(BIN)/python tests/meta/known.py
	$(if $(FILE),$(BIN)/python tests/meta/golden.py $(GOLDEN) $(FILE))

# The committed tables, pages and plots, from the committed records. NEW=ptb_awd adds those of a suite.
showcase: .venv/installed
	PYTHONPATH=tests/support $(BIN)/python tests/meta/showcase.py $(NEW)

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check
	$(MAKE) words

# Misspelt words, and those that this project does not use.
words: .venv/installed
	$(BIN)/codespell -D - -D tests/meta/words.txt harness heads backbones benchmarks suites docs *.md

# Environments and caches. Results stay.
clean:
	rm -rf .venv .venv-newest *.egg-info .pytest_cache .ruff_cache .hypothesis

# $(call environment,FOLDER): a virtual environment of $(PYTHON); one of another Python is emptied first.
define environment
	@python="$(PYTHON)"; clear=; \
	test -n "$$python" || { echo "Python 3.11, 3.12 or 3.13 with venv is needed (on Debian: python3-venv). Tried:" \
		"$(NAMES). Name one: make PYTHON=..." >&2; exit 2; }; \
	version() { "$$1" -c 'import sys; print(sys.version_info[:2])' 2>/dev/null; }; \
	test "$$(version "$$python")" = "$$(version $(1)/bin/python)" || clear=--clear; \
	"$$python" -m venv $$clear $(1)
endef

# $(call install,FOLDER,OPTIONS): the harness and what it needs, with pip's own account of what it does.
define install
	@echo "Installing into $(1): some 130 packages, up to 6 GB with CUDA. The first time this takes minutes."
	$(1)/bin/python -m pip install --disable-pip-version-check $(2) --editable ".[dev]"
endef

.venv/installed: pyproject.toml constraints.txt
	$(call environment,.venv)
	$(call install,.venv,--constraint constraints.txt)
	@touch $@
