# Two commands do all: make run, make test. They install what is missing.

PORT ?= 8080
VISITORS ?= 20
REPLICAS ?= 10
WORKERS ?= 6
QUICK ?=
BARE ?=
KUBERNETES ?=
PYTHON ?= python3
BIN := .venv/bin
# What .venv holds: the product alone; what the demo, the tests, or everything needs beside it.
INSTALLED := .venv/.installed
DEMO := .venv/.demo
TEST := .venv/.test
ALL := .venv/.all
# What checks the JavaScript.
NPM := node_modules/.package-lock.json
# What is compiled is kept: pytest rewrites every assertion, and tests start hundreds of processes.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest

.PHONY: help install dev run crowd unit test test-all lint types docs docs-serve check wheel \
	constraints bench bench-history bench-opening bench-limits bench-jobs bench-client bench-waits \
	bench-scaling bench-adaptive \
	loadtest faults pictures clean

help:
	@echo "Use"
	@echo "  make run            try it: a site with a waiting room on http://localhost:$(PORT) (PORT=)"
	@echo "  make crowd          bring visitors to it (VISITORS=)"
	@echo "  make install        install the waitroom command, in .venv, and nothing else"
	@echo "Test"
	@echo "  make test           test what Waitroom promises, in eight minutes (WORKERS=, ARGS=)"
	@echo "  make test-all       run every test: other proxies, databases, Firefox, the docs' commands"
	@echo "                      (BARE=1: also both commands on a bare Debian and a bare Ubuntu, as root)"
	@echo "  make unit           run the tests that need no server, in a minute (ARGS=)"
	@echo "  make lint types     run ruff, import-linter and biome, run mypy"
	@echo "  make check          run ruff, import-linter, biome, mypy and make test, as CI does"
	@echo "Measure (no report while other programs are busy, but with FORCE=1; QUICK=1 is a short run)"
	@echo "  make bench          visitors beside plain nginx and a Lua design"
	@echo "  make bench-history  look-ups and the recorder with ten million stays in MariaDB"
	@echo "  make bench-opening  an event that opens with 100,000 in the pre-queue"
	@echo "  make bench-limits   rate limits beside the limits library"
	@echo "  make bench-jobs     jobs beside the arq library"
	@echo "  make bench-client   the Python client beside aiohttp and httpx2"
	@echo "  make bench-waits    contended leases beside redis-py's lock, and an instant job"
	@echo "  make bench-scaling  replicas and nginx apart, without pauses, and a model of N machines"
	@echo "  make bench-adaptive  a room that sizes itself, before a real shop, half an hour"
	@echo "  make loadtest       a room with up to 3,000 Locust users (REPLICAS=)"
	@echo "  make faults         break everything under load, write docs/reliability.md"
	@echo "Docs and upkeep"
	@echo "  make docs           build the documentation in .site; make docs-serve serves it"
	@echo "  make pictures       make the pictures of the README and docs again"
	@echo "  make dev            install everything that tests, measurements and docs need, in .venv"
	@echo "  make wheel          build wheels and source archives of client and server in dist/"
	@echo "  make constraints    resolve constraints.txt again, with uv (ARGS=--upgrade)"
	@echo "  make clean          remove .venv and all caches"

install: $(INSTALLED)

dev: $(ALL)

run: $(DEMO)
	@scripts/install-packages run
	@$(BIN)/python demo/run.py $(if $(filter file,$(origin PORT)),,--port $(PORT))

crowd: $(DEMO)
	@$(BIN)/python demo/crowd.py --url http://localhost:$(PORT) --visitors $(VISITORS)

# One worker for each core.
unit: $(TEST)
	@$(PYTEST) -n auto --maxprocesses 4 -m "not server and not slow and (memory or not full)" $(ARGS)

# More workers than cores: half of the time a test waits.
test: $(TEST)
	@scripts/install-packages test
	@scripts/install-browser
	@$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not full" $(ARGS)

