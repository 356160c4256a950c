# make lab    open the quickstart in JupyterLab, with the sidebar if Node is available; LAB passes
#             options to JupyterLab: make lab LAB="--port 9999 --no-browser"
# make notebooks  install the packages of all notebooks
# make test   run all checks and tests
# make demo   run the quickstart without a browser
# make fuzz   compare COUNT random programs on the device with the CPU, from seed FIRST, and run the
#             commands with random lines
# make bench  measure speed and memory
# make versions  test other releases of torch, Python, Lightning and JupyterLab (ONLY=2.8: only one;
#                KEEP=folder: keep the environments; QUICK=1: without the tables of operators)
# make golden  update the expected reports in tests/golden
# make wrong-arguments  call each of the vendor's operators COUNT times with invalid arguments
# make compiled-operators  compare all of PyTorch's operators and 100 random programs, compiled, with
#            eager mode and the CPU; also check the memory formats of other processors
# make collectives  compare COUNT random collectives of two and four cards with gloo, from seed FIRST
# make races  run random programs with several threads, forks and interrupts
# make dist  build the source archive and all wheels in build/dist (KEEP=folder: keep the
#            environments of other releases of torch and Python)
# make check-dist  run make dist, and install, use, upgrade and uninstall the wheels in empty
#            environments (KEEP as above)
# make docs  build the documentation site in build/site; its pages work offline
# make check-docs  check the site in Chromium: search, widths, contrast, both themes
# make check-links  check the site's links to other sites
# make huggingface  run all models, precisions and caches of the Hugging Face libraries, in both modes
# make deepspeed  install DeepSpeed in its own environment, compare its features on simulated cards
#            with its CPU accelerator, and update the table in docs/deepspeed.md (KEEP as above)
# make serving  install vLLM with its Gaudi plugin in a separate environment, compare its features and
#            models on simulated cards with transformers, and update the tables in docs/vllm.md. PLUGIN
#            is a source archive of the plugin, which is downloaded by default (KEEP as above)
# make dry-runs  compare the memory, graphs, graph breaks and host reads of about 40 programs, and of
#            programs of published packages, with dry runs of them (KEEP as above)
# make estimates  compare the estimated memory of all test models with the simulator's, in both modes
# make examples  run all tests of the pytest plug-in and of docs/examples, and the complete notebooks
# make sanitize  run the tests of the device with sanitizers, and update docs/checks.md
#
# PYTHON selects the interpreter (3.10 to 3.13), and TORCH the installed torch, for example
# TORCH="torch==2.13.0 --index-url ..." for a CPU wheel.

PYTHON ?= python3
TORCH ?= torch==2.13.0
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
RUNNING := $(VENV)/running
DEVELOPING := $(VENV)/developing
DOCUMENTING := $(VENV)/documenting
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Most modules of the packages are never imported, so Python compiles them at their first import.
INSTALL := install --no-compile -c constraints.txt

# Tests start tools of the virtual environment, which is not activated.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Tests and benchmarks start hundreds of processes, which would all compile the Python sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lab notebooks test test-browser test-lazy-operators test-lazy-libraries test-avx2 test-sse41 test-torchvision torchvision golden examples wrong-arguments compiled-operators huggingface ray deepspeed serving dry-runs estimates collectives races fuzz demo bench versions sanitize dist check-dist \
	docs check-docs check-links lint lint-python front-end engine labextension system clean
.DEFAULT_GOAL := test

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "$$($(PYTHON) --version) is not supported; set PYTHON to Python 3.10 to 3.13."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) has no venv; install it (on Debian: apt-get install python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch is installed first and separately, so that no other package selects its build.
$(RUNNING): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) (takes a few minutes the first time) ..."
	$(BIN)/python -m pip --disable-pip-version-check $(INSTALL) $(TORCH)
	$(BIN)/python tools/requirements.py > $(VENV)/requirements.txt
	$(PIP) $(INSTALL) -r $(VENV)/requirements.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

# Packages that only tests, checks and benchmarks require.
$(DEVELOPING): requirements-dev.txt constraints.txt $(RUNNING)
	$(PIP) $(INSTALL) -r requirements-dev.txt -r $(VENV)/requirements.txt
	@touch $@

# Packages that build the site; its notebooks also require the packages of the tests.
$(DOCUMENTING): requirements-docs.txt constraints.txt $(DEVELOPING)
	$(PIP) $(INSTALL) -r requirements-docs.txt -r $(VENV)/requirements.txt
	@touch $@

