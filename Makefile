# Two commands do all: make run, make test. They install what is missing.

PORT ?= 8080
VISITORS ?= 20
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help install run crowd test lint types check clean

help:
	@echo "make install the waitroom command, in .venv"
	@echo "make run     install what is missing, run the demo on http://localhost:$(PORT) (PORT=)"
	@echo "make crowd   bring visitors to the demo (VISITORS=)"
	@echo "make test    install what is missing, run every test"
	@echo "make check   the tests, and ruff and mypy before them"

install: $(STAMP)

run: $(STAMP)
	@scripts/install-packages nginx redis-server
	@$(BIN)/python demo/run.py --port $(PORT)

crowd: $(STAMP)
	@$(BIN)/python demo/crowd.py --url http://localhost:$(PORT) --visitors $(VISITORS)

test: $(STAMP)
	@scripts/install-packages nginx redis-server chromium
	@$(BIN)/pytest $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)
	@$(BIN)/mypy

check: lint types test

$(STAMP): pyproject.toml constraints.txt
	@scripts/make-venv $(PYTHON)
	@touch $@

clean:
	rm -rf .venv .run .mypy_cache .ruff_cache .pytest_cache .hypothesis
