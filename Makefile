# minisitch: everything a fresh clone needs. `make` alone lists the targets.
#
# A stamp file in the virtual environment says which extras are installed, so a second run
# starts at once; touching pyproject.toml or constraints.txt installs again.

VENV ?= .venv
BIN := $(VENV)/bin
# The first interpreter on the PATH that is new enough; `make PYTHON=/path/to/python3.13 demo` overrides.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo $$p && break; done)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
JOBS ?= 2

.PHONY: help demo test test-offline-cuda test-browser test-torch lint docs size clean
help:
	@echo 'make demo    compile a GPT block with every strategy and run it on this CPU'
	@echo 'make test    ruff, mypy, the test suite, and the course grading its own grader'
	@echo 'make test-offline-cuda    the tests that assemble CUDA kernels without a GPU (downloads about 210 MB of tools)'
	@echo 'make test-browser    the tests of the explorer that drive a browser (needs Chromium on the PATH)'
	@echo 'make test-torch    the tests that compile PyTorch models (downloads PyTorch and transformers)'
	@echo 'make lint    ruff and mypy alone'
	@echo 'make docs    build the documentation into site/ (executes every page and tutorial)'
	@echo 'make size    code lines per file, comments and docstrings not counted'
	@echo 'make clean   remove the virtual environment and everything that was built'

demo: $(VENV)/installed
	$(BIN)/python -m minisitch demo

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal
	$(BIN)/python -m minisitch.course verify --jobs $(JOBS)

test-offline-cuda: $(VENV)/installed-offline-cuda
	$(BIN)/python -m pytest -n $(JOBS) -m offline_cuda

test-browser: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 0 -m browser

test-torch: $(VENV)/installed-torch
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m torch

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/installed-docs
	$(BIN)/python tools/render_docs.py docs tutorials build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo 'open site/index.html'

size:
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) tools/size.py

clean:
	rm -rf $(VENV) build site dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis minisitch-demo.html

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'minisitch needs Python 3.11 or newer, and none is on the PATH.'; \
		echo 'Install one, or name it: make PYTHON=/path/to/python3.12 demo'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "minisitch needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version 2>&1`."; \
		echo 'Name another: make PYTHON=/path/to/python3.12 demo'; exit 1; }
	@echo "making $(VENV) with `$(PYTHON) --version`"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo 'Python could not make a virtual environment; on Debian and Ubuntu: apt install python3-venv'; exit 1; }

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing minisitch (NumPy and Numba; a minute or two the first time)'
	@$(PIP) --editable .
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing minisitch with what its tests need'
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/installed $@

$(VENV)/installed-docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing minisitch with what its documentation needs'
	@$(PIP) --editable '.[docs]'
	@touch $(VENV)/installed $@

$(VENV)/installed-offline-cuda: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing minisitch with the CUDA compiler, assembler and disassembler'
	@$(PIP) --editable '.[dev,offline-cuda]'
	@touch $(VENV)/installed $(VENV)/installed-dev $@

$(VENV)/installed-torch: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing minisitch with PyTorch, and transformers for models'
	@$(PIP) --editable '.[dev,torch]' transformers
	@touch $(VENV)/installed $(VENV)/installed-dev $@