test-all: $(ALL) $(NPM)
	@scripts/install-packages all
	@scripts/install-browser
	@BARE=$(BARE) KUBERNETES=$(KUBERNETES) $(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(ALL) $(NPM)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@node_modules/.bin/biome ci --error-on-warnings

types: $(ALL)
	@$(BIN)/mypy

# The theme's makers announce their next program at each build; we read that once.
docs: $(ALL)
	@$(BIN)/python -m scripts.docs_pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "the site is in .site; open .site/index.html"

docs-serve: $(ALL)
	@$(BIN)/python -m scripts.docs_pages
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

check: lint types test

wheel: $(ALL)
	@rm -rf dist
	@$(BIN)/python -m build --quiet --outdir dist client
	@WAITROOM_CLIENT=$$(sed -n 's/^version = "\(.*\)"/==\1/p' pyproject.toml) $(BIN)/python -m build --quiet
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl

constraints:
	@scripts/make-constraints $(ARGS)

bench: $(ALL)
	@scripts/install-packages bench
	@$(BIN)/python -m loadtest bench $(if $(QUICK),--quick)

bench-history: $(ALL)
	@scripts/install-packages bench
	@$(BIN)/python -m loadtest history $(if $(QUICK),--quick)

bench-opening: $(ALL)
	@scripts/install-packages run
	@$(BIN)/python -m loadtest opening $(if $(QUICK),--quick)

bench-limits: $(ALL)
	@scripts/install-packages run
	@$(BIN)/python -m loadtest limits $(if $(QUICK),--quick)

bench-jobs: $(ALL)
	@scripts/install-packages bench
	@$(BIN)/python -m loadtest jobs $(if $(QUICK),--quick)

bench-client: $(ALL)
	@scripts/install-packages run
	@$(BIN)/python -m loadtest client $(if $(QUICK),--quick)

bench-waits: $(ALL)
	@scripts/install-packages run
	@$(BIN)/python -m loadtest waits $(if $(QUICK),--quick)

bench-scaling: $(ALL)
	@scripts/install-packages run
	@$(BIN)/python -m loadtest scaling $(if $(QUICK),--quick)

bench-adaptive: $(ALL)
	@scripts/install-packages bench
	@$(BIN)/python -m loadtest adaptive $(if $(QUICK),--quick)

loadtest: $(ALL)
	@scripts/install-packages run
	@$(BIN)/python -m loadtest cluster --replicas $(REPLICAS) $(if $(QUICK),--quick)

faults: $(ALL)
	@scripts/install-packages run
	@$(BIN)/python -m tests.faults $(if $(QUICK),--quick)

pictures: $(ALL)
	@scripts/install-packages run
	@scripts/install-browser
	@$(BIN)/python -m tests.pictures

$(INSTALLED): pyproject.toml client/pyproject.toml constraints.txt
	@scripts/make-venv $(PYTHON) ""
	@touch $@

$(DEMO): pyproject.toml client/pyproject.toml constraints.txt
	@scripts/make-venv $(PYTHON) "[demo]"
	@touch $@ $(INSTALLED)

$(TEST): pyproject.toml client/pyproject.toml constraints.txt
	@scripts/make-venv $(PYTHON) "[demo,memory,postgresql]" test
	@touch $@ $(DEMO) $(INSTALLED)

$(ALL): pyproject.toml client/pyproject.toml constraints.txt
	@scripts/make-venv $(PYTHON) "[demo,memory,mysql,postgresql]" test check release sites proxies docs loadtest
	@touch $@ $(TEST) $(DEMO) $(INSTALLED)

$(NPM): package.json package-lock.json
	@scripts/install-packages lint
	@npm ci --silent --no-audit --no-fund
	@touch $@

clean:
	rm -rf .venv node_modules .run .mypy_cache .ruff_cache .pytest_cache .hypothesis
