# Everything runs from .venv, which `make install` makes; nothing is installed outside this folder.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
FOLDERS := policies webhook certs
TYPED_BENCHMARKS := $(addprefix benchmarks/,attack_bodies.py attacker.py bodies.py cases.py costs.py reliability.py worst.py)

.PHONY: help install demo test test-fast lint types imports docs bench bench-attack bench-facts bench-overload bench-worst drills e2e e2e-build e2e-gitops e2e-gitops-build browser playground clean

help: ## Show these targets.
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

install: $(STAMP) ## Make .venv with gpugate and the tools for development.

$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("gpugate needs Python 3.11 or later, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: install ## Review the examples, then send them through the real TLS webhook.
	@$(BIN)/python -m examples.demo

test: install ## Unit, golden and property tests, and the server over real TLS (no Go needed).
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: install ## Lint and format check, strict types, import layers.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory types imports

types: install
	@mkdir -p build/typing/gpugate && for folder in $(FOLDERS); do ln -sfn ../../../$$folder build/typing/gpugate/$$folder; done
	MYPYPATH=build/typing $(BIN)/mypy --namespace-packages --explicit-package-bases $(FOLDERS:%=-p gpugate.%)
	MYPYPATH=build/typing $(BIN)/mypy --strict --explicit-package-bases tests/e2e tests/e2e_gitops $(TYPED_BENCHMARKS)

imports: install
	$(BIN)/lint-imports --no-logo

docs: install ## Write the rule reference, the CRD and the webhook configurations from the models.
	@mkdir -p build
	$(BIN)/gpugate policies --format markdown > build/rules.md && mv build/rules.md docs/reference/rules.md
	$(BIN)/gpugate policies --profiles --format markdown > build/profiles.md && mv build/profiles.md docs/reference/profiles.md
	$(BIN)/gpugate policies --format crd > build/crd.yaml && mv build/crd.yaml manifests/base/crd/gpugate.io_gpupolicies.yaml
	$(BIN)/gpugate policies --format mutating-webhook > build/webhook.yaml && mv build/webhook.yaml manifests/base/webhook/mutating.yaml
	$(BIN)/gpugate policies --format validating-webhook > build/webhook.yaml && mv build/webhook.yaml manifests/base/webhook/validating.yaml

bench: install ## CPU per review, against a trivial handler in the same run.
	$(BIN)/python -m benchmarks.bench

bench-overload: install ## Reviews from 400 connections at once: latency, share in time, probes meanwhile.
	$(BIN)/python -m benchmarks.overload $(BENCH_OVERLOAD)

bench-facts: install ## The cost of a snapshot of 5,000 nodes and 100,000 pods; fails if reviews get slower with it.
	$(BIN)/python -m benchmarks.facts $(BENCH_FACTS)

drills: install ## Faults and attacks on real servers over loopback; about 4 minutes; writes docs/operate/reliability.md.
	$(BIN)/python -m pytest tests/drills -v --write-page -o tmp_path_retention_policy=failed

bench-attack: e2e-build ## The worst bodies in a loop at a real apiserver, and what creating GPU pods then takes.
	$(BIN)/python -m tests.e2e.attack_bench --write $(BENCH_ATTACK)

bench-worst: install ## Search for the object whose review costs most; fails over 100 ms of CPU or on a superlinear curve.
	$(BIN)/python -m benchmarks.worst --write $(BENCH_WORST)

e2e-build: install ## Build the control plane that the end-to-end tests run on (once; cached).
	$(BIN)/python -m tests.e2e.controlplane.build

e2e: e2e-build ## The real kube-apiserver, scheduler, Kueue and KWOK with gpugate as their webhook.
	$(BIN)/python -m pytest tests/e2e -v

e2e-gitops-build: e2e-build ## Build Argo CD, Flux, Helm and kustomize for the tests with them (once; cached).
	$(BIN)/python -m tests.e2e_gitops.build

e2e-gitops: e2e-gitops-build ## The real Argo CD and Flux with that control plane: nothing drifts, nothing is lost.
	$(BIN)/python -m pytest tests/e2e_gitops -v

BROWSER_STAMP := $(VENV)/.browser

$(BROWSER_STAMP): $(STAMP) tests/browser/requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/browser/requirements.lock
	@touch $(BROWSER_STAMP)

browser: $(BROWSER_STAMP) ## The audit page in headless Chromium (installed by apt if missing); pictures in build/screenshots.
	$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m pytest tests/browser

playground: e2e-build ## Leave such a cluster running, with gpugate in it, until Ctrl-C.
	$(BIN)/python -m tests.e2e.playground

clean: ## Remove .venv and caches of this folder.
	rm -rf $(VENV) build .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