engine: $(RUNNING)
	@sh tools/system_packages.sh compiler headers
	@$(BIN)/python -m hpu_magic.command_line build >/dev/null

EXTENSION := hpu_magic/labextension/package.json
EXTENSION_SOURCES := $(shell find labextension/src labextension/style labextension/schema -type f) \
	$(addprefix labextension/,package.json yarn.lock tsconfig.json build.mjs)

$(EXTENSION): $(EXTENSION_SOURCES) | $(RUNNING)
	@sh tools/system_packages.sh node
	@$(BIN)/python tools/labextension.py build

labextension: $(EXTENSION)
	@$(BIN)/python tools/labextension.py link

system:
	@sh tools/system_packages.sh compiler headers browser node

lint: lint-python system
	$(BIN)/python tools/labextension.py check

lint-python: $(DEVELOPING)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

front-end: labextension
	$(BIN)/python tools/labextension.py check test

# These suites run in both modes, and a process has only one mode. Tests marked `once` do not depend
# on the mode of their process, and are not repeated in lazy mode.
LAZY_OPERATORS := tests/simulator/device tests/simulator/custom \
	$(addprefix tests/simulator/face/test_transformer_engine,.py _attention.py _checkpoints.py _graphs.py _state.py)
LAZY_LIBRARIES := tests/lightning \
	$(addprefix tests/huggingface/test_,transformers.py generate.py accelerate.py transformers_trainer.py \
		diffusers.py sentence_transformers.py)

SPREAD := -n $(WORKERS)

# On other processors, ATen and oneDNN use different code paths, and results have different memory
# formats; these variables select the same code paths on this processor. Most cases of the operator
# database differ only in values, and memory formats do not depend on the type, so they are omitted
# here; ``make compiled-operators`` runs the tests of memory formats completely.
PROCESSORS := $(addprefix tests/simulator/device/test_,device.py operators.py) \
	$(addprefix tests/simulator/graphs/test_graph,s.py _memory.py _training.py) \
	$(addprefix tests/simulator/compile/test_compile,.py _passes.py d_memory_formats.py)
FEW_OPERATORS := (not test_operator_equals_the_cpu or conv or matmul or pool)
FEW_FORMATS := not (another_layout or other_types or dynamic_shapes)
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2
SSE41 := ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default

# Tasks that need a single core or the network run during the compilation of the engine. Each worker
# uses one thread, because several thread pools on two cores would wait for each other. Tests of the
# first suite often wait for the processes that they start, so it has two additional workers.
# Browser tests wait for servers and kernels half of the time, so two other groups of tests run at the
# same time, with one process each, because imports take a large part of their time. The output of
# each group appears at its end.
GROUPS := test-browser test-lazy-operators test-lazy-libraries test-avx2 test-sse41 test-torchvision

test: system
	@$(MAKE) --no-print-directory -j2 engine lint-python front-end torchvision
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $$(($(WORKERS) + 2)) -m "not browser"
	@$(MAKE) --no-print-directory -j3 --output-sync=target $(GROUPS)

test-browser:
	$(BIN)/pytest $(SPREAD) -m browser tests/browser

test-lazy-operators:
	OMP_NUM_THREADS=1 HPU_MAGIC_TEST_LAZY=1 $(BIN)/pytest $(LAZY_OPERATORS)

test-lazy-libraries:
	OMP_NUM_THREADS=1 HPU_MAGIC_TEST_LAZY=1 $(BIN)/pytest $(LAZY_LIBRARIES)

test-avx2:
	OMP_NUM_THREADS=1 $(AVX2) \
		$(BIN)/pytest $(PROCESSORS) -k "$(FEW_OPERATORS) and $(FEW_FORMATS)"

test-sse41:
	OMP_NUM_THREADS=1 $(SSE41) \
		$(BIN)/pytest $(PROCESSORS) -k "$(FEW_OPERATORS) and not compiled_memory_formats"

WITH_TORCHVISION := tests/simulator/face/test_habana_dataloader.py tests/lightning/test_datamodule.py
TORCHVISION = $(BIN)/python tools/environments.py torchvision $(if $(KEEP),--keep $(KEEP))

torchvision: $(DEVELOPING)
	@$(TORCHVISION) >/dev/null

