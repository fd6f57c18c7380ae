# The commands of this project. Each sets up what it needs in .venv and ./var first, and only what is missing there.

BIN := .venv/bin
CODE := transcriber records recognition topics tests manage.py
# The first Python that is new enough; the one of .venv where it is there.
PYTHONS := $(BIN)/python python3.13 python3.12 python3.11 python3 python
set_up = @for python in $(PYTHONS); do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then exec $$python transcriber/set_up.py $(1); fi; done; \
	echo "Set-up: no Python 3.11 or newer was found; install one and run this again." >&2; exit 1

.PHONY: help demo demo-speechkit run test check fix messages lock screenshots bench clean runtime dev
.NOTPARALLEL:

help:
	@echo 'make demo    send a bundled recording through the whole service and show its transcript'
	@echo 'make demo-speechkit   the same with SpeechKit as the provider, played by a stand-in: no account, no network'
	@echo 'make run     the service: web, API, admin and workers on http://127.0.0.1:$$PORT (8000)'
	@echo 'make test    everything that is checked: style, types, imports, and the tests on SQLite and PostgreSQL'
	@echo 'make check   the checks without the tests'
	@echo 'make fix     mend what the checks can mend'
	@echo 'make messages   collect what people read here, for its translation'
	@echo 'make lock    write the lock files from pyproject.toml'
	@echo 'make bench   measure (BENCH="..." passes arguments on)'
	@echo 'make screenshots   walk through the console in Chromium and take the pictures of docs/console'
	@echo 'make clean   remove caches; .venv and var stay'

# One command each, so that a signal to make reaches the service and nothing is left behind.
demo: runtime
	@exec $(BIN)/python -m transcriber.demo

demo-speechkit: dev
	@exec $(BIN)/python -m tests.fakes.speechkit_demo

run: runtime
	@exec $(BIN)/python manage.py serve

test: check
	@echo '== tests on SQLite'
	$(BIN)/pytest $(PYTEST)
	@echo '== tests on PostgreSQL'
	TEST_DATABASE=postgres $(BIN)/pytest -m 'not no_database' $(PYTEST)

# Tests are spread over the cores; a test that starts real processes has its xdist group to itself.
PYTEST ?= -q -n auto --dist loadgroup

check: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(BIN)/pytest -q -p no:cacheprovider tests/architecture/test_locks.py
	@set -e; data=$$(mktemp -d); trap 'rm -rf "$$data"' EXIT; touch "$$data/none.toml"; unset DATABASE_URL; \
	export TRANSCRIBER_DATA="$$data" TRANSCRIBER_CONFIG="$$data/none.toml" TRANSCRIBER_WEB_HTTPS=true TRANSCRIBER_WEB_PROXIES=1 TRANSCRIBER_WEB_ALLOWED_HOSTS=example.org; \
	set -x; $(BIN)/python manage.py makemigrations --check --dry-run; \
	$(BIN)/python manage.py check --deploy --fail-level WARNING

fix: dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

messages: dev
	@exec $(BIN)/python -m tests.messages

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate pyproject.toml
lock: dev
	$(COMPILE) -o requirements.lock
	$(COMPILE) --extra dev -c requirements.lock -o requirements-dev.lock

screenshots: dev
	@exec $(BIN)/python -m tests.acceptance.walk

bench: dev
	@exec $(BIN)/python -m tests.bench $(BENCH)

clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build *.egg-info
	find $(filter-out %.py,$(CODE)) -name __pycache__ -prune -exec rm -rf {} +

runtime:
	$(call set_up,runtime)

dev:
	$(call set_up,dev)
