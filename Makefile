# The Hungry Transformer. `make book` builds it, `make test` tests it; both set up all they need.

PYTHON ?= python3
SCALE ?= laptop
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 2

export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup book test site quick format pair bench record manifest serve clean

help: ## say what each command does
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY) ## create .venv and install everything (the other commands do this themselves)

$(READY): pyproject.toml requirements.lock tools/setup_env.py
	@$(PYTHON) tools/setup_env.py $(VENV)

book: $(READY) ## run the chapters and build the book in _build/html
	@$(BIN)/python tools/build_book.py --scale $(SCALE)

SITE_TESTS := tests/site/test_built_site.py

test: $(READY) ## run every test; of the built site too where there is one
	@test -f _build/html/index.html || echo "Left out: the tests of the built site, which is not there; make book builds it."
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(if $(wildcard _build/html/index.html),,--ignore=$(SITE_TESTS))

site: $(READY) ## check the built site: links, then every page in a real browser
	@$(BIN)/python tools/check_site.py _build/html
	@CI=true $(BIN)/python -m pytest -q $(SITE_TESTS)

quick: $(READY) ## lint, types, notebook pairs, records: under 30 s
	@$(BIN)/ruff check -q .
	@$(BIN)/ruff format -q --check .
	@$(BIN)/mypy
	@$(BIN)/python tools/pair.py --check
	@$(BIN)/python -m vitlab.lab check

format: $(READY) ## format the code and write each notebook from its .py
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/python tools/pair.py

pair: $(READY) ## write each notebook from its .py
	@$(BIN)/python tools/pair.py

bench: $(READY) ## compare speed side by side with timm, and the cost of the taps
	@$(BIN)/python -m bench

record: $(READY) ## make records: make record CHAPTER=vision_transformer SCALE=laptop RECORD=vit_training BUDGET=30m DRY=1
	@test -n "$(CHAPTER)$(RECORD)$(BUDGET)$(DRY)" || { echo "Name a chapter: make record CHAPTER=vision_transformer SCALE=laptop"; exit 2; }
	@$(BIN)/python -m vitlab.lab record $(CHAPTER) $(if $(RECORD),--record $(RECORD)) --scale $(SCALE) $(if $(BUDGET),--budget $(BUDGET)) $(if $(DRY),--dry-run)

manifest: $(READY) ## list the records anew in data/manifest.json
	@$(BIN)/python -m vitlab.lab manifest

serve: book ## build the book and show it at http://localhost:8000
	@$(BIN)/python -m http.server --bind localhost --directory _build/html 8000

clean: ## delete what was built; the environment stays (rm -r .venv deletes it)
	@rm -rf _build
