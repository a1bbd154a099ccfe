# Everything a newcomer types. `make` alone lists the targets.
# `make test` uses four processes, which wait for servers half of the time; `make test PYTEST_ARGS=` uses one, and names its tests in order.

SHELL := bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
PY := $(BIN)/python
PYTEST_ARGS ?= -n 4 --dist loadfile --no-loadscope-reorder
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## create .venv from the lock and check for Java; fast when nothing changed
	@tools/setup.sh

.PHONY: setup-postgres
setup-postgres: ## make sure PostgreSQL's server binaries are there for the tests
	@tools/postgres.sh

.PHONY: setup-mariadb
setup-mariadb: ## make sure MariaDB's server binaries are there for the tests
	@tools/mariadb.sh

.PHONY: setup-kafka
setup-kafka: setup ## fetch a Kafka broker and Spark's Kafka connector, for the tests, `make kafka` and `make demo-kafka`
	@tools/kafka.sh
	@tools/kafka.sh connector

.PHONY: setup-model
setup-model: setup ## fetch TLC, which checks the protocol's specification
	@tools/model.sh

.PHONY: setup-archive
setup-archive: setup setup-kafka ## archive the classes of Spark and Kafka, so that the JVMs of the tests start fast
	@$(PY) -m tools.archive

.PHONY: setup-all setup-servers
setup-all: setup-servers setup-model setup-archive
setup-servers:
	@# One after the other: apt-get lets nobody in beside itself.
	@tools/postgres.sh
	@tools/mariadb.sh

.PHONY: demo
demo: setup ## run the refunds demo: crash it, restart it, prove the result
	@$(PY) examples/refunds/demo.py $(ARGS)

.PHONY: demo-kafka
demo-kafka: setup-kafka ## run the refunds demo from Kafka to Kafka, with a broker of its own
	@$(PY) examples/refunds-kafka/demo.py $(ARGS)

.PHONY: kafka
kafka: setup-kafka ## run a Kafka broker to try things on, until Ctrl-C; ARGS="--port 0" takes a free port
	@$(PY) tools/kafka/broker.py $(ARGS)

.PHONY: test
test: setup ## run the checks and every test
	@$(MAKE) --no-print-directory -j 4 setup-all check
	$(PY) -m pytest $(PYTEST_ARGS)

.PHONY: check
check: setup ## format, lint, types and layers, without running a test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: setup ## rewrite the code as the checks want it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: certify
certify: setup setup-all ## run every case of every test, also those of which `make test` takes a sample
	PAKKA_CERTIFY=1 $(PY) -m pytest $(PYTEST_ARGS)

.PHONY: certify-sql
certify-sql: setup setup-postgres setup-mariadb ## kill drivers, workers and database servers under the SQL sinks, 1,000 times at random
	PAKKA_CERTIFY=1 $(PY) -m pytest tests/faults/sql -n 2 --dist worksteal $(ARGS)

.PHONY: certify-kafka
certify-kafka: setup setup-kafka setup-postgres ## kill drivers, workers and brokers under the Kafka sink, 1,000 times at random, and JVMs in the loop on Spark
	PAKKA_CERTIFY=1 $(PY) -m pytest tests/faults/kafka tests/faults/spark/test_loop.py tests/faults/spark/test_loop_source.py -n 2 --dist worksteal $(ARGS)

.PHONY: model
model: setup-model ## check the protocol in docs/protocol, and that its broken forms are found out; ARGS names some of them
	@$(PY) docs/protocol/check.py $(ARGS)

.PHONY: compliance
compliance: setup setup-postgres setup-mariadb setup-kafka ## audit every sink and write docs/reference/sinks.md
	$(PY) -m tests.audit.compliance

.PHONY: simulate
simulate: setup ## run the protocol in a simulated world: SEEDS=n seeds from FIRST=n on, or one with SEED=n
	@$(PY) -m pakka.testing.simulation $(if $(SEED),--seed $(SEED),--first $(or $(FIRST),0) --seeds $(or $(SEEDS),5000))

.PHONY: bench
bench: setup ## ask every speed question at a small size and write docs/performance.md; ARGS names one question
	@$(PY) -m bench $(or $(ARGS),all --write)

.PHONY: lock
lock: ## resolve the dependencies again into requirements.lock (ARGS="--upgrade" for new versions)
	@tools/lock.sh $(ARGS)

.PHONY: clean
clean: ## remove .venv, caches and what runs leave behind
	rm -rf .venv build dist out .demo .demo-kafka .scratch spark-warehouse metastore_db derby.log artifacts
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
