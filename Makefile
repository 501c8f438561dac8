# `make demo` and `make test` do all their set-up themselves: they need Python, make and
# a way to install Python packages. What they set up is in .venv, except for what comes
# from apt: python3-venv where it is missing, Java 17, and for `make test` prosody, ejabberd,
# openssl, strace, iproute2, systemd, chromium, mosquitto, rabbitmq-server, nats-server, npm,
# nginx-light, haproxy, tmux, profanity, python3-qpid-proton,
# and gcc with the headers of Python, which build the engine of the AMQP gateway.

# The first Python that is new enough; or say `make PYTHON=/path/to/python3 …`.
PYTHON ?= $(firstword $(foreach python,python3 python3.14 python3.13 python3.12 python3.11, \
  $(shell $(python) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && echo $(python))))
# How many tests run at once; 0 for one after the other, in this process. One more than
# there are cores: some wait for a server or for time to pass.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# How many lists of stanzas `make fuzz` tries on each handler.
EXAMPLES ?= 1000
# How many seeds `make simulate` runs.
SEEDS ?= 2000
# How many states of a disk `make power-cut` opens.
STATES ?= 500
# For example: make test PYTEST_ARGS='--durations=20'.
PYTEST_ARGS ?=
# The Pythons of `make matrix`.
VERSIONS ?= 3.11 3.12 3.13 3.14 3.15

# The tests of `make quick`: no server, no Java, no extra, and 90 s on two cores.
QUICK := $(addprefix tests/,core engine stream xep_qos xep_0254 xep_0337) \
  --ignore=tests/engine/test_two_engines.py
# And those of `make light-test`, which take longer.
LIGHT := $(addprefix tests/,core engine stream xep_qos xep_0254 xep_0337 stores journal client worker)
HERE_ONLY := -m 'not long and not xmpp'

BIN := .venv/bin
# What tries to break it is not installed.
HARNESS = PYTHONPATH="$(CURDIR)/tests/harness" $(BIN)/python
# What apt asks before it starts a daemon: see invoke-rc.d(8).
POLICY := /usr/sbin/policy-rc.d
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Most of what is installed is never imported; Python compiles what is. By pip's manual
# such an option is on when its variable is off.
export PIP_NO_COMPILE := 0
# And keeps it: else each of the hundreds of processes of the tests compiles it again.
unexport PYTHONDONTWRITEBYTECODE

# Of `make looks`.
LOOKS ?= 100

# Of `make readers`.
READS ?= 10000
KILLS ?= 8

# Of `make depth`: the waiting items of its queues, and their delay in seconds.
DEPTHS ?= 0 100000 1000000
DELAY ?= 0

# Of `make sinks`: kills with each number of partitions.
SINK_KILLS ?= 20

# Messages posted by HTTP to a device, and kills of the service meanwhile.
SENDS ?= 3000
SEND_KILLS ?= 40

# Of `make pushes`: messages in both directions, and kills of one service or both.
PUSHES ?= 2000
PUSH_KILLS ?= 30

# Of `make flood`: seconds of each attack on the doors.
FLOOD_SECONDS ?= 10

# Of `make campaign`, `make proxied` and `make soak`.
MINUTES ?= 10
HOURS ?= 1
CAMPAIGN_ARGS ?=

.PHONY: help demo light quick light-test matrix test test-all docs simulate campaign soak power-cut bench bench-guard calls house fuzz flood slow depth scale looks readers sinks sends pushes proxied newest check format clean system installed java compiler

