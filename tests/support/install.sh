# Sourced by the scripts beside the tests: installs what they need from Debian, if it is missing.

install() { # install COMMAND-OR-FILE PACKAGE…
    local wanted=$1
    shift
    if command -v "$wanted" >/dev/null 2>&1 || [ -e "$wanted" ]; then return; fi
    local root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "$0: $wanted is missing and this is no Debian: install $* by hand" >&2
        exit 2
    fi
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# PostgreSQL, with the clients that the outbox is written through. The tests start a server of their own; the one that
# Debian's package would start beside it is not wanted.
install_postgres() {
    local found
    found=$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | head -n 1 || true)
    if [ -z "$found" ] && [ ! -e /etc/postgresql-common/createcluster.conf ] && [ "$(id -u)" = 0 ]; then
        mkdir -p /etc/postgresql-common
        echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    fi
    install "${found:-/no/such/file}" postgresql
    install psql postgresql-client
    /usr/bin/python3 -c 'import psycopg' 2>/dev/null || install /no/such/file python3 python3-psycopg
}

# promtool, which Debian has in the package of Prometheus. The server that the package would start is not wanted.
install_promtool() {
    if command -v promtool >/dev/null 2>&1; then return; fi
    local policy=/usr/sbin/policy-rc.d
    if [ "$(id -u)" = 0 ] && [ ! -e "$policy" ]; then
        # What Debian asks before a package starts its service (invoke-rc.d, deb-systemd-invoke): 101 is no.
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' RETURN
    fi
    install promtool prometheus
}
