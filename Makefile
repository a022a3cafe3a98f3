# Two commands do everything on a fresh clone: `make demo` and `make test`.
# The environment is .venv; it is made once and again only when its inputs change.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
RUN ?=

.PHONY: demo test test-quick test-heavy check format bench clean help

help:
	@echo "make demo    three trainings on real data: honest, under attack, robust under attack"
	@echo "make test    every kind of test, under ten minutes on two cores"
	@echo "make check   lint, format, types, import layers"
	@echo "make bench   the benchmarks (RUN=aggregation for one of them)"
	@echo
	@echo "make test-quick   unit tests, contracts and papers: under two minutes"
	@echo "make test-heavy   what make test leaves out because it is long"

$(READY): pyproject.toml setup.py constraints.txt $(filter-out %/sorters.h,$(wildcard src/garfield/kernels/native/*))
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/garfield demo

PYTEST = $(BIN)/python -m pytest -n 2 --dist worksteal

test: $(READY)
	$(PYTEST) -m "not heavy"

test-quick: $(READY)
	$(PYTEST) -m "not slow and not heavy" tests/unit tests/contracts tests/papers

test-heavy: $(READY)
	$(PYTEST) -m heavy

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m benchmarks $(RUN)

clean:
	rm -rf .venv .venv-byzfl build results .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src -name '*.so' -delete