help:
	@echo 'make demo         see it work: a bad link, killed workers, an audit; no server needed'
	@echo 'make light        the .venv of a contributor: no Java, no C compiler, no server; a minute'
	@echo 'make quick        format, lint, and the tests that need no server: nearly everything in 90 s'
	@echo 'make light-test   all tests that need no server, no Java and no extra; some minutes'
	@echo 'make matrix       light-test on each Python found here, of $(VERSIONS)'
	@echo 'make test         the gate: check, docs, every branch of the core, every test that is not long'
	@echo 'make test-all     the gate with the long tests: clusters, many kills, typed pages, mutants'
	@echo 'make campaign     try to break it, with real servers and processes, MINUTES=10'
	@echo 'make soak         the same with steady traffic, to see that nothing grows, HOURS=1'
	@echo 'make simulate     $(SEEDS) seeds of the simulation, and its mutants; or SEEDS=100000'
	@echo 'make power-cut    open the stores in all that a power cut may leave, STATES=$(STATES)'
	@echo 'make bench        speed and cost, beside the fastest possible and others: BENCH_ARGS=--help'
	@echo 'make bench-guard  it has not become slower beside its floor, in a minute'
	@echo 'make calls        which calls and modules of our own an assured message takes, and an item by XMPP and by HTTP'
	@echo 'make house        the size of the house: lines, long files, names that say nothing'
	@echo 'make fuzz         hostile stanzas, as many lists as you like: make fuzz EXAMPLES=10000'
	@echo 'make flood        50 senders at 10 times their quotas, and what strangers do at the doors'
	@echo 'make slow         what slow links and servers cost, beside what is needed; some minutes'
	@echo 'make scale        what an audit costs as files, bytes or days of history grow'
	@echo 'make looks        what the hundredth look of audit --follow costs; half an hour'
	@echo 'make docs         the guide, in build/docs/index.html; each warning is an error'
	@echo 'make depth        what a queue costs that holds $(DEPTHS) items'
	@echo 'make readers      $(READS) reads beside audits that are killed, each read a whole audit'
	@echo 'make sinks        $(SINK_KILLS) kills of a Spark driver between a sink and the commit: each row once'
	@echo 'make sends        $(SENDS) messages posted to a device, $(SEND_KILLS) kills, answers lost: each once'
	@echo 'make pushes       $(PUSHES) messages between two services, $(PUSH_KILLS) kills, answers lost: each once'
	@echo 'make proxied      a day of work behind nginx and haproxy, in MINUTES=10: no dead item'
	@echo 'make newest       with the newest slixmpp: does anything that we use of it differ?'
	@echo 'make check        format, lint, types and the order of imports only'
	@echo 'make format       rewrite the sources as check wants them'
	@echo 'make clean        remove all that was built, .venv included'

# Where there is no Java, and none can be installed, it says so and leaves the audit out.
demo: .venv/runtime.stamp
	@$(MAKE) --no-print-directory java || :
	$(BIN)/xmpp-qos demo

light: .venv/light.stamp

quick: .venv/light.stamp
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pytest -n $(JOBS) $(HERE_ONLY) $(PYTEST_ARGS) $(QUICK)

light-test: .venv/light.stamp
	$(BIN)/pytest -n $(JOBS) $(HERE_ONLY) $(PYTEST_ARGS) $(LIGHT)

# Each has an environment of its own in build/matrix. For example: make matrix VERSIONS=3.13.
matrix:
	@test -n '$(PYTHON)' || { echo 'Please install Python 3.11 or later, then try again.' >&2; exit 1; }
	@$(PYTHON) tests/harness/matrix.py build/matrix $(VERSIONS) \
	  -- -n $(JOBS) $(HERE_ONLY) $(PYTEST_ARGS) $(LIGHT)

# What is red or unsteady, and where the time went, is on the last page that it prints. It
# dies with this make, so there is no shell between them.
test: installed
	@exec env $(HARNESS) -m gate --jobs $(JOBS) -- $(PYTEST_ARGS)

# Those that take long too: on a cluster, under many kills, on two servers, typed pages.
test-all: installed
	@exec env $(HARNESS) -m gate --all --jobs $(JOBS) -- $(PYTEST_ARGS)

# The guide and the reference of the API. Its pages are read by the tests of tests/docs.
docs: .venv/dev.stamp
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky --jobs auto \
	  -d build/doctrees docs build/docs

# For example: make campaign MINUTES=60 CAMPAIGN_ARGS='--server ejabberd --seed 7'.
campaign: system .venv/dev.stamp
	$(HARNESS) -m campaign --minutes $(MINUTES) $(CAMPAIGN_ARGS)

# Beside nothing else: its traffic is half of what the machine can do.
soak: system .venv/dev.stamp
	$(HARNESS) -m campaign --soak --hours $(HOURS) --plot soak.svg $(CAMPAIGN_ARGS)

# Any number of seeds, and whether it would have found what is wrong on purpose.
simulate: .venv/dev.stamp
	$(HARNESS) -m simulation --seeds $(SEEDS)
	$(HARNESS) -m simulation --mutants

# What a power cut may leave, from what strace has recorded.
power-cut: system .venv/dev.stamp
	$(HARNESS) -m power_cut --states $(STATES)

# Beside nothing else. For example: make bench BENCH_ARGS='--floor --peers --windows 64'.
bench: system .venv/dev.stamp
	$(HARNESS) -m benchmarks $(BENCH_ARGS)

