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
