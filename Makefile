# `make demo` and `make test` work on a fresh machine: each makes the environment first.
SHELL := /bin/bash
PYTHON := .venv/bin/python
STAMP := .venv/.installed
NOTEBOOKS := $(wildcard case_studies/*.ipynb)
# Draws per chain in the notebook check; the notebooks read DPCAUSAL_DRAWS.
CHECK_DRAWS := 200

.PHONY: help venv demo bench calibrate bench-custodian real-data routes compare compare-quick test slow lint format types notebooks notebooks-check constraints clean

help:
	@echo "make demo             the main job on real data, for both kinds of release"
	@echo "make bench            what a posterior costs, and how near it comes to what can be known"
	@echo "make bench-custodian  seconds and memory of a release from 100 million records"
	@echo "make real-data        three data sets beside a published method: an hour, resumable"
	@echo "make routes           four routes from a table to an effect on six: hours, resumable"
	@echo "make compare          beside other private methods, five data sets: hours, resumable"
	@echo "make compare-quick    the same on simulated data, in a minute of processor time"
	@echo "make calibrate        coverage and ranks of every model (hours), to case_studies/calibration"
	@echo "make test             the tests, without the slow ones"
	@echo "make slow             the slow tests only"
	@echo "make lint             ruff; 'make format' repairs what it can"
	@echo "make types            mypy, on an installed wheel"
	@echo "make notebooks        execute the case studies in place, with all draws"
	@echo "make notebooks-check  execute them with few draws, the results thrown away"

venv: $(STAMP)

# Python 3.13 is python3.13 where that runs; else uv, from pip, brings it.
$(STAMP): pyproject.toml constraints.txt
	@if ! $(PYTHON) -c 'import pip' 2>/dev/null; then \
	    rm -rf .venv; \
	    if python3.13 -c '' 2>/dev/null; then \
	        python3.13 -m venv .venv; \
	    else \
	        python3 -m venv .tools && .tools/bin/python -m pip install -q uv && \
	        .tools/bin/uv venv --quiet --seed --python 3.13 .venv; \
	    fi; \
	fi
	$(PYTHON) -m pip install -q -c constraints.txt setuptools
	$(PYTHON) -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(STAMP)
	$(PYTHON) case_studies/demo.py

bench: $(STAMP)
	$(PYTHON) case_studies/benchmark.py
	$(PYTHON) case_studies/benchmark_many.py

bench-custodian: $(STAMP)
	$(PYTHON) case_studies/custodian_benchmark.py

# Runs that outputs/real_data_study.csv holds are not repeated.
real-data: $(STAMP)
	OMP_NUM_THREADS=1 $(PYTHON) case_studies/real_data_study.py
	$(PYTHON) case_studies/real_data_study.py --summary

# Runs that outputs/route_study.csv holds are not repeated.
routes: $(STAMP)
	OMP_NUM_THREADS=1 $(PYTHON) case_studies/route_study.py
	$(PYTHON) case_studies/route_study.py --summary

# Runs that outputs/compare.csv holds are not repeated.
compare: $(STAMP)
	OMP_NUM_THREADS=1 $(PYTHON) case_studies/compare.py
	$(PYTHON) case_studies/compare.py --summary

compare-quick: $(STAMP)
	OMP_NUM_THREADS=1 $(PYTHON) case_studies/compare.py --quick

RELEASES := 500

calibrate: $(STAMP)
	$(PYTHON) case_studies/calibration/run.py --releases $(RELEASES)

test: $(STAMP)
	$(PYTHON) -m pytest -n 2 --dist worksteal

slow: $(STAMP)
	$(PYTHON) -m pytest -m slow -n 2 --dist worksteal

lint: $(STAMP)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format: $(STAMP)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

# The wheel is unpacked by pip into a folder of its own, and mypy looks there first. Its
# dependencies are those of .venv.
types: $(STAMP)
	rm -rf .types build # a stale build folder would end up in the wheel
	$(PYTHON) -m pip install -q --no-deps --no-build-isolation --target .types .
	cd .types && MYPYPATH=. ../$(PYTHON) -m mypy --config-file ../pyproject.toml \
	    --cache-dir ../.mypy_cache

notebooks: $(STAMP)
	$(if $(NOTEBOOKS),$(PYTHON) -m nbconvert --to notebook --execute --inplace $(NOTEBOOKS),\
	    @echo "no notebooks in case_studies/")

notebooks-check: $(STAMP)
	$(if $(NOTEBOOKS),DPCAUSAL_DRAWS=$(CHECK_DRAWS) $(PYTHON) -m nbconvert --to notebook --execute \
	    --output-dir outputs/notebooks $(NOTEBOOKS),@echo "no notebooks in case_studies/")

# What the environment holds now, as exact versions: names and numbers, never addresses.
constraints: $(STAMP)
	{ sed -n '/^#/p' constraints.txt; \
	  $(PYTHON) -m pip freeze --all --exclude-editable --exclude pip; } > constraints.new
	mv constraints.new constraints.txt
	touch $(STAMP)

clean:
	rm -rf .venv .tools .types build dist outputs *.egg-info .mypy_cache .pytest_cache .ruff_cache
