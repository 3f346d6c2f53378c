# Everything runs in .venv, which `make install` builds from constraints.txt.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Small models gain nothing from more threads, and test workers would fight over the cores.
TEST_ENV := OMP_NUM_THREADS=1 MLFLOW_DISABLE_TELEMETRY=true
# Bytecode is compiled on all cores afterwards.
QUIET := --quiet --disable-pip-version-check --no-compile
# Programs that tests start are compiled once, also where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=
FIGURES := $(CURDIR)/build/figures.jsonl
SITE := $(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs/site docs build/site

.DEFAULT_GOAL := help

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(QUIET) --constraint constraints.txt torch
	$(BIN)/python -m pip install $(QUIET) --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # some packages hold files of Python 2
	touch $@

.PHONY: install release test check slow broken fuzz docs site pictures bench constraints help

install: $(VENV)/installed  ## build .venv with exact versions (torch first, the CPU build)

release: install  ## release specs/adult.yaml into releases/adult and verify the bundle
	$(BIN)/synthdp release specs/adult.yaml --out releases/adult --force
	$(BIN)/synthdp verify releases/adult/bundle

test: install  ## the first ring: two minutes
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist loadfile -m 'not slow and not check'

check: install  ## format, lint, types, import contracts, site, all quick tests: what CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(SITE) & site=$$!; $(BIN)/mypy && $(BIN)/lint-imports && wait $$site
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist loadfile

slow: install  ## the statistical and long suites, then the dashboard of their figures (docs/dashboard.md)
	mkdir -p build && rm -f $(FIGURES)
	$(TEST_ENV) SYNTHDP_DASHBOARD=$(FIGURES) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'slow or figure'; tests=$$?; \
	$(BIN)/python tests/dashboard.py $(FIGURES) docs/dashboard.md && exit $$tests

broken: install  ## break the kernel on purpose, and see the suites fail in the right places
	$(TEST_ENV) $(BIN)/python tests/broken_kernels/run.py

fuzz: install  ## damaged specs, tables, graph files and bundles for FUZZ_SECONDS each (600), with atheris also by coverage (pip install atheris)
	$(TEST_ENV) $(BIN)/python -m tests.malicious.fuzz spec csv bif dot dagitty bundle
	if $(BIN)/python -c 'import atheris' 2>/dev/null; then for target in spec csv; do $(TEST_ENV) $(BIN)/python -m tests.malicious.fuzz $$target --coverage || exit 1; done; fi

docs: install  ## write the pages that are generated from the code (docs/reference)
	$(BIN)/python docs/site/reference.py > docs/reference/spec.md

site: install  ## the documentation as a site in build/site; a broken link fails
	$(SITE)

pictures: install  ## take the screens of the quickstart and the gallery anew (needs Chromium)
	$(BIN)/python docs/site/pictures.py

bench: install  ## Adult and the lattices; every other published table: python -m benchmarks.NAME
	$(BIN)/python -m benchmarks.adult
	$(BIN)/python -m benchmarks.lattice

constraints: install  ## write constraints.txt from what .venv holds
	(head -1 constraints.txt; $(BIN)/pip freeze --exclude-editable | sed 's/+cpu//') > constraints.new && mv constraints.new constraints.txt

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
