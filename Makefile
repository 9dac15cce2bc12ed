# Every target sets up what it needs by itself; the logic is in tools/.

PYTHON ?= python3
BENCH ?= all
RUN := .venv/bin/python -m
# Before anything is set up: the demo says how long that took as well.
BEGAN := $(shell date +%s.%N)

# Without compiled modules every command and every test worker starts slowly.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help environment packages setup demo check test test-deep test-qemu bench format lock docs generate clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

environment:
	@$(PYTHON) tools/setup.py environment

packages:
	@$(PYTHON) tools/setup.py packages

setup: environment packages ## virtual environment, Debian packages and the real servers that tests use
	@$(RUN) tools.servers build
	@$(RUN) tools.hostlab build

demo: environment ## a guided tour on this machine, on virtual hosts if you are root; KEEP=1 leaves them up
	@$(RUN) tools.demo --began $(BEGAN) $(if $(KEEP),--keep)

check: environment ## format, lint, types, imports and the fast tests; half a minute once types are cached
	@$(RUN) tools.verify check

test: environment packages ## everything: `check`, tests against real servers, quick benchmarks
	@$(RUN) tools.verify test

test-deep: environment packages ## `test` and the long forms of the tests
	@$(RUN) tools.verify test --deep

test-qemu: environment packages ## drivers against Debian's own kernel in an emulated machine; part of `test-deep`
	@$(RUN) pytest -q -m "deep or not deep" tests/hostlab/qemu

bench: environment packages ## benchmarks; BENCH=name for one of them, QUICK=1 for the short form
	@$(RUN) tools.servers build
	@$(RUN) bench --bench $(BENCH) $(if $(QUICK),--quick)

format: environment ## formats the code and repairs what the linter can repair
	@$(RUN) ruff format
	@$(RUN) ruff check --fix

lock: ## resolves requirements.lock again, to the newest versions
	@$(PYTHON) tools/setup.py lock

docs: generate
generate: environment ## regenerates deploy/ and docs/reference from the program
	@$(RUN) tools.generate

clean: ## removes what was made inside the clone; the cache of servers stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
