#!/usr/bin/env bash
# Resolve pyproject.toml into requirements.lock, and the tools that install it into tools/bootstrap.txt.
#
# One lock for the core, every extra and the development tools, for every platform and Python >= 3.11, with hashes. It is
# a requirements file and not uv.lock because uv.lock records the address of the index it was resolved from; where
# packages come from is the business of the machine's own client configuration.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uv=.venv/bin/uv
[ -x "$uv" ] || { echo "lock: .venv is missing; run \`make setup\` first" >&2; exit 1; }

compile() {
    UV_CUSTOM_COMPILE_COMMAND="make lock" "$uv" pip compile --quiet --universal --generate-hashes \
        --python-version 3.11 --no-emit-index-url --no-emit-find-links "$@"
}

compile "$@" --all-extras --group dev pyproject.toml --output-file requirements.lock
# setuptools is there to build pyspark, which is published as source only.
printf 'uv\nsetuptools\n' | compile "$@" --no-annotate - --output-file tools/bootstrap.txt
