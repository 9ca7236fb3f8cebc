# What building, testing and the examples need, and how Debian and Ubuntu provide it. To be sourced by bash from a
# script at the top of the tree; `require` is the way in. Nothing is installed that is there already, wherever it is from.
# shellcheck shell=bash

# What a group needs: a program, or a file (the first that matches), and the package that brings it.
needs() {
    case $1 in
    build)
        cat <<'END'
cc                                  gcc
/usr/lib/*/libc.a                   libc6-dev
make                                make
pkg-config                          pkg-config
/usr/lib/*/libelf.a                 libelf-dev
/usr/lib/*/libz.a                   zlib1g-dev
clang                               clang
/etc/ssl/certs/ca-certificates.crt  ca-certificates
END
        ;;
    guests)
        cat <<'END'
qemu-system-x86_64                  qemu-system-x86
mkfs.ext4                           e2fsprogs
mkfs.xfs                            xfsprogs
depmod                              kmod
xz                                  xz-utils
zstd                                zstd
busybox                             busybox-static
END
        ;;
    peers)
        cat <<'END'
strace                              strace
perf                                linux-perf
/usr/sbin/syscount*                 libbpf-tools
END
        ;;
    workload)
        cat <<'END'
sqlite3                             sqlite3
END
        ;;
    esac
}

# Set by who is not asked whether apt may remove a package for those that it installs.
may_remove=''

# What is to be fetched besides packages, a line each; scripts may add to it before they call `require`.
downloads=()

# Programs that only root usually needs are not in everybody's search path.
PATH="$PATH:/usr/sbin:/sbin"

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

# Runs a command as root.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        printf 'error: this needs root, and there is no sudo: %s\n' "$*" >&2
        return 1
    fi
}

# Called by sudo, a script goes on as the user who called it when the source is theirs, so that what is built and cached
# belongs to them; single commands then ask for root.
drop_root() {
    local owner
    owner=$(stat -c %U .)
    if [ "$(id -u)" -eq 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ] && [ "$owner" = "$SUDO_USER" ]; then
        exec runuser -u "$owner" -- env HOME="$(getent passwd "$owner" | cut -d: -f6)" "$@"
    fi
}

# The version of a package that apt would install; nothing when there is none.
candidate() {
    LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v -F '(none)' || true
}

# Debian's order of versions, which fits those of Rust.
at_least() {
    [ -n "$1" ] && dpkg --compare-versions "$1" ge "$2"
}

# The oldest Rust that builds the tool.
rust_needed() {
    sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml
}

# Whether the search path has a Rust of at least version $1. A rustup without a toolchain answers nothing.
rust_fits() {
    local tool version
    for tool in cargo rustc; do
        version=$("$tool" --version 2>/dev/null | cut -d' ' -f2) || true
        at_least "$version" "$1" || return 1
    done
}

# The packages of a Rust of at least version $1, the distribution's own before the one it keeps for its browsers before
# rustup, which fetches a toolchain of its own. Fails when none fits.
rust_packages() {
    local suffix
    for suffix in '' -web; do
        if at_least "$(candidate "rustc$suffix")" "$1" && at_least "$(candidate "cargo$suffix")" "$1"; then
            printf '%s\n' "cargo$suffix" "rustc$suffix"
            return
        fi
    done
    [ -n "$(candidate rustup)" ] && echo rustup
}

# The packages of rustfmt and clippy that go with the package $1 of cargo.
lint_packages() {
    case $1 in
    cargo) printf '%s\n' rustfmt rust-clippy ;;
    cargo-web) printf '%s\n' rustfmt-web rust-web-clippy ;;
    esac
}

# The package that the cargo in the search path is from; nothing when it is from none.
cargo_package() {
    dpkg-query -S "$(readlink -f "$(command -v cargo)")" 2>/dev/null | cut -d: -f1
}

# Packages of a table of needs (on stdin) that are missing here.
missing_packages() {
    local need package
    while read -r need package; do
        case $need in
        /*) compgen -G "$need" >/dev/null || echo "$package" ;;
        *) command -v "$need" >/dev/null || echo "$package" ;;
        esac
    done
}

# Finds what is missing of the groups named: fills `packages`, and `toolchain` with what rustup is to do about Rust. Fails
# when no Rust that fits can be had.
find_missing() {
    local group rust
    packages=()
    toolchain=()
    for group; do
        add_packages < <(needs "$group" | missing_packages)
    done
    rust_fits "$needed" || PATH="$HOME/.cargo/bin:$PATH"
    if rust_fits "$needed"; then
        if lint_is_wanted "$@" && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
            add_packages < <(lint_packages "$(cargo_package)")
            ! command -v rustup >/dev/null || toolchain=(rustup component add rustfmt clippy)
        fi
        return
    fi
    if ! command -v rustup >/dev/null; then
        rust=$(rust_packages "$needed") || return
        add_packages <<<"$rust"
        if [ "$rust" != rustup ]; then
            ! lint_is_wanted "$@" || add_packages < <(lint_packages "${rust%%$'\n'*}")
            return
        fi
    fi
    toolchain=(rustup toolchain install stable --profile minimal --component 'rustfmt,clippy')
}

lint_is_wanted() {
    [[ " $* " == *' lint '* ]]
}

add_packages() {
    mapfile -t -O "${#packages[@]}" packages
}

# Whether apt has a candidate for all that is to be installed.
apt_knows_all() {
    local package
    for package in "${packages[@]}"; do
        [ -n "$(candidate "$package")" ] || return 1
    done
}

# Says what is to be fetched and how much, and asks whether to go on when there is somebody to ask.
announce() {
    local answer line
    if [ "${#packages[@]}" -gt 0 ]; then
        echo 'To be installed by apt-get:'
        fold -s -w 78 <<<"${packages[*]}" | sed 's/^/  /; s/ $//'
        # The dry run answers "no" to apt's own question, and fails therefore.
        LC_ALL=C apt-get -o Debug::NoLocking=1 install --no-install-recommends --assume-no "${packages[@]}" 2>&1 |
            awk '/^[^ ]/ { removed = /will be REMOVED/ } removed || /^[0-9]+ upgraded|^Need to get|^After this/ { print "  " $0 }' || true
    fi
    for line in "${downloads[@]}"; do
        echo "To be downloaded: $line"
    done
    if [ -t 0 ]; then
        read -r -p 'Go on? [Y/n] ' answer || answer=n
        case $answer in
        '' | [Yy]*) ;;
        *) fail 'nothing was installed' ;;
        esac
    fi
}

install_packages() {
    # Nobody loses a package without having been asked, or having said so.
    local keep=(--no-remove)
    if [ -t 0 ] || [ -n "$may_remove" ]; then keep=(); fi
    echo 'Installing them.'
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${keep[@]}" \
        -o Dpkg::Use-Pty=0 "${packages[@]}" </dev/null >/dev/null
}

# Installs what is missing of Rust and of the groups named: build, guests, peers, workload, lint.
require() {
    local needed packages toolchain
    needed=$(rust_needed)
    if ! find_missing "$@" || ! apt_knows_all; then
        command -v apt-get >/dev/null ||
            fail "no apt-get here; install Rust >= $needed (rustup.rs) and what Debian packages as: ${packages[*]}"
        echo "Fetching apt's lists of packages."
        as_root apt-get -qq update || fail 'apt-get update failed'
        find_missing "$@" || fail "no package of Rust >= $needed here; install it from rustup.rs"
    fi
    if [ "${toolchain[1]:-}" = toolchain ]; then
        downloads+=('a stable Rust toolchain, by rustup: about 150 MB')
    fi
    if [ "${#packages[@]}" -gt 0 ] || [ "${#downloads[@]}" -gt 0 ]; then
        announce
    fi
    if [ "${#packages[@]}" -gt 0 ] && ! install_packages; then
        # The lists may be older than the archive.
        { as_root apt-get -qq update && install_packages; } ||
            fail "not installed: ${packages[*]} (what apt would remove for them, it removes only at a terminal)"
    fi
    if [ "${#toolchain[@]}" -gt 0 ]; then
        "${toolchain[@]}" || fail "this failed: ${toolchain[*]}"
        rust_fits "$needed" || export RUSTUP_TOOLCHAIN=stable
    fi
    rust_fits "$needed" || fail "Rust >= $needed is not to be found; install it from rustup.rs"
    downloads=()
}
