# The commands of this project. Everything happens inside this folder: .venv/ and build/.
#   make demo    build, then train a network on street scans for two minutes: build/demo.html;
#     ARGS=--quick for seconds
#   make test    build, C++ and Python tests, then the C++ tests under AddressSanitizer and UBSan
#   make test-arm  the kernels' tests cross-compiled for NEON, under qemu-user; TESTS=regex
#   make tsan    tests of the kernels and of the manager under ThreadSanitizer
#   make fuzz    a million hostile inputs per decoder, under AddressSanitizer and UBSan; INPUTS=...
#   make attack  hostile calls of every public function; CALLS=200000, SEED=2, LATTICE_ASAN=1
#   make bench   all benchmarks; make bench BENCH=conv ARGS=--benchmark_filter=lidar
#   make docs    build, then the site: build/site/index.html, offline
#   make lint    layout, common mistakes, types and text; make format mends layout. After a build
#     also clang-tidy on the C++ files that differ from main, for half a minute
#   make types   types with the stubs of the extension, after a build
#   make tidy    clang-tidy with its analyzer on these files; ARGS=--all for all files
#   make wheel   a wheel without a need for compiler or system libraries, tried in a new
#     environment; PYTHONS="python3.10 ..." for others
#   make clean   removes build/; make distclean also .venv/

BENCH ?= *
ARGS ?=
PYTHONS ?=

.PHONY: build demo docs test test-arm wheel tsan fuzz attack bench lint types format tidy
.PHONY: clean distclean

build:
	scripts/build.sh bench

demo:
	scripts/demo.sh $(ARGS)

docs:
	scripts/build.sh demo
	scripts/docs.sh

test:
	scripts/build.sh test
	scripts/test.sh

wheel:
	scripts/wheel.sh $(PYTHONS)

test-arm:
	scripts/test_arm.sh '$(TESTS)'

tsan:
	scripts/sanitize.sh tsan

fuzz:
	scripts/fuzz.sh $(INPUTS)

attack:
	scripts/attack.sh $(CALLS) $(SEED)

bench: build
	scripts/bench.sh "$(BENCH)" $(ARGS)

lint:
	scripts/lint.sh

types:
	scripts/types.sh

format:
	scripts/format.sh

tidy:
	scripts/tidy.py $(ARGS)

clean:
	rm -rf build

distclean: clean
	rm -rf .venv
