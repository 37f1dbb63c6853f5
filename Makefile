# The commands of this project. Everything happens inside this folder: .venv/ and build/.
#   make demo      build, then train a network on street scans for two minutes: build/demo.html;
#                  ARGS=--quick takes seconds
#   make test      build, then all tests: C++, Python, and C++ under AddressSanitizer and UBSan;
#                  FAST=1 leaves out the slow tests and the sanitizers
#   make asan      the C++ tests under AddressSanitizer and UBSan, with the kernels of this machine's
#                  best instruction set; SIMD=default takes all sets and twice the time
#   make tsan      the kernels and the coordinate manager under ThreadSanitizer
#   make test-arm  the kernels cross-compiled for NEON, under qemu-user; TESTS=regex
#   make attack    hostile calls of every public function; CALLS=200000, SEED=2, LATTICE_ASAN=1
#   make fuzz      a million hostile inputs for every decoder, 100,000 program files and 20,000
#                  graph texts, under AddressSanitizer; INPUTS=...
#   make bench     all benchmarks; make bench BENCH=conv ARGS=--benchmark_filter=lidar
#   make docs      build, then the site: build/site/index.html, which works offline
#   make lint      layout, spelling, common mistakes, types: the hooks of .pre-commit-config.yaml.
#                  Hooks mend what they can; HOOK=ruff-format runs one of them
#   make tidy      clang-tidy on the C++ lines that differ from main; ALL=1 for all files
#   make types     mypy again after a build, when the stubs of the extension are known
#   make headers   every file compiles without precompiled headers, every header alone
#   make wheel     a wheel that needs no compiler, tried in a new environment
#   make clean     removes build/; make distclean also .venv/

BENCH ?= *
CALLS ?= 2000
SEED ?= 1
INPUTS ?= 1000000
PYTHON ?= python3
TOOLS := build/tools/bin
IN_ENVIRONMENT := . scripts/environment.sh &&

.PHONY: build package demo test asan tsan test-arm attack fuzz bench docs site lint tidy types
.PHONY: headers wheel clean distclean

build:
	scripts/build.sh bench

package:
	scripts/build.sh demo

demo:
	scripts/demo.sh $(ARGS)

test:
	scripts/build.sh test
	scripts/test.sh $(if $(FAST),fast)

asan tsan:
	scripts/setup.sh test
	$(IN_ENVIRONMENT) cmake --preset $@ $(if $(SIMD),-DLATTICE_SIMD=$(SIMD)) >/dev/null && \
	  cmake --build --preset $@ -- --quiet
	$(IN_ENVIRONMENT) ctest --preset $@

fuzz:
	scripts/setup.sh test
	$(IN_ENVIRONMENT) cmake --preset asan >/dev/null && cmake --build --preset asan \
	  --target kernels_coding_fuzz_test ops_codec_test ops_program_fuzz_test ops_program_mlir_test \
	  -- --quiet
	export LATTICE_FUZZ_INPUTS=$(INPUTS) ASAN_OPTIONS=max_allocation_size_mb=256 \
	  LSAN_OPTIONS=suppressions=$(CURDIR)/tests/support/lsan.txt; cd tests && \
	  ../build/asan/tests/kernels_coding_fuzz_test && \
	  ../build/asan/tests/ops_codec_test --gtest_filter=Codec.HostileFiles && \
	  ../build/asan/tests/ops_program_fuzz_test && \
	  ../build/asan/tests/ops_program_mlir_test --gtest_filter=Mlir.Mutated*

test-arm:
	scripts/test_arm.sh '$(TESTS)'

attack:
	scripts/attack.sh $(CALLS) $(SEED)

bench: build
	for program in build/release/bench/$(BENCH)_bench; do $$program $(ARGS) || exit 1; done

docs: package site

# gen-files and mkdocstrings import the package, which lives in .venv; Doxygen reads its headers.
site: build/tools/ready
	command -v doxygen >/dev/null || scripts/setup.sh test
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true \
	  PYTHONPATH="$$(echo .venv/lib/python3*/site-packages)" bash -o pipefail -c \
	  '$(TOOLS)/mkdocs build --quiet --clean 2>&1 | $(PYTHON) scripts/progress.py "writing the site" build/site.log'
	headers=$$(echo .venv/lib/python3*/site-packages/mlx_lattice/include); \
	  (cat docs/Doxyfile; echo "INPUT = $$headers"; echo "STRIP_FROM_PATH = $$headers") | doxygen -
	$(TOOLS)/linkchecker --no-status --no-warnings build/site/index.html >build/links.log || \
	  { cat build/links.log; exit 1; }
	! grep -rlE '<(script|img|link rel="stylesheet")[^>]*="?https?://|url\(https?://' build/site
	@echo "site: build/site/index.html"

lint: build/tools/ready
	PRE_COMMIT_HOME=$(CURDIR)/build/pre-commit $(TOOLS)/pre-commit run --all-files $(HOOK)

tidy: build/tools/ready
ifdef ALL
	$(TOOLS)/python $(TOOLS)/run-clang-tidy.py -quiet -p build/release -warnings-as-errors='*' \
	  -clang-tidy-binary $(TOOLS)/clang-tidy '/(lattice|python/bindings)/.*\.cpp$$'
else
	git diff -U0 $$(git merge-base HEAD origin/main || echo HEAD) -- lattice python/bindings | \
	  $(TOOLS)/python $(TOOLS)/clang-tidy-diff.py -p1 -path build/release -only-check-in-db -quiet \
	  -warnings-as-errors='*' -clang-tidy-binary $(TOOLS)/clang-tidy -j $$(getconf _NPROCESSORS_ONLN)
endif

types: build/tools/ready
	rm -rf build/types && mkdir -p build/types/python && cp -R examples pyproject.toml build/types
	cp -R .venv/lib/python3*/site-packages/mlx_lattice build/types/python
	cd build/types && ../tools/bin/mypy --no-error-summary \
	  --python-executable ../../.venv/bin/python

headers:
	scripts/setup.sh test
	$(IN_ENVIRONMENT) cmake --preset release -B build/headers -DLATTICE_BUILD_BENCH=OFF \
	  -DLATTICE_BUILD_PYTHON=ON -DLATTICE_SIMD=native -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
	  >/dev/null && cmake --build build/headers --target headers_alone all -- --quiet

wheel: build/tools/ready
	scripts/wheel.sh

build/tools/ready: scripts/tools.txt
	$(PYTHON) -m venv build/tools
	$(TOOLS)/pip install -q --disable-pip-version-check -r scripts/tools.txt
	touch $@

clean:
	rm -rf build

distclean: clean
	rm -rf .venv
