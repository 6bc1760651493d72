# Everything runs in .venv, which is created from the project's own files with pinned versions.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test coverage lint golden fuzz trials bench bench-quick docs pictures floors pythons package torch gpu spark browser boosters places clean

demo: .venv/.core
	$(BIN)/offpolicy demo --out build/demo

# Two workers on two cores. All tests of a file run in one worker, so that its fixtures are built once. With a multi-threaded
# BLAS the workers would wait for each other.
test: export OPENBLAS_NUM_THREADS = 1
test: export OMP_NUM_THREADS = 1
test: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile

# The same, listing the lines that no test reaches; tracing nearly doubles the time.
coverage: export OPENBLAS_NUM_THREADS = 1
coverage: export OMP_NUM_THREADS = 1
coverage: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term

torch: .venv/.torch

# PyTorch and Triton, for op.GPU; on a machine without a GPU, tests run its kernel in Triton's interpreter.
gpu: .venv/.gpu

spark: .venv/.spark

# Playwright, for tests of the HTML report; they also need the system's Chromium.
browser: .venv/.browser

# Readers of lakes and of the web, an S3 server, and Vowpal Wabbit, for tests of where logs are.
places: .venv/.places

# LightGBM, XGBoost and CatBoost, for tests of policies that are classifiers.
boosters: .venv/.boosters

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=src $(BIN)/mypy --follow-imports=silent trials
	$(BIN)/lint-imports

# Checks that every output is unchanged, to the last byte, after a refactoring. Needs Spark.
golden: export OPENBLAS_NUM_THREADS = 1
golden: .venv/.dev .venv/.spark
	$(BIN)/python -m tests.golden check

# Malformed input: the right answer, or a clear refusal. The result is in docs/hostile.md.
fuzz: export OPENBLAS_NUM_THREADS = 1
fuzz: export OMP_NUM_THREADS = 1
fuzz: .venv/.dev
	$(BIN)/python -m fuzz --cases 20000 --seed 0 --processes 2 --page docs/hostile.md

BENCHMARKS := foundation embeddings "auto cost" dense "growth rounds" "growth context" "growth actions" two_tower neighbours spark report

bench: .venv/.torch .venv/.spark
	for each in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$each || exit 1; done

# Small sizes, to check that everything runs. Leaves the tables of the README unchanged.
bench-quick: .venv/.torch .venv/.spark
	for each in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$each --quick || exit 1; done

# Commands that are killed 200 times, and many evaluations at once; the results are in docs/faults.md.
trials: .venv/.core
	$(BIN)/python -m trials.kills --times 200 --publish
	$(BIN)/python -m trials.load --publish

docs: .venv/.docs
	$(BIN)/sphinx-build -W -b html docs build/docs

# A part of the tests that uses every dependency and takes a minute or two.
QUICK := tests/core tests/data tests/policies tests/estimators/test_by_hand.py tests/models/test_scikit.py \
	tests/results/test_value.py tests/report/test_html.py tests/report/test_plots.py tests/cli/test_commands.py
TOOLS := duckdb pandas polars pytest pytest-xdist hypothesis

# The oldest supported dependencies, in a separate environment. Old packages meet new ones in it, so deprecation warnings are
# not errors.
floors: export OPENBLAS_NUM_THREADS = 1
floors: export OMP_NUM_THREADS = 1
floors:
	rm -rf build/floors
	$(PYTHON) -m venv build/floors
	build/floors/bin/python -m pip install --quiet --disable-pip-version-check --constraint floors.txt . $(TOOLS)
	build/floors/bin/python -m pytest -n 2 --dist loadfile -W ignore::DeprecationWarning $(QUICK)

# Other versions of Python, if they are installed, with the newest dependencies.
pythons: export OPENBLAS_NUM_THREADS = 1
pythons: export OMP_NUM_THREADS = 1
pythons:
	for each in python3.12 python3.13; do \
	  $$each -c "" 2>/dev/null || { echo "$$each is not installed: not tested"; continue; }; \
	  rm -rf build/$$each && $$each -m venv build/$$each && \
	  build/$$each/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt . $(TOOLS) && \
	  build/$$each/bin/python -m pytest -n 2 --dist loadfile $(QUICK) || exit 1; \
	done

# Builds and checks the distributions, and tries the wheel in a clean environment.
package: export PIP_CONSTRAINT = $(CURDIR)/constraints.txt
package: .venv/.package
	rm -rf build/dist build/clean
	$(BIN)/python -m build --outdir build/dist
	$(BIN)/twine check --strict build/dist/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check build/dist/*.whl
	cd build/clean && bin/offpolicy demo --rounds 2000 --out demo

# Draws the pictures of the documentation; the one of the report needs Chromium.
pictures: .venv/.browser
	$(BIN)/python -m docs.pictures.architecture
	$(BIN)/python -m docs.pictures.embeddings
	$(BIN)/python -m docs.pictures.propensities
	$(BIN)/python -m docs.pictures.report
	$(BIN)/python -m docs.pictures.continuous
	$(BIN)/python -m docs.pictures.coverage
	$(BIN)/python -m docs.pictures.deciding

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

.venv/.gpu: .venv/.core
	$(PIP) --editable ".[gpu]"
	touch $@

.venv/.spark: .venv/.core
	$(PIP) --editable ".[spark]"
	touch $@

.venv/.browser: .venv/.core
	$(PIP) --editable ".[browser]"
	touch $@

.venv/.boosters: .venv/.core
	$(PIP) --editable ".[boosters]"
	touch $@

.venv/.places: .venv/.core
	$(PIP) --editable ".[remote,lake,places]"
	touch $@

.venv/.docs: .venv/.core
	$(PIP) --editable ".[docs]"
	touch $@

.venv/.package: .venv/.core
	$(PIP) --editable ".[package]"
	touch $@

clean:
	rm -rf .venv build dist
