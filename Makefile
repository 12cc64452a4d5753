.DEFAULT_GOAL := help
.PHONY: help setup demo test test-on-spark test-in-process test-slow test-slow-on-spark test-slow-in-process test-spark-versions test-spark-settings soak torture check format bench-engine bench-spark bench-streamjoin bench-streamjoin-spark databases flink figures clean

BIN := .venv/bin
READY := .venv/.ready
OLDEST := .venv-spark41
QUICK := $(addprefix tests/spark/test_,enrich.py types.py streaming.py connect.py)
TWICE := --numprocesses 2 --dist worksteal
CODE = $(wildcard src tests benchmarks examples workloads)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## install all that demo, tests and benchmarks need into .venv

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

test: $(READY) ## run the tests but the slow ones, in random order, warnings as errors; those on Spark next to the others
	@$(MAKE) --no-print-directory --jobs 2 test-on-spark test-in-process

# ARGS may select tests of only one of these two; pytest exits with 5 when it finds none.
test-on-spark: $(READY)
	$(BIN)/python -m pytest tests/spark $(ARGS) || [ $$? = 5 ]

test-in-process: $(READY)
	$(BIN)/python -m pytest --ignore tests/spark $(TWICE) $(ARGS) || [ $$? = 5 ]

test-slow: $(READY) ## run the slow tests, which `make test` leaves out
	@$(MAKE) --no-print-directory --jobs 2 test-slow-on-spark test-slow-in-process

test-slow-on-spark: $(READY)
	$(BIN)/python -m pytest -m slow tests/spark tests/torture $(ARGS) || [ $$? = 5 ]

test-slow-in-process: $(READY)
	$(BIN)/python -m pytest -m slow --ignore tests/spark --ignore tests/torture $(TWICE) $(ARGS) || [ $$? = 5 ]

# Spark 4.1 leaves sockets open until they are garbage collected, which is a warning.
test-spark-versions: $(READY) $(OLDEST)/.ready ## a quick run of the Spark tests on the oldest and the newest version
	$(OLDEST)/bin/python -m pytest $(QUICK) $(ARGS) \
	  -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
	$(BIN)/python -m pytest $(QUICK) $(ARGS)

test-spark-settings: $(READY) ## joins and loads under random settings of Spark, about a minute for each of SEEDS=0,1,2,3,4
	ADJOIN_SETTINGS_SEEDS=$(or $(SEEDS),0,1,2,3,4) $(BIN)/python -m pytest -m slow tests/spark/test_settings.py $(ARGS)

$(OLDEST)/.ready: $(READY)
	@set -e; \
	if [ ! -x $(OLDEST)/bin/python ]; then $(BIN)/python -m venv $(OLDEST); fi; \
	grep -v '^pyspark==' constraints.txt > $(OLDEST)/constraints.txt; \
	$(OLDEST)/bin/python -m pip install --quiet --use-pep517 --disable-pip-version-check \
	  -c $(OLDEST)/constraints.txt -e '.[spark,java,dev]' 'pyspark==4.1.*'
	@touch $@

soak: $(READY) ## join a stream for MINUTES=30 while the master changes, and watch memory and files
	ADJOIN_SOAK_MINUTES=$(or $(MINUTES),30) $(BIN)/python -m pytest -m slow -s tests/spark/test_soak.py

torture: $(READY) ## kill, damage, fill, fuzz and race for MINUTES=5, with SEED=1; see docs/reliability.md
	$(BIN)/python -m tests.torture --minutes $(or $(MINUTES),5) --seed $(or $(SEED),1) $(ARGS)

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

bench-streamjoin: $(READY) ## measure DINER against DuckDB, and MINER against a cascade of DINERs
	$(BIN)/python -m benchmarks.streamjoin $(ARGS)

bench-streamjoin-spark: $(READY) ## measure join and join_all on streams against Spark's own joins and Flink's
	$(BIN)/python -m benchmarks.streamjoin_spark $(ARGS)

databases: $(READY) ## get PostgreSQL and MariaDB for `python -m benchmarks.databases`, or say why not
	@$(BIN)/python -m benchmarks.databases.install

flink: $(READY) ## get Flink for `make bench-streamjoin-spark`, or say why not
	@$(BIN)/python -m benchmarks.streamjoin_spark.flink.install

figures: $(READY) ## measure the papers' figures again, on a simulated disk
	$(BIN)/python -m benchmarks.figures $(ARGS)

clean: ## remove environments and everything that was built
	rm -rf .venv $(OLDEST) .databases .flink build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis src/*.egg-info
	find src tests $(wildcard benchmarks examples workloads) -name __pycache__ -type d -prune -exec rm -rf {} +
