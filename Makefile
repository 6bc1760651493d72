# Everything runs from .venv, which is set up from the project's own files with pinned versions.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench docs torch spark clean

demo: .venv/.core
	$(BIN)/offpolicy demo --out build/demo

test: .venv/.dev
	$(BIN)/python -m pytest --cov --cov-report=term

torch: .venv/.torch

spark: .venv/.spark

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.torch
	$(BIN)/python -m benchmarks.foundation
	$(BIN)/python -m benchmarks.embeddings

docs: .venv/.docs
	$(BIN)/sphinx-build -W -b html docs build/docs

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) --editable .
	touch $@

.venv/.dev: .venv/.core
	$(PIP) --editable ".[dev]"
	touch $@

.venv/.torch: .venv/.core
	$(PIP) --editable ".[torch]"
	touch $@

.venv/.spark: .venv/.core
	$(PIP) --editable ".[spark]"
	touch $@

.venv/.docs: .venv/.core
	$(PIP) --editable ".[docs]"
	touch $@

clean:
	rm -rf .venv build dist
