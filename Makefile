# make demo    the whole thing on a local stack of real parts: pods pending → nodes → spot interruption → zero and back
# make test    everything CI runs: check, then all tests
# make check   formatting, lint, types, dependency direction
# make test-kubernetes VERSION=1.34   the tests that ask a real API server, on another version of Kubernetes; builds it first
# make bench   speed and size; make bench-launch: a burst under EC2's limits (ARGS="--pods 7000"); make bench-catalog: refresh and read one
# make bench-memory   how long each function takes with more or less memory, and what it costs (about ten minutes)
# make bench-reading   what knowing a cluster costs: from the shipped state, from listed pages, object by object
# make bench-hours   requests and bytes at the API server, and dollars, in a quiet and in a busy hour (half an hour)
# make bench-planning   what provision itself needs beside 1,000 to 50,000 pods: processor time, memory, bytes to S3
# make bench-scale   one pending pod → CreateFleet beside 1,000 and 10,000 pods of a real API server; ARGS="--sizes 5000/50000" for more
# make bench-lifecycle   100 nodes with a pod each, up and down; ARGS="--nodes 60 --notices 50 --further-pods 140" with notices of EC2, --karpenter beside it
# make bench-public-tests NAME=Interference   Karpenter's public tests; ARGS="--of both" for the same of Karpenter, --suite regression
# make probe-aws   what we believe about AWS, asked of your account (dry unless CONFIRM=yes)
# make bench-following   where a real kube-scheduler puts pods, by how it is told the plan (about a quarter of an hour)
# make bench-disruption   what consolidation saves for how many evictions; ARGS="--evictions 10 30 --karpenter 100" beside Karpenter
# make bench-cases   random cases: are the plans legal; ARGS="--seed 1 --count 200" or "--profile full --pods 5000"
# make campaign    faults in virtual time; ARGS="--steps 1000000 --seed 2" for more, docs/campaign.md says what is checked
# make bench-planner   the planner beside the real Karpenter scheduler: hours; ARGS="--only mix --sizes 1000" for a part
# make docs    docs/events.md, docs/logs.md and docs/metrics.md, from the tables that they describe
# make regions   the regions that `spotwright plan` knows without AWS: types, zones and prices, from moto and libcloud
# make forwarder-image IMAGE=…   build the forwarder's image for both architectures with docker, and push it
SHELL := /bin/bash
.DELETE_ON_ERROR:
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION = true
# Without bytecode every import takes twice the time.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
# Beside the control plane's binary, so that a new checkout need not learn its dependencies' types again.
MYPY_CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/spotwright/mypy

.PHONY: demo test test-kubernetes check setup controlplane forwarder-image bench campaign bench-cases bench-disruption bench-memory bench-following bench-planner bench-launch bench-reading bench-planning bench-hours bench-scale bench-lifecycle bench-public-tests bench-catalog probe-aws docs regions format clean

setup:
	@tools/setup

demo: setup controlplane
	@$(BIN)/python -m local.demo

test: check controlplane
	@tools/test

test-kubernetes: setup
	@tools/test-kubernetes $(or $(VERSION),$(error VERSION is missing: make test-kubernetes VERSION=1.34))

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

bench-memory: setup
	@$(BIN)/python -m bench.memory $(ARGS)

bench-following: controlplane
	@$(BIN)/python -m bench.following

bench-disruption: setup
	@$(BIN)/python -m bench.disruption $(ARGS)

bench-cases: setup
	@$(BIN)/python -m bench.cases $(ARGS)

campaign: setup
	@$(BIN)/python -m tests.campaign $(ARGS)

bench-planner: setup
	@$(BIN)/python -m bench.planner $(ARGS)

bench-launch: setup
	@$(BIN)/python -m bench.launch $(ARGS)

bench-reading: setup
	@$(BIN)/python -m bench.reading $(ARGS)

bench-hours: controlplane
	@$(BIN)/python -m bench.hours $(ARGS)

bench-planning: setup
	@$(BIN)/python -m bench.planning $(ARGS)

bench-scale: controlplane
	@$(BIN)/python -m bench.scale $(ARGS)

bench-lifecycle: controlplane
	@$(BIN)/python -m bench.lifecycle $(ARGS)

bench-public-tests: controlplane
	@$(BIN)/python -m bench.lifecycle.public_tests "$(or $(NAME),$(error NAME is missing: make bench-public-tests NAME=Interference))" $(ARGS)

bench-catalog: setup
	@$(BIN)/python -m bench.catalog

regions: setup
	@.tools/uv/bin/uv run --quiet --with apache-libcloud==3.9.1 python tools/builtin_catalog.py

probe-aws: setup
	@$(BIN)/python -m tools.probe_aws $(if $(filter yes,$(CONFIRM)),--confirm)

forwarder-image:
	docker buildx build --platform linux/amd64,linux/arm64 -f forwarder/Dockerfile -t $(or $(IMAGE),$(error IMAGE=<registry>/spotwright-forwarder:<tag> is missing)) --push .

docs: setup
	@$(BIN)/python -m tools.telemetry_docs

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .tools node_modules build cdk.out