test-torchvision:
	vision=$$($(TORCHVISION)) && \
		OMP_NUM_THREADS=1 PYTHONPATH=tests $$vision -m pytest -p torchvision_operators \
			$(WITH_TORCHVISION)

golden: engine
	OMP_NUM_THREADS=1 $(BIN)/pytest $(SPREAD) --golden

wrong-arguments: COUNT = 500
wrong-arguments: engine
	@mkdir -p build; for lazy in 0 1; do \
		OMP_NUM_THREADS=1 PT_HPU_LAZY_MODE=$$lazy HPU_MAGIC_CARDS_DIR=$$(mktemp -d) \
			$(BIN)/python tests/simulator/custom/wrong_arguments.py --count $(COUNT) \
			--first $(FIRST) 2>build/wrong_arguments.log || \
			{ tail -n 30 build/wrong_arguments.log; exit 1; }; \
	done

compiled-operators: $(DEVELOPING) engine
	OMP_NUM_THREADS=1 HPU_MAGIC_TEST_ALL_OPERATORS=1 $(BIN)/pytest $(SPREAD) \
		tests/simulator/compile/test_compiled_operators.py \
		tests/simulator/device/test_random_programs.py
	@for processor in "$(AVX2)" "$(SSE41)"; do \
		env OMP_NUM_THREADS=1 $$processor $(BIN)/pytest $(SPREAD) $(PROCESSORS) \
			-k "$(FEW_OPERATORS)" || exit 1; \
	done

huggingface: $(DEVELOPING) engine
	@for lazy in "" HPU_MAGIC_TEST_LAZY=1; do \
		env $$lazy OMP_NUM_THREADS=1 HPU_MAGIC_TEST_ALL_MODELS=1 $(BIN)/pytest $(SPREAD) \
			tests/huggingface || exit 1; \
	done
	HPU_MAGIC_TEST_ALL_MODELS=1 $(BIN)/pytest tests/project/test_environments.py
	trl=$$($(BIN)/python tools/environments.py trl $(if $(KEEP),--keep $(KEEP))) && \
		for lazy in "" HPU_MAGIC_TEST_LAZY=1; do \
			env $$lazy OMP_NUM_THREADS=1 $$trl -m pytest tests/huggingface/test_trl.py || exit 1; \
		done
	optimum=$$($(BIN)/python tools/environments.py optimum_habana $(if $(KEEP),--keep $(KEEP))) && \
		OMP_NUM_THREADS=1 HPU_MAGIC_TEST_OPTIMUM_HABANA=$$optimum $(BIN)/pytest \
			tests/huggingface/test_optimum_habana*.py

ray: $(DEVELOPING) engine
	ray=$$($(BIN)/python tools/environments.py ray $(if $(KEEP),--keep $(KEEP))) && \
		OMP_NUM_THREADS=1 $$ray -m pytest tests/parallel/test_ray.py

deepspeed: engine
	deepspeed=$$($(BIN)/python tools/environments.py deepspeed $(if $(KEEP),--keep $(KEEP))) && \
		$$deepspeed tools/deepspeed_table

serving:
	@PYTHON=$(PYTHON) sh tools/system_packages.sh compiler headers
	vllm=$$($(PYTHON) tools/environments.py vllm $(if $(PLUGIN),--plugin '$(PLUGIN)') \
			$(if $(KEEP),--keep $(KEEP))) && \
		$$vllm -m hpu_magic.command_line build >/dev/null && \
		$$vllm tools/serving_table --workers $(WORKERS)

dry-runs: $(DEVELOPING) engine
	PYTHONPATH=$(CURDIR) OMP_NUM_THREADS=1 $(BIN)/python tools/dry_runs.py
	programs=$$($(BIN)/python tools/environments.py programs $(if $(KEEP),--keep $(KEEP))) && \
		PYTHONPATH=$(CURDIR) OMP_NUM_THREADS=1 $$programs tools/dry_runs.py --packages

estimates: $(DEVELOPING) engine
	OMP_NUM_THREADS=1 HPU_MAGIC_TEST_ALL_ESTIMATES=1 $(BIN)/pytest $(SPREAD) tests/estimates

