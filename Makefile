# Every command sets up what it needs, and reinstalls only when pyproject.toml has changed.
# `make test PYTHON=python3.13` uses another Python, in a virtual environment of its own.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check coverage bench torture docs up services clean lint
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export NO_MKDOCS_2_WARNING := 1
# Tests start many hundreds of processes; without compiled files each would compile redrive anew, whatever a shell says.
unexport PYTHONDONTWRITEBYTECODE

ifdef PYTHON
PYTHONS := $(PYTHON)
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
BENCH_PYTHONS := $(PYTHON)
else
PYTHONS := python3 python3.13 python3.12 python3.11
VENV := .venv
# Benchmarks run redrive and its peers on Python 3.12 if the machine has it.
PYENV_ROOT ?= $(HOME)/.pyenv
BENCH_PYTHONS := python3.12 $(wildcard $(PYENV_ROOT)/versions/3.12*/bin/python) $(PYTHONS)
endif
BENCH_VENV := .venv-bench

BIN := $(VENV)/bin
# Half of the time a test waits: for a server, a process, a timeout. So there are twice as many xdist workers as CPUs.
# Four at most, because each starts PostgreSQL for itself, and a container may have fewer CPUs than its machine.
# `worksteal` rebalances between the workers.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
WORKERS := $(if $(filter 1,$(CORES)),2,4)
SPREAD := -n $(WORKERS) --dist worksteal
# The files with torture in them: pytest need not read all the others to find it.
TORTURE = $(shell grep -rl --include='test_*.py' 'mark\.torture' tests)
TEST_EXTRAS := django,kafka,otel,pipeline,postgres,prometheus,psycopg,sentry,sqlalchemy,webhook,yaml

help: ## list the commands
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'

demo: $(VENV)/.core ## show letters, retries, dead letters and a replay on the embedded store
	@$(BIN)/redrive demo

test: lint ## everything that CI runs: format, lint, types, rooms, all tests, docs
	$(BIN)/pytest -q $(SPREAD) -m "not torture"
ifneq ($(TORTURE),)
	$(BIN)/pytest -q -n 2 --dist worksteal -m "torture and not alone" $(TORTURE)
	$(BIN)/pytest -q -m "torture and alone" $(TORTURE)
endif
	$(BIN)/mkdocs build --quiet --strict

check: lint ## format, lint, types, rooms and the fast tests
	$(BIN)/pytest -q $(SPREAD) -m "not slow and not torture"

coverage: $(VENV)/.dev ## which lines and branches no test runs (the tests take twice as long under it)
	$(BIN)/pytest -q $(SPREAD) -m "not torture" --cov --cov-report=
	$(BIN)/coverage report

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(BENCH_VENV)/.bench ## compare with the peers: NAME=sqlite for one benchmark, QUICK=1 for the short form
	$(BENCH_VENV)/bin/python -m benchmarks $(NAME) $(if $(PART),--part $(PART)) $(if $(filter-out 0,$(QUICK)),--quick)

torture: $(VENV)/.dev ## the long fault runs; ARGS="…" for their options
	$(BIN)/python -m tests.torture $(ARGS)

docs: $(VENV)/.dev ## build the docs into site/
	$(BIN)/mkdocs build --strict

up: ## the server and its pages
	@echo "a later release brings the server and its pages; until then, run: make demo"

services: $(VENV)/.dev ## run the real servers that tests use, until interrupted
	@$(BIN)/python -m tests.servers

clean: ## remove everything that these commands created
	rm -rf .venv .venv-* site dist build .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# ---------------------------------------------------------------- environments

$(VENV)/.pip: .ci/venv
	@.ci/venv $(VENV) $(PYTHONS)
	@touch $@

$(VENV)/.core: pyproject.toml $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[$(TEST_EXTRAS)]' --group dev
	@touch $@ $(VENV)/.core

$(BENCH_VENV)/.pip: .ci/venv
	@.ci/venv $(BENCH_VENV) $(BENCH_PYTHONS)
	@touch $@

$(BENCH_VENV)/.bench: pyproject.toml $(BENCH_VENV)/.pip
	$(BENCH_VENV)/bin/python -m pip install --quiet --editable '.[kafka,pipeline,postgres,webhook]' --group bench
	$(BENCH_VENV)/bin/python -m pip install --quiet --group bench-pyrallel || echo "pyrallel-consumer does not install on this machine; the benchmarks run without it"
	$(BENCH_VENV)/bin/python -m pip install --quiet --group bench-honker || echo "honker does not install on this machine; the benchmarks run without it"
	$(BENCH_VENV)/bin/python -m pip download --quiet --no-deps --only-binary=:all: --python-version 3.14 --dest $(BENCH_VENV)/mahavishnu mahavishnu || echo "mahavishnu's wheel cannot be had on this machine; a queue of the same shape takes its place"
	@touch $@
