# make demo    the whole thing on a local stack of real parts: pods pending → nodes → spot interruption → zero and back
# make test    everything CI runs: check, then all tests
# make check   formatting, lint, types, dependency direction
# make bench   speed and size; make bench-launch: a burst under EC2's limits
# make probe-aws   what we believe about AWS, asked of your account (dry unless CONFIRM=yes)
# make bench-following   where a real kube-scheduler puts pods, by how it is told the plan (about a quarter of an hour)
# make bench-planner   the planner beside the real Karpenter scheduler: hours; ARGS="--only mix --sizes 1000" for a part
SHELL := /bin/bash
.DELETE_ON_ERROR:
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION = true
# Without bytecode every import takes twice the time.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
# Beside the control plane's binary, so that a new checkout need not learn its dependencies' types again.
MYPY_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/spotwright/mypy

.PHONY: demo test check setup controlplane bench bench-following bench-planner bench-launch probe-aws format clean

setup:
	@tools/setup

demo: setup controlplane
	@$(BIN)/python -m local.demo

test: check controlplane
	@tools/test

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@echo "types: seconds with a cache, about 20 seconds without"
	$(BIN)/mypy --cache-dir "$(MYPY_CACHE)"
	$(BIN)/lint-imports

controlplane: setup
	@$(BIN)/python -m local build

bench: setup
	@$(BIN)/python -m bench

bench-following: controlplane
	@$(BIN)/python -m bench.following

bench-planner: setup
	@$(BIN)/python -m bench.planner $(ARGS)

bench-launch: setup
	@$(BIN)/python -m bench.launch

probe-aws: setup
	@$(BIN)/python -m tools.probe_aws $(if $(filter yes,$(CONFIRM)),--confirm)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .tools node_modules build cdk.out
