# Two commands do everything on a fresh clone: `make demo` and `make test`.
# The environment is .venv; it is made once and again only when its inputs change.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
RUN ?=
IN ?= src/garfield/filters
SAMPLE ?= 0
JOBS ?= 2

# where this is set, each of the tests' many processes compiles our sources anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-split demo-elastic demo-fedgan kubernetes test test-quick test-heavy adversary fuzz soak wheel site check format bench mutants clean help

help:
	@echo "make demo    three trainings on real data: honest, under attack, robust under attack"
	@echo "make test    every kind of test, under ten minutes on two cores"
	@echo "make check   lint, format, types, import layers, the site"
	@echo "make bench   the benchmarks (RUN=aggregation for one of them)"
	@echo
	@echo "make demo-split   fine-tuning next to an object store and the plain way, at a limited bandwidth"
	@echo "make demo-fedgan  a GAN on divided images: sampling and weights on and off, with pictures"
	@echo "make demo-elastic three real jobs on four slots: as they start, and scaled while they train"
	@echo "make wheel        build the wheel for this machine, and try it in an environment of its own"
	@echo "make site         the documentation as pages, into build/site"
	@echo "make test-quick   unit tests, contracts and papers, under two minutes"
	@echo "make test-heavy   what make test leaves out because it is long"
	@echo "make kubernetes   build a control plane for tests, once, outside this directory"
	@echo "make adversary    search for lies and timings that break a promise (SECONDS=600 SEED=7 APP=msmw)"
	@echo "make soak         faults by the hundred, in processes and simulated (N=300 SEED=7)"
	@echo "make fuzz         feed nonsense to every parser of what arrives (SECONDS=300 each, TARGET=wire)"
	@echo "make mutants      do tests notice single changes? IN=src/garfield/nodes SAMPLE=60"

$(READY): pyproject.toml setup.py constraints.txt $(filter-out %/sorters.h,$(wildcard src/garfield/kernels/native/*))
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip uninstall --quiet --yes garfield # the name of garfield-ml, before
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/garfield demo

demo-split: $(READY)
	$(BIN)/garfield split demo

demo-elastic: $(READY)
	$(BIN)/garfield elastic demo

demo-fedgan: $(READY)
	$(BIN)/garfield fedgan demo

PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal

test: $(READY)
	$(PYTEST) -m "not heavy"

# without TensorFlow, which takes longer to import than most files to run
test-quick: $(READY)
	$(PYTEST) -m "not slow and not heavy" -k "not tensorflow" --ignore-glob='*/test_tensorflow_*' tests/unit tests/contracts tests/papers

test-heavy: $(READY) kubernetes
	$(PYTEST) -m heavy

# five minutes of two cores the first time, nothing after that; GARFIELD_KUBERNETES says where
kubernetes:
	$(PYTHON) -m tools.build_kubernetes

SECONDS ?= 600
SEED ?= 0
APP ?=

adversary: $(READY)
	$(BIN)/python -m tests.adversary search --seconds $(SECONDS) --seed $(SEED) --app "$(APP)"

N ?= 40

# goes on where it was; counts are kept in results/soak.jsonl
soak: $(READY)
	$(BIN)/python -m tests.soak --faults $(N) --seed $(SEED) --simulated
	$(BIN)/python -m tests.soak --faults $(N) --seed $(SEED)

# SECONDS for each target; with atheris in the environment, coverage guides the search
TARGET ?=

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz run --seconds $(SECONDS) --seed $(SEED) --target "$(TARGET)"

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# to be read at build/site/index.html
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# what [tool.cibuildwheel] does for other machines
wheel: $(READY)
	$(BIN)/python -m tools.build_wheel dist

bench: $(READY)
	$(BIN)/python -m benchmarks $(RUN)

# IN and not PATH: make would hand that on as the shell's own
mutants: $(READY)
	$(BIN)/python -m tools.mutants $(IN) --sample $(SAMPLE) --seed $(SEED) --jobs $(JOBS)

clean:
	rm -rf .venv .venv-byzfl .venv-flower build results .mypy_cache .pytest_cache .ruff_cache .hypothesis .mutants
	find src -name '*.so' -delete
