# EchoMQ for Python. Needs only make and Python 3.11 or newer; everything else goes into build/.
# Another Python than the first that is found: make PYTHON=/path/to/python3 test

.PHONY: help demo test check native native-check differential storm fuzz dist clean

SEQUENCES ?= 10000
COMMANDS ?= 1000000
SECONDS ?= 60

help:
	@echo "make demo    run the demo: a server, a worker and a job for every file of the standard library"
	@echo "make test    the checks and the whole suite, on two Pythons and two servers"
	@echo "make check   only the checks: ruff, mypy, basedpyright, import-linter"
	@echo "make native  compile the server module into src/echomq/wire/native (CC names the compiler)"
	@echo "make differential SEQUENCES=10000   random calls on both wires: every reply and key the same"
	@echo "make storm COMMANDS=1000000         random commands, hostile ones too, at a server that has to stay sound"
	@echo "make fuzz SECONDS=60                the module under the address and undefined-behaviour sanitizers"
	@echo "make dist    build the wheel and the source archive into build/dist"
	@echo "make clean   remove build/ and the caches"

demo:
	@PYTHON="$(PYTHON)" sh .ci/venv build/venv runtime
	@build/venv/bin/echomq demo

test:
	@PYTHON="$(PYTHON)" sh .ci/venv build/venv dev
	@PYTHON="$(PYTHON)" sh .ci/test

check:
	@PYTHON="$(PYTHON)" sh .ci/venv build/venv dev
	@sh .ci/check

native:
	@sh native/build

native-check:
	@sh native/check

differential:
	@PYTHON="$(PYTHON)" sh .ci/venv build/venv dev
	@sh native/build
	@PYTHONPATH=tests build/venv/bin/python -m support.differential $(SEQUENCES)

storm:
	@PYTHON="$(PYTHON)" sh .ci/venv build/venv dev
	@sh native/build
	@PYTHONPATH=tests build/venv/bin/python -m support.storm $(COMMANDS)

fuzz:
	@PYTHON="$(PYTHON)" sh .ci/venv build/venv dev
	@sh native/fuzz/run $(SECONDS)

dist:
	@PYTHON="$(PYTHON)" sh .ci/venv build/venv dev
	@build/venv/bin/python -m build --outdir build/dist

clean:
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +
