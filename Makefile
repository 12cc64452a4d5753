.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench-engine bench-spark clean

BIN := .venv/bin
READY := .venv/.ready
CODE = $(wildcard src tests benchmarks examples)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## put all that demo, tests and benchmarks need into .venv

$(READY): pyproject.toml constraints.txt
	@set -e; \
	for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
	  if $$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "Python 3.11 or newer with venv is needed; name it: make setup PYTHON=/path/to/python" >&2; exit 1; fi; \
	if [ ! -x $(BIN)/python ]; then $$found -m venv .venv; fi; \
	echo "Installing into .venv; the first time takes some minutes, as Spark is built from its source package."; \
	$(BIN)/python -m pip install --quiet --use-pep517 --disable-pip-version-check -c constraints.txt -e '.[spark,java,dev,bench]'
	@touch $@

demo: $(READY) ## sales enriched, keyed and written exactly once, while the products change, on Spark
	$(BIN)/python -m examples.demo $(ARGS)

test: $(READY) ## run all tests, in random order, warnings as errors
	$(BIN)/python -m pytest $(ARGS)

check: $(READY) ## format, lint, types, import rules
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo --no-cache

format: $(READY) ## format the code and repair what the linter can
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

bench-engine: $(READY) ## measure SSIJ against LMDB, DuckDB, SQLite and Polars
	$(BIN)/python -m benchmarks.engine $(ARGS)

bench-spark: $(READY) ## measure enrich against Spark's own join, a cached master, DuckDB and LMDB
	$(BIN)/python -m benchmarks.spark $(ARGS)

clean: ## remove .venv and everything that was built
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis src/*.egg-info
	find src tests $(wildcard benchmarks examples) -name __pycache__ -type d -prune -exec rm -rf {} +
