# The commands of this project. Everything happens inside this folder: .venv/ and build/.
#   make demo    build, then train a network on street scans for some minutes: build/demo.html;
#                ARGS=--quick takes seconds
#   make test    build, C++ and Python tests, then the C++ tests under AddressSanitizer and UBSan
#   make tsan    the kernels' tests under ThreadSanitizer
#   make fuzz    a million hostile inputs per decoder, under AddressSanitizer and UBSan; INPUTS=...
#   make bench   all benchmarks; make bench BENCH=conv ARGS=--benchmark_filter=lidar
#   make docs    build, then the site: build/site/index.html, offline
#   make lint    layout, common mistakes, types and text; make format mends layout
#   make tidy    clang-tidy on the C++ files that differ from main; ARGS=--all for all files
#   make clean   removes build/; make distclean also .venv/

BENCH ?= *
ARGS ?=

.PHONY: build demo docs test tsan fuzz bench lint format tidy clean distclean

build:
	scripts/build.sh

demo: build
	.venv/bin/python -m mlx_lattice demo --output build/demo.html $(ARGS)

docs: build
	scripts/docs.sh

test: build
	scripts/test.sh

tsan:
	scripts/sanitize.sh tsan

fuzz:
	scripts/fuzz.sh $(INPUTS)

bench: build
	scripts/bench.sh "$(BENCH)" $(ARGS)

lint:
	scripts/lint.sh

format:
	scripts/format.sh

tidy:
	scripts/tidy.sh $(ARGS)

clean:
	rm -rf build

distclean: clean
	rm -rf .venv
