# The front door: `make` says what there is. The work is done by scripts/ and CMakePresets.json.

.DEFAULT_GOAL := help
.PHONY: help setup build wheel deb dist docs demo demo-spot test test-all check bench format clean

help: ## show this help
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 16

setup: ## install Debian packages and the Python environment .venv (root or sudo)
	@scripts/setup

build: ## build the release: build/release/bin/millrace and the Python package in build/release/python
	@scripts/setup demo
	cmake --preset release -DMILLRACE_TESTS=OFF
	cmake --build --preset release --target millrace millrace_python

wheel: ## make the Python wheels with all libraries inside, in dist/
	@scripts/wheel

deb: ## make a Debian package of command, man pages and Python package, in dist/
	@scripts/setup demo
	@scripts/deb

dist: ## make all artifacts in dist/: wheels, sources, Debian package, tarball, image, Helm chart, bills of materials, checksums
	@scripts/setup
	@scripts/dist

docs: build ## make the site of the documentation in build/site, and man pages in build/man
	@scripts/docs

demo: build ## train a model from S3, kill it, resume it, and prove that no sample was lost or repeated
	examples/demo/run

demo-spot: build ## train on spot instances of a fake EC2: interrupted twice, in three zones, and prove the same
	examples/demo-spot/run

test: ## run the tests: C++ and Python, sanitizers, fuzzers (about an hour on 2 cores)
	@scripts/test

test-all: ## run what `make test` runs and what is slow: the full counts of kills and faults, longer fuzzing
	@scripts/test --all

check: ## quick look before a commit: format, lint of what changed, module table, fast tests
	@scripts/check

bench: setup ## measure, each figure beside its ceiling and its rival
	cmake --preset release -DMILLRACE_TESTS=ON
	cmake --build --preset release --target millrace millrace_python
	cmake --build --preset release --target plan_bench decode_bench index_bench get_bench read_crc
	@set -e; for bench in build/release/bin/plan_bench build/release/bin/decode_bench build/release/bin/index_bench; do echo "== $$bench"; $$bench; done
	.venv/bin/python bench/feed_bench.py
	.venv/bin/python bench/pack_bench.py
	.venv/bin/python bench/rows_bench.py

format: setup ## format all C++ and Python sources
	git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cc' | xargs -0 -r clang-format-14 -i
	.venv/bin/ruff format --quiet .
	.venv/bin/ruff check --quiet --fix .

clean: ## remove what was built (not .venv)
	rm -rf build dist
