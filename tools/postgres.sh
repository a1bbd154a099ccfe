#!/usr/bin/env bash
# Make sure that PostgreSQL's server binaries are on this machine. The tests start their own server from them, on a
# socket and a data directory of their own; no system cluster is made or touched.
# Not root and none there: says what to type and ends well. The tests that need it then skip, and fail under CI=true.
set -euo pipefail

has_server() {
    local dir
    for dir in $(dirname "$(command -v initdb || echo /)") /usr/lib/postgresql/*/bin; do
        [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return
    done
    return 1
}

has_server && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    {
        echo "setup-postgres: no PostgreSQL server here, so the tests marked \`postgres\` will be skipped; to run them:"
        echo
        echo "  Debian, Ubuntu   sudo apt-get install postgresql"
        echo "  Fedora, RHEL     sudo dnf install postgresql-server"
        echo "  macOS            brew install postgresql@17 && export PATH=\"\$(brew --prefix postgresql@17)/bin:\$PATH\""
    } >&2
    exit 0
fi

echo "setup-postgres: installing postgresql with apt-get" >&2
# Debian's package would also create and start a cluster on port 5432, which nobody asked for.
hint=/etc/postgresql-common/createcluster.d/pakka-setup.conf
mkdir -p "$(dirname "$hint")"
trap 'rm -f "$hint"' EXIT
echo "create_main_cluster = false" >"$hint"
log=$( (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql) 2>&1 ) ||
    { echo "$log" >&2; exit 1; }
has_server || { echo "setup-postgres: postgresql was installed, but initdb and postgres are not to be found" >&2; exit 1; }
