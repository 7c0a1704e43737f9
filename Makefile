# Two commands do all: make run, make test. They install what is missing.

PORT ?= 8080
VISITORS ?= 20
REPLICAS ?= 10
WORKERS ?= 3
QUICK ?=
PYTHON ?= python3
BIN := .venv/bin
# The product alone; with what the demo needs; with all that tests, measurements and docs need.
INSTALLED := .venv/.installed
DEMO := .venv/.demo
DEV := .venv/.dev

.PHONY: help install dev run crowd unit test lint types measures docs docs-serve check bench bench-history bench-opening bench-limits bench-jobs loadtest faults clean

help:
	@echo "make install the waitroom command, in .venv, and nothing else"
	@echo "make dev     all that tests and measurements need, in .venv"
	@echo "make run     install what is missing, run the demo on http://localhost:$(PORT) (PORT=)"
	@echo "make crowd   bring visitors to the demo (VISITORS=)"
	@echo "make unit    every test that needs no server: nothing is installed but .venv (ARGS=)"
	@echo "make test    install what is missing, run every test (WORKERS=, ARGS=)"
	@echo "make bench   measure against plain nginx and a Lua design, and jobs (QUICK=1)"
	@echo "make bench-history  ten million stays in MariaDB: look-ups, the recorder (QUICK=1)"
	@echo "make bench-opening  an event opens with 100,000 in the pre-queue (QUICK=1)"
	@echo "make bench-limits  decisions about rate limits, beside the limits library (QUICK=1)"
	@echo "make bench-jobs  jobs submitted and executed, beside the arq library (QUICK=1)"
	@echo "make loadtest  load a room with up to 3,000 users (REPLICAS=, QUICK=1)"
	@echo "make faults  break everything under load, write docs/reliability.md (QUICK=1)"
	@echo "             (bench, loadtest: no report while other programs are busy, but with FORCE=1)"
	@echo "make measures  count what should become less: lines, what stands twice (ARGS=--list)"
	@echo "make docs    the documentation as a site, in .site; make docs-serve : on a port"
	@echo "make check   the tests, and ruff and mypy before them"

install: $(INSTALLED)

dev: $(DEV)

run: $(DEMO)
	@scripts/install-packages nginx redis-server
	@$(BIN)/python demo/run.py --port $(PORT)

crowd: $(DEMO)
	@$(BIN)/python demo/crowd.py --url http://localhost:$(PORT) --visitors $(VISITORS)

# What is compiled is kept: pytest rewrites every assertion, and tests start hundreds of processes.
# One worker for each core.
unit: $(DEV)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n auto --maxprocesses 4 -m "not server and not slow" $(ARGS)

test: $(DEV)
	@scripts/install-packages nginx redis-server chromium firefox-esr wrk libnginx-mod-http-lua lua-nginx-redis systemd prometheus prometheus-alertmanager caddy haproxy jq mariadb-server postgresql golang-go golang-github-masterminds-sprig-dev
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(if $(CI),--reruns 1 -rR) $(ARGS)

lint: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(DEV)
	@$(BIN)/mypy

# The theme's makers announce their next program at each build; we read that once.
docs: $(DEV)
	@$(BIN)/python -m scripts.docs_pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the site is in .site; open .site/index.html"

docs-serve: $(DEV)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

measures: $(DEV)
	@$(BIN)/python scripts/measures $(ARGS)

check: lint types test

bench: $(DEV)
	@scripts/install-packages nginx redis-server wrk libnginx-mod-http-lua lua-nginx-redis postgresql
	@$(BIN)/python -m loadtest.bench $(if $(QUICK),--quick)

bench-history: $(DEV)
	@scripts/install-packages redis-server mariadb-server postgresql
	@$(BIN)/python -m loadtest.history $(if $(QUICK),--quick)

bench-opening: $(DEV)
	@scripts/install-packages redis-server
	@$(BIN)/python -m loadtest.opening $(if $(QUICK),--quick)

bench-limits: $(DEV)
	@scripts/install-packages redis-server
	@$(BIN)/python -m loadtest.limits $(if $(QUICK),--quick)

bench-jobs: $(DEV)
	@scripts/install-packages nginx redis-server postgresql
	@$(BIN)/python -m loadtest.jobs $(if $(QUICK),--quick)

loadtest: $(DEV)
	@scripts/install-packages nginx redis-server
	@$(BIN)/python -m loadtest.cluster --replicas $(REPLICAS) $(if $(QUICK),--quick)

faults: $(DEV)
	@scripts/install-packages nginx redis-server
	@$(BIN)/python -m tests.faults $(if $(QUICK),--quick)

$(INSTALLED): pyproject.toml constraints.txt
	@scripts/make-venv $(PYTHON) ""
	@touch $@

$(DEMO): pyproject.toml constraints.txt
	@scripts/make-venv $(PYTHON) "[demo]"
	@touch $@ $(INSTALLED)

$(DEV): pyproject.toml constraints.txt
	@scripts/make-venv $(PYTHON) "[dev,docs,loadtest]"
	@touch $@ $(DEMO) $(INSTALLED)

clean:
	rm -rf .venv .run .mypy_cache .ruff_cache .pytest_cache .hypothesis