examples: $(DEVELOPING) engine
	@sh tools/system_packages.sh node
	hub=$$($(BIN)/python tools/environments.py jupyterhub $(if $(KEEP),--keep $(KEEP))) && \
		OMP_NUM_THREADS=1 HPU_MAGIC_TEST_ALL_EXAMPLES=1 HPU_MAGIC_TEST_JUPYTERHUB=$$hub \
			$(BIN)/pytest $(SPREAD) tests/testing tests/examples tests/notebooks

collectives: COUNT = 2000
collectives: $(DEVELOPING) engine
	OMP_NUM_THREADS=1 HPU_MAGIC_CARDS_DIR=$$(mktemp -d) \
		PYTHONPATH=tests $(BIN)/python tests/simulator/distributed/random_collectives.py \
		--count $(COUNT) --first $(FIRST)

COUNT ?= 100000
FIRST ?= 0

# Random programs with several threads, for RACE_SECONDS in each mode.
RACE_SECONDS ?= 600

races: engine
	@for lazy in 0 1; do \
		PT_HPU_LAZY_MODE=$$lazy HPU_MAGIC_CARDS_DIR=$$(mktemp -d) \
			$(BIN)/python tests/race_programs.py --seconds $(RACE_SECONDS) \
			--seed $(FIRST) || exit 1; \
	done

fuzz: $(DEVELOPING) engine races
	HPU_MAGIC_TEST_LINES=10000 $(BIN)/pytest tests/magics/test_commands.py -k random_lines
	@for lazy in 0 1; do \
		OMP_NUM_THREADS=1 PT_HPU_LAZY_MODE=$$lazy HPU_MAGIC_CARDS_DIR=$$(mktemp -d) \
			$(BIN)/python tests/simulator/device/random_programs.py --count $(COUNT) --first $(FIRST) \
			|| exit 1; \
	done

# JupyterLab does not wait for the sidebar's build. The printed URL also opens the quickstart, so that
# it can be copied into a browser on another machine.
lab: engine
	@$(BIN)/python tools/labextension.py link
	@$(BIN)/python tools/requirements.py --missing notebooks
	@$(MAKE) -q --no-print-directory $(EXTENSION) || { mkdir -p build; \
		echo "Building the sidebar (build/sidebar.log); reload the page when it is built."; \
		{ $(MAKE) --no-print-directory labextension >build/sidebar.log 2>&1 </dev/null && \
			test -e $(EXTENSION) && echo "The sidebar is built: reload the JupyterLab page." || \
			echo "JupyterLab runs without the sidebar: see build/sidebar.log for the reason."; } & }; \
	exec $(BIN)/jupyter lab --ip=127.0.0.1 $(if $(filter 0,$(shell id -u)),--allow-root) \
		--LabApp.default_url=/lab/tree/notebooks/quickstart.ipynb $(LAB)

notebooks: $(RUNNING)
	@$(BIN)/python tools/requirements.py notebooks > $(VENV)/notebooks.txt
	$(PIP) $(INSTALL) -r $(VENV)/requirements.txt -r $(VENV)/notebooks.txt

demo: engine
	@$(BIN)/python tools/demo.py

bench: $(DEVELOPING) engine labextension
	@sh tools/system_packages.sh browser
	@$(BIN)/python -m bench

# The script creates the environments; browser tests in the newest one use the sidebar built here.
versions: $(RUNNING) system labextension
	@$(BIN)/python tools/versions.py $(if $(KEEP),--keep $(KEEP)) $(if $(QUICK),--quick) $(ONLY)

dist: $(RUNNING) labextension
	@sh tools/system_packages.sh compiler headers
	@$(BIN)/python tools/dist.py $(if $(KEEP),--keep $(KEEP))

check-dist: $(DEVELOPING) system dist
	@$(BIN)/python -m tools.check_dist $(if $(KEEP),--keep $(KEEP)) --torch "$(firstword $(TORCH))"

docs: $(DOCUMENTING) engine
	@$(BIN)/python tools/build_site.py

check-docs: docs
	@sh tools/system_packages.sh browser
	$(BIN)/pytest -m browser tests/docs

# The only check of the documentation that requires a network connection.
check-links: $(DOCUMENTING) engine
	@$(BIN)/python tools/build_site.py --fast --links

# The engine with sanitizers is separate from the engine that all other targets use.
sanitize: $(DEVELOPING)
	@sh tools/system_packages.sh compiler headers
	@WORKERS=$(WORKERS) $(BIN)/python tools/sanitize.py

clean:
	rm -rf build
