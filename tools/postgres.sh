#!/usr/bin/env bash
# Make sure that PostgreSQL's server binaries, and PgBouncer's, are on this machine. The tests start their own servers from
# them, on sockets and directories of their own; no system cluster is made or touched, and no service is started.
# Not root and none there: says what to type and ends well. The tests that need it then skip, and fail under CI=true.
set -euo pipefail

has_server() {
    local dir
    for dir in $(dirname "$(command -v initdb || echo /)") /usr/lib/postgresql/*/bin; do
        [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return
    done
    return 1
}

has_pooler() { command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]; }

has_server && has_pooler && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    {
        echo "setup-postgres: no PostgreSQL server or no PgBouncer here, so the tests that need them will be skipped; to run them:"
        echo
        echo "  Debian, Ubuntu   sudo apt-get install postgresql pgbouncer"
        echo "  Fedora, RHEL     sudo dnf install postgresql-server pgbouncer"
        echo "  macOS            brew install pgbouncer postgresql@17 && export PATH=\"\$(brew --prefix postgresql@17)/bin:\$PATH\""
    } >&2
    exit 0
fi

echo "setup-postgres: installing postgresql and pgbouncer with apt-get" >&2
# Debian's packages would also create and start a cluster on port 5432, and start a pooler, which nobody asked for.
hint=/etc/postgresql-common/createcluster.d/pakka-setup.conf
policy=/usr/sbin/policy-rc.d
mkdir -p "$(dirname "$hint")"
echo "create_main_cluster = false" >"$hint"
if [ -e "$policy" ]; then
    trap 'rm -f "$hint"' EXIT
else
    trap 'rm -f "$hint" "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
log=$( (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql pgbouncer) 2>&1 ) ||
    { echo "$log" >&2; exit 1; }
has_server && has_pooler || { echo "setup-postgres: postgresql and pgbouncer were installed, but their programs are not to be found" >&2; exit 1; }
