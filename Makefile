# Two commands do everything: `make demo` and `make test`. Both set up what they need, once.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY ?= python3
BIN := .venv/bin
# Two for a processor, since many tests wait for processes, sockets and disks; three with memory for them (docs/decisions/0088).
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); kb=$$(awk '/^MemAvailable:/ { print $$2 }' /proc/meminfo 2>/dev/null); \
  expr $$cores \* $$((2 + ($${kb:-0} > cores * 7500000))))
# The tests start hundreds of processes, each of which would compile all of the code anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test quick check fmt figures lock bench peers walks soak chaos defences docs clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

demo: .venv/.ready-run ## Watch the bot fix a real bug in a real repository
	@$(BIN)/codepilot demo $(ARGS)

test: .venv/.ready-dev ## Lint, type-check and run every test
	@# The tests wait for processes and sockets a third of the time, in which the type checker runs.
	@nice scripts/check & tests=0; scripts/test --numprocesses $(WORKERS) $(ARGS) || tests=$$?; \
	wait $$! || { echo "make test: the checks failed; run: make check" >&2; exit 1; }; exit $$tests

quick: .venv/.ready-dev ## Lint, type-check and run the tests nearest to what changed since origin/main (half a minute)
	@$(BIN)/python scripts/quick $(ARGS)

check: .venv/.ready-dev ## Lint and type-check only
	@scripts/check

fmt: .venv/.ready-dev ## Format the code and apply the linter's fixes
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix --quiet .

figures: .venv/.ready-dev ## Count modules and lines of code, and compare the counts with their bounds
	@$(BIN)/python scripts/figures

bench: .venv/.ready-dev ## Measure every speed claim
	@$(BIN)/python bench/run.py

peers: .venv/.ready-dev ## Measure the library beside CodePilot 0.9.1, pygent and llm-coding-agent (five minutes; installs them with pip)
	@$(BIN)/python -m bench.peers $(ARGS)

walks: .venv/.ready-dev ## Go the three ways from an empty clone to a first pull request, and count commands and minutes
	@$(BIN)/python -m bench.walks --clone $(ARGS)

soak: .venv/.ready-dev ## Give hostile repositories to every verb of a real service, and watch it (a quarter of an hour)
	@$(BIN)/python -m bench.soak $(ARGS)

chaos: .venv/.ready-dev ## Kill processes of a real service on both stores while they work on 200 jobs (an hour; ARGS="--kills 10 --jobs 30")
	@$(BIN)/python -m bench.chaos $(ARGS)

defences: .venv/.ready-dev ## Take out every defence, one by one, and see its tests fail (a quarter of an hour)
	@scripts/take-out-defences $(ARGS)

docs: .venv/.ready-dev ## Build the pages of docs/ as a site in dist/docs
	@$(BIN)/python -m sphinx -q -W --keep-going -b html -d .cache/doctrees docs dist/docs && echo "dist/docs/index.html"

lock: .venv/.ready-dev ## Make the lock files again from pyproject.toml
	@scripts/lock

clean: ## Remove everything that set-up made
	rm -rf .venv .cache dist build

.venv/.ready-run: pyproject.toml requirements/run.lock scripts/setup
	@PY=$(PY) scripts/setup run

.venv/.ready-dev: pyproject.toml requirements/dev.lock scripts/setup
	@PY=$(PY) scripts/setup dev
