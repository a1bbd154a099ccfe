#!/usr/bin/env bash
# Make sure that MariaDB's server binaries are on this machine. The tests start their own server from them, on a port and
# a data directory of their own; no system server is made or touched.
# Not root and none there: says what to type and ends well. The tests that need it then skip, and fail under CI=true.
set -euo pipefail

has_server() {
    command -v mariadb-install-db >/dev/null && command -v my_print_defaults >/dev/null || return 1
    command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || [ -x /usr/libexec/mariadbd ]
}

has_server && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    {
        echo "setup-mariadb: no MariaDB server here, so the tests marked \`mysql\` will be skipped; to run them:"
        echo
        echo "  Debian, Ubuntu   sudo apt-get install mariadb-server-core mariadb-client-core"
        echo "  Fedora, RHEL     sudo dnf install mariadb-server"
        echo "  macOS            brew install mariadb"
    } >&2
    exit 0
fi

echo "setup-mariadb: installing mariadb-server-core with apt-get" >&2
# The programs alone. Debian's `mariadb-server` would also make a data directory in /var/lib and start a server on port
# 3306, which nobody asked for.
packages=(mariadb-server-core mariadb-client-core)
log=$( (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}") 2>&1 ) ||
    { echo "$log" >&2; exit 1; }
has_server || { echo "setup-mariadb: ${packages[*]} were installed, but mariadbd is not to be found" >&2; exit 1; }
