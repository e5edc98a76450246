# rtl-distill: `make train` and `make test` are all that a newcomer needs; `make help` lists the rest.
.DEFAULT_GOAL := help
PY := .venv/bin/python
# Without kept bytecode every start of a command, a service or a test worker compiles the sources anew (seconds each).
unexport PYTHONDONTWRITEBYTECODE
TOOLS := iverilog=iverilog verilator=verilator bwrap=bubblewrap
BROWSER := chromium=chromium
ENGINE := dockerd=docker.io docker=docker.io debootstrap=debootstrap

# Tests wait for simulators and servers: five at a time keep two cores busy, three of the slow ones. conftest.py makes the groups.
PARALLEL := --dist loadgroup --no-loadscope-reorder

.PHONY: help setup setup-test train train-real test test-slow test-docker test-cookbook test-clients test-newer-clients test-engines test-debian13 lint types format bench redteam learning-report models newest lock sim-image deploy-local down clean

help: ## List what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: ## Install system packages and the locked Python environment (.venv)
	@scripts/system-packages.sh $(TOOLS)
	@scripts/python-environment.sh
	@$(PY) -m scripts.older_tools

setup-test: setup ## The same, with the browser that the report's tests open
	@scripts/system-packages.sh $(TOOLS) $(BROWSER)

train: setup ## Train the embedded demo: a small model learns to follow RTL specifications (minutes)
	@.venv/bin/rtl-distill train demo $(ARGS)

train-real: setup ## Train a real pretrained language model, SmolLM2-135M (about an hour on two idle cores)
	@.venv/bin/rtl-distill admin fetch-model SmolLM2-135M-Instruct
	@.venv/bin/rtl-distill train smollm2 $(ARGS)

test: setup-test ## Run the test suite (minutes)
	@$(PY) -m pytest -n 5 $(PARALLEL) -m "not slow and not docker and not cookbook and not clients and not newer_clients and not engines" $(ARGS)

test-slow: setup-test ## Run the tests that take minutes each
	@scripts/system-packages.sh pg_ctlcluster=postgresql npm=npm
	@scripts/axe.sh
	@$(PY) -m pytest -n 3 $(PARALLEL) -m "slow and not docker" $(ARGS)

test-docker: setup-test sim-image ## Run the tests of grading in Docker (starts an engine when none answers; that takes root)
	@scripts/with-docker-engine.sh $(PY) -m pytest -m docker $(ARGS)

test-cookbook: setup ## Let the tinker-cookbook's own RL loop and recipes train here (installs it into build/cookbook)
	@scripts/cookbook-environment.sh
	@PYTHONPATH=build/cookbook $(PY) -m pytest -m cookbook $(ARGS)

test-clients: setup ## Grade exported problems in Inspect and verifiers (installs them into build/clients)
	@scripts/clients-environment.sh
	@$(PY) -m pytest -m clients $(ARGS)

test-newer-clients: setup sim-image ## The same in Harbor and NeMo Gym, in a root of their own with a newer Python (build/newer; as root)
	@scripts/newer-environment.sh
	@scripts/with-docker-engine.sh $(PY) -m pytest -m newer_clients $(ARGS)

test-engines: setup ## Train on SkyRL (JAX on the CPU), in a root of its own with a newer Python (build/skyrl, 6 GB; as root; minutes)
	@scripts/system-packages.sh debootstrap=debootstrap
	@scripts/skyrl-environment.sh
	@$(PY) -m pytest -v -m engines $(ARGS)
	@$(PY) -m benchmarks.engines

test-debian13: setup ## Run the test suite of the last commit on Debian 13, in a root of its own (build/debian13; as root)
	@scripts/system-packages.sh debootstrap=debootstrap
	@scripts/in-debian13.sh make test

sim-image: setup ## Build the simulation image of the Docker executor, with or without a registry
	@scripts/system-packages.sh $(ENGINE)
	@scripts/with-docker-engine.sh packages/rtl-grader/rtl_grader/grading/sim/build.sh

lint: setup ## Check style, that rooms import downwards only, and that nothing is above its limit of size
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && $(PY) -m scripts.rooms && $(PY) -m scripts.limits

types: setup ## Check types
	@.venv/bin/mypy && .venv/bin/mypy examples

format: setup ## Format and fix what can be fixed
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .

bench: setup ## Print where a step's time goes
	@$(PY) -m benchmarks.step

redteam: setup ## Attack the grader with every known way to be paid for wrong RTL (minutes)
	@$(PY) -m benchmarks.redteam $(ARGS)
	@$(PY) -m benchmarks.redteam.tools

learning-report: setup ## Run what the ledger of learning lacks (minutes a cell; ARGS="--jobs 8" on more cores) and write its report
	@$(PY) -m benchmarks.learning $(ARGS)

models: setup ## Make the tiny models of the package anew into build/tinymodels (half an hour)
	@.venv/bin/rtl-distill admin models --output build/tinymodels

newest: setup-test ## Try the newest release of each dependency and say what breaks (minutes each; ARGS=prefect for one)
	@$(PY) -m scripts.newest $(ARGS)

lock: ## Write requirements.lock from what is installed in .venv (after testing it); what only a newer Python needs stays
	@newer=$$(grep ';' requirements.lock); { $(PY) -m pip freeze --all --exclude pip --exclude-editable | sed 's/+cpu$$//'; echo "$$newer"; } > requirements.lock

deploy-local: setup ## Bring Prefect server, work pool, deployments and worker up on loopback
	@.venv/bin/rtl-distill deploy up

down: setup ## End what deploy-local started
	@.venv/bin/rtl-distill deploy down

clean: ## Remove the environment and build output (runs/ stays)
	@rm -rf --one-file-system .venv build dist