# After the tests, and not beside them: it needs the machine for itself.
bench-guard: .venv/dev.stamp
	$(HARNESS) -m benchmarks guard

# The same whatever else the machine does: calls are counted, no time is measured.
calls: .venv/dev.stamp
	$(BIN)/python tests/bench/calls.py

# Lines, files, long functions, names that say nothing, and the way of a message.
house: .venv/dev.stamp
	$(HARNESS) -m house
	$(BIN)/python tests/bench/calls.py | grep modules$$

# Each handler gets as many lists of stanzas. A list that fails is made as short as can be.
fuzz: .venv/dev.stamp
	EXAMPLES=$(EXAMPLES) $(BIN)/pytest -n $(JOBS) --timeout 0 $(PYTEST_ARGS) tests/hostile/test_fuzz.py

# Beside nothing else: it measures how long messages take.
flood: system .venv/dev.stamp
	$(HARNESS) -m benchmarks.flood
	$(HARNESS) -m doors --seconds $(FLOOD_SECONDS)

# Beside nothing else: links of 3 to 100 kB/s, far servers, and the limits that servers ship.
slow: system .venv/dev.stamp
	$(HARNESS) -m slow $(SLOW_ARGS)

# Beside nothing else: queues of DEPTHS items, which wait on disk. A million takes a minute.
depth: .venv/dev.stamp
	$(HARNESS) -m benchmarks.depth --delay $(DELAY) $(DEPTHS)

# What an audit costs as files, bytes or days grow, each by itself; some minutes.
scale: .venv/dev.stamp java
	$(HARNESS) tests/spark/scale.py

# What the looks of a follower cost, each with another hour of journals: LOOKS of them.
looks: .venv/dev.stamp java
	$(HARNESS) tests/spark/looks.py $(LOOKS)

# Reads without a pause, beside audits that are killed: READS of them, and KILLS.
readers: .venv/dev.stamp java
	READS=$(READS) KILLS=$(KILLS) $(BIN)/pytest -n 0 -s --no-header tests/spark/test_reader.py

# Both sinks, with 1, 2, 4 and 7 partitions at a time. Half a minute for each kill.
sinks: .venv/dev.stamp java
	SINK_KILLS=$(SINK_KILLS) $(BIN)/pytest -n 0 -s --no-header tests/spark/test_sink_kills.py

# Each of them is handed over once, whatever those who posted it have heard.
sends: .venv/dev.stamp
	SENDS=$(SENDS) SEND_KILLS=$(SEND_KILLS) $(BIN)/pytest -n 0 -s --no-header tests/rest/test_send_kills.py

# Two services push to each other; each message comes once.
pushes: .venv/dev.stamp
	PUSHES=$(PUSHES) PUSH_KILLS=$(PUSH_KILLS) $(BIN)/pytest -n 0 -s --no-header tests/rest/test_push_kills.py

# A worker, a push target and the service behind the proxies that people have, restarts included.
proxied: system .venv/dev.stamp
	$(HARNESS) -m proxied --minutes $(MINUTES)

# With the newest slixmpp that there is, in a folder of its own: what fails is what differs.
newest: system .venv/dev.stamp
	rm -rf build/newest
	$(BIN)/pip install --quiet --no-deps --upgrade --target build/newest slixmpp
	PYTHONPATH="$(CURDIR)/build/newest" $(BIN)/python -c 'import slixmpp; print("slixmpp", slixmpp.__version__)'
	PYTHONPATH="$(CURDIR)/build/newest" $(BIN)/pytest -n $(JOBS) -m 'not long' $(PYTEST_ARGS) \
	  $(addprefix tests/,stream client xep_qos xep_0254 xep_0337 worker)

check: .venv/dev.stamp
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: .venv/dev.stamp
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*
	rm -rf build dist
	find qos plugins tests examples docs -name __pycache__ -prune -exec rm -rf {} +

# $(call apt-install,PACKAGES): install them in one step, or end with one line that says
# what to install. Nobody needs their daemons; and where there is no systemd, one that
# cannot be started makes the installation fail. So a policy that starts none, for as long
# as that takes.
define apt-install
{ if [ "$$(id -u)" = 0 ]; then root=; else root='sudo -n'; fi; \
  if command -v apt-get >/dev/null && $$root true 2>/dev/null; then \
    printf 'Installing the Debian package %s.\n' $(1); \
    if [ ! -e $(POLICY) ]; then \
      trap "$$root rm -f $(POLICY)" EXIT; trap 'exit 1' HUP INT TERM; \
      printf '#!/bin/sh\nexit 101\n' | $$root tee $(POLICY) >/dev/null; \
      $$root chmod 755 $(POLICY); \
    fi; \
    $$root apt-get update -qq; \
    $$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
      --no-install-recommends -o DPkg::Lock::Timeout=120 $(1) >/dev/null; \
  else false; fi || { echo "Please install $(strip $(1)) (on Debian: apt-get install $(strip $(1))), then try again." >&2; exit 1; }; }
endef

# What the tests run: a command that is there if its Debian package is.
COMMANDS := java:openjdk-17-jre-headless prosody:prosody ejabberdctl:ejabberd \
  openssl:openssl strace:strace ip:iproute2 systemd-analyze:systemd chromium:chromium \
  mosquitto:mosquitto rabbitmq-server:rabbitmq-server nats-server:nats-server npm:npm \
  nginx:nginx-light haproxy:haproxy tmux:tmux profanity:profanity

system:
	@missing=; PATH="$$PATH:/usr/sbin"; \
	for each in $(COMMANDS); do \
	  command -v $${each%%:*} >/dev/null || missing="$$missing $${each#*:}"; \
	done; \
	! command -v dpkg >/dev/null || dpkg -s python3-venv >/dev/null 2>&1 || missing="$$missing python3-venv"; \
	/usr/bin/python3 -c 'import proton' 2>/dev/null || missing="$$missing python3-qpid-proton"; \
	$(MISSING_COMPILER); \
	test -z "$$missing" || $(call apt-install,$$missing)

# All that the tests need.
installed: system .venv/dev.stamp .venv/spark.jsa .venv/rhea.stamp .venv/schemathesis.stamp

# The extra `[amqp]` comes as source.
MISSING_COMPILER = command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
	test -z '$(PYTHON)' || $(PYTHON) -c 'import os, sysconfig; \
	  raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
	  || missing="$$missing $(notdir $(PYTHON))-dev"

compiler:
	@missing=; $(MISSING_COMPILER); test -z "$$missing" || $(call apt-install,$$missing)

java:
	@command -v java >/dev/null || $(call apt-install,openjdk-17-jre-headless)

# Without python3-venv, Debian's python3 has no ensurepip: `-m venv` fails, and leaves
# half a .venv behind, without pip.
.venv/bin/pip:
	@test -n '$(PYTHON)' || { echo 'Please install Python 3.11 or later, then try again.' >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv >/dev/null 2>&1 || { \
	  $(call apt-install,$(notdir $(PYTHON))-venv) && $(PYTHON) -m venv --clear .venv; }

.venv/runtime.stamp: pyproject.toml | .venv/bin/pip
	@echo 'Installing Python packages into .venv.'
	$(BIN)/pip install --quiet --editable '.[spark]'
	@touch $@

# Without it the tests need longer, and nothing else.
.venv/spark.jsa: .venv/dev.stamp tests/spark/class_archive.py tests/conftest.py | java
	@$(HARNESS) tests/spark/class_archive.py $@ || echo 'The tests go on without $@.'

# rhea: AMQP 1.0 for JavaScript, a client that the gateway is tested with.
.venv/rhea.stamp: | .venv/bin/pip
	@npm install --silent --no-audit --no-fund --prefix .venv/rhea rhea@3.0.5
	@touch $@

# schemathesis: makes requests out of openapi.json. Some of what it needs is in our own
# environment in other versions.
.venv/schemathesis.stamp: | .venv/bin/pip
	@$(PYTHON) -m venv .venv/schemathesis
	@.venv/schemathesis/bin/pip install --quiet 'schemathesis>=4.32,<5'
	@touch $@

# `--group` needs pip 25.1, and Python 3.11 to 3.13 come with an older one.
.venv/light.stamp: pyproject.toml | .venv/bin/pip
	@echo 'Installing Python packages into .venv.'
	$(BIN)/pip install --quiet 'pip>=25.1'
	$(BIN)/pip install --quiet --editable . --group light
	@touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/pip compiler
	@echo 'Installing Python packages into .venv; the first time this takes some minutes.'
	$(BIN)/pip install --quiet 'pip>=25.1'
	$(BIN)/pip install --quiet --editable '.[spark,amqp,rest]' --group dev
	@touch $@ .venv/runtime.stamp .venv/light.stamp
