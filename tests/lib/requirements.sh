# Requirements of building, testing and the examples, and how Debian and Ubuntu provide them. To be sourced by bash from
# a script at the top of the tree; `require` is the entry point. Installed programs are used, wherever they are from;
# nothing is ever removed. Packages that conflict with installed ones, and all packages if there is no root, are
# unpacked into the cache.
# shellcheck shell=bash

# The needs of a group: a program, or a file (the first match), and its package.
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
    fuzz)
        cat <<'END'
c++                                 g++
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
    arm64)
        cat <<'END'
aarch64-linux-gnu-gcc               gcc-aarch64-linux-gnu
aarch64-linux-gnu-gcc               libc6-dev-arm64-cross
qemu-system-aarch64                 qemu-system-arm
END
        ;;
    peers)
        cat <<'END'
strace                              strace
perf                                linux-perf
/usr/sbin/syscount*                 libbpf-tools
END
        ;;
    exports)
        cat <<'END'
babeltrace2                         babeltrace2
blkparse                            blktrace
fio                                 fio
otf2-print                          otf2-tools
python3                             python3
/usr/lib/python3*/ensurepip         python3-venv
END
        ;;
    analyses)
        cat <<'END'
lttng-iolatencystats                python3-lttnganalyses
END
        ;;
    metrics)
        cat <<'END'
promtool                            prometheus
systemd-analyze                     systemd
END
        ;;
    trees)
        cat <<'END'
debootstrap                         debootstrap
END
        ;;
    pages)
        cat <<'END'
chromium                            chromium
END
        ;;
    shells)
        cat <<'END'
zsh                                 zsh
fish                                fish
/usr/share/bash-completion/bash_completion  bash-completion
END
        ;;
    workload)
        cat <<'END'
sqlite3                             sqlite3
strace                              strace
END
        ;;
    esac
}

# Downloads besides packages, a line each; scripts may append to it before they call `require`.
downloads=()

# Programs for root may not be in the search path of other users.
PATH="$PATH:/usr/sbin:/sbin"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/iostackbreakdown
# Unpacked packages, for this release of the distribution: their files in root/, wrappers of their programs in bin/.
unpacked=$cache/unpacked/$( (. /etc/os-release && echo "$ID-${VERSION_ID:-}") 2>/dev/null || echo any)

# Apt's directory of package lists: its own, or one in the cache if it has none and there is no root.
lists=/var/lib/apt/lists
# A slow mirror is not worth waiting for, and questions cannot be answered.
patience=(-o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30)

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

# Prints why `require` fails.
refuse() {
    printf 'error: %s\n' "$1" >&2
    return 1
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

# Whether `as_root` works: a password is only requested at a terminal.
may_be_root() {
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null || return 1
    if [ -t 0 ]; then sudo -v; else sudo -n true 2>/dev/null; fi
}

# Under sudo, a script continues as the calling user if the source belongs to that user, so that build products and the
# cache do as well; single commands then use sudo.
drop_root() {
    local owner
    owner=$(stat -c %U .)
    if [ "$(id -u)" -eq 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ] && [ "$owner" = "$SUDO_USER" ]; then
        exec runuser -u "$owner" -- env HOME="$(getent passwd "$owner" | cut -d: -f6)" "$@"
    fi
}

# The cause of a failure, from the output of a program (on stdin), in a line with what to do. $1: where it wrote to.
cause() {
    local said line
    local network='Could not resolve|Temporary failure|Could not connect|Unable to connect|Network is unreachable|Connection (failed|timed out)|Failed to fetch|failed to download|Unable to fetch|Unable to locate|no installation candidate'
    said=$(cat)
    if grep -qiE 'no space left on device|enough free space|disk quota exceeded' <<<"$said"; then
        line="the disk is full: $(df -h --output=avail,target "$1" 2>/dev/null | awk 'NR == 2 { print $1 " free on " $2 }'); make room"
    elif line=$(grep -m 1 -E "$network" <<<"$said"); then
        line="$(without_marks "$line"); check the network and apt's sources"
    else
        line=$(grep -m 1 -E '^(E:|error)' <<<"$said") || line=$(tail -n 1 <<<"$said")
        without_marks "$line"
        return
    fi
    echo "$line and start this again: what is done stays done"
}

without_marks() {
    sed -E 's/^ *(Err:[0-9]+|[EW]:|error:?)? *//' <<<"$1" | cut -c 1-150
}

# The version of a package that apt would install; empty if there is none.
candidate() {
    LC_ALL=C apt-cache -o Dir::State::lists="$lists" policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v -F '(none)' || true
}

# Compares versions in Debian's order, which is also right for Rust's.
at_least() {
    [ -n "$1" ] && dpkg --compare-versions "$1" ge "$2"
}

# The minimum version of Rust.
rust_needed() {
    sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml
}

# Whether the search path has Rust of at least version $1. rustup without a toolchain prints nothing.
rust_fits() {
    local tool version
    for tool in cargo rustc; do
        version=$("$tool" --version 2>/dev/null | cut -d' ' -f2) || true
        at_least "$version" "$1" || return 1
    done
}

# The packages of Rust of at least version $1: preferably the distribution's own, then the one kept for its browsers,
# then rustup, which downloads a toolchain. Fails if none is available.
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

# The packages of rustfmt and clippy that match the package $1 of cargo.
lint_packages() {
    case $1 in
    cargo) printf '%s\n' rustfmt rust-clippy ;;
    cargo-web) printf '%s\n' rustfmt-web rust-web-clippy ;;
    esac
}

# The package of the cargo in the search path; empty if it is from none.
cargo_package() {
    local cargo package
    cargo=$(readlink -f "$(command -v cargo)")
    if [ "$cargo" != "$unpacked/bin/cargo" ]; then
        dpkg-query -S "$cargo" 2>/dev/null | cut -d: -f1
        return
    fi
    for package in cargo cargo-web; do
        [ ! -d "$unpacked/root/usr/share/doc/$package" ] || echo "$package"
    done
}

# The missing packages of a table of needs (on stdin).
missing_packages() {
    local need package
    while read -r need package; do
        case $need in
        /*) compgen -G "$need" >/dev/null || compgen -G "$unpacked/root$need" >/dev/null || echo "$package" ;;
        *) command -v "$need" >/dev/null || echo "$package" ;;
        esac
    done
}

# Finds what the named groups lack: sets `packages`, and `toolchain` to what rustup must do. Fails if no suitable Rust
# is available.
find_missing() {
    local group rust
    packages=()
    toolchain=()
    for group; do
        add_packages < <(needs "$group" | missing_packages)
    done
    is_among build "$@" || return 0
    rust_fits "$needed" || PATH="$HOME/.cargo/bin:$PATH"
    if rust_fits "$needed"; then
        if is_among lint "$@" && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
            add_packages < <(lint_packages "$(cargo_package)")
            ! command -v rustup >/dev/null || toolchain=(rustup component add rustfmt clippy)
        fi
        return
    fi
    if ! command -v rustup >/dev/null; then
        rust=$(rust_packages "$needed") || return
        add_packages <<<"$rust"
        if [ "$rust" != rustup ]; then
            ! is_among lint "$@" || add_packages < <(lint_packages "${rust%%$'\n'*}")
            return
        fi
    fi
    toolchain=(rustup toolchain install stable --profile minimal --component 'rustfmt,clippy')
}

# Whether a word is among the following ones.
is_among() {
    local word=$1
    shift
    [[ " $* " == *" $word "* ]]
}

add_packages() {
    mapfile -t -O "${#packages[@]}" packages
}

# Whether apt has candidates for all of `packages`. A single query, since apt may read its lists again for each.
apt_knows_all() {
    local known
    [ "${#packages[@]}" -gt 0 ] || return 0
    known=$(LC_ALL=C apt-cache -o Dir::State::lists="$lists" policy "${packages[@]}" 2>/dev/null | grep '^  Candidate: ' | grep -vcF '(none)')
    [ "$known" -eq "${#packages[@]}" ]
}

# Downloads apt's lists of packages, without root to the cache. `apt_said` is apt's output: a failing source is no error
# if the others have what is needed.
fetch_lists() {
    if may_be_root; then
        apt_said=$(as_root env LC_ALL=C apt-get "${patience[@]}" -q update 2>&1) || true
    else
        lists=$cache/apt/lists
        mkdir -p "$lists/partial"
        apt_said=$(LC_ALL=C apt-get "${own_apt[@]}" "${patience[@]}" -o Dir::State::lists="$lists" -q update 2>&1) || true
    fi
}

# Options for an apt that only changes its own directories in the cache.
own_apt=(
    -o Dir::Cache="$cache/apt/cache"
    -o APT::Sandbox::User=
    -o Acquire::Languages=none
    -o Debug::NoLocking=1
)

# Splits arguments at `--` into `options` and `operands`, which belong to the caller.
split_arguments() {
    options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    operands=("$@")
}

# What apt would do to install packages, with the options before `--`.
dry_run() {
    local options operands
    split_arguments "$@"
    LC_ALL=C apt-get -q -o Debug::NoLocking=1 -o Dir::State::lists="$lists" "${options[@]}" \
        --simulate install --no-install-recommends "${operands[@]}"
}

# The packages removed by a dry run (on stdin).
removed() {
    sed -n 's/^Remv \([^ :]*\).*/\1/p'
}

# Whether apt can install packages without removing any.
can_be_added() {
    local plan
    plan=$(dry_run -- "$@" 2>/dev/null) && [ -z "$(removed <<<"$plan")" ]
}

# Packages whose installation starts a service: they are unpacked.
with_service=(prometheus)

# Splits `packages` into those that apt installs and those that are unpacked.
choose_way() {
    local package rest=()
    to_install=()
    to_unpack=()
    if ! may_be_root; then
        to_unpack=("${packages[@]}")
        return
    fi
    for package in "${packages[@]}"; do
        if is_among "$package" "${with_service[@]}"; then to_unpack+=("$package"); else rest+=("$package"); fi
    done
    if [ "${#rest[@]}" -eq 0 ] || can_be_added "${rest[@]}"; then
        to_install=("${rest[@]}")
        return
    fi
    for package in "${rest[@]}"; do
        if can_be_added "$package"; then to_install+=("$package"); else to_unpack+=("$package"); fi
    done
    # Each may be installable alone, but not all together.
    if [ "${#to_install[@]}" -gt 0 ] && ! can_be_added "${to_install[@]}"; then
        to_unpack=("${packages[@]}")
        to_install=()
    fi
}

# dpkg's status file (on stdin) without the named packages.
status_without() {
    awk -v without=" $* " 'BEGIN { RS = ""; ORS = "\n\n" } index(without, " " $2 " ") == 0'
}

# Finds a package status with which apt removes nothing: the machine's own, or that without what apt would remove
# (`gone`), or an empty one. Stores it in the file `status`.
pretend() {
    local plan
    mkdir -p "$cache/apt"
    status=$cache/apt/status
    cp /var/lib/dpkg/status "$status"
    if plan=$(dry_run -o Dir::State::status="$status" -- "$@" 2>/dev/null); then
        gone=$(removed <<<"$plan" | xargs)
        [ -n "$gone" ] || return 0
        # shellcheck disable=SC2086
        status_without $gone </var/lib/dpkg/status >"$status"
        plan=$(dry_run -o Dir::State::status="$status" -- "$@" 2>/dev/null) && [ -z "$(removed <<<"$plan")" ] && return
    fi
    : >"$status"
}

why_unpacked() {
    if [ -n "$gone" ]; then
        echo "apt would remove $gone for them, and nothing is removed here"
    elif may_be_root; then
        echo 'apt cannot install them beside what is there, or would start a service'
    else
        echo 'only root can install them'
    fi
}

# Prints what will be downloaded and how much, and asks for confirmation at a terminal.
announce() {
    local answer line
    if [ "${#to_install[@]}" -gt 0 ]; then
        echo 'To be installed by apt-get:'
        describe -- "${to_install[@]}"
    fi
    if [ "${#to_unpack[@]}" -gt 0 ]; then
        pretend "${to_unpack[@]}"
        echo "To be unpacked into $unpacked, since $(why_unpacked):"
        describe -o Dir::State::status="$status" -- "${to_unpack[@]}"
    fi
    for line in "${downloads[@]}"; do
        echo "To be downloaded: $line"
    done
    if [ -t 0 ]; then
        read -r -p 'Go on? [Y/n] ' answer || answer=n
        case $answer in
        '' | [Yy]*) ;;
        *) refuse 'nothing was installed' ;;
        esac
    fi
}

# The packages, and apt's output about their size, with the options before `--`.
describe() {
    local options operands
    split_arguments "$@"
    fold -s -w 78 <<<"${operands[*]}" | sed 's/^/  /; s/ $//'
    # Apt's question is answered with "no", so it fails.
    LC_ALL=C apt-get -o Debug::NoLocking=1 -o Dir::State::lists="$lists" "${options[@]}" install --no-install-recommends \
        --assume-no "${operands[@]}" 2>&1 | sed -n '/^[0-9]* upgraded\|^Need to get\|^After this/s/^/  /p' || true
}

install_packages() {
    echo 'Installing them: a minute or two.'
    apt_said=$(as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "${patience[@]}" -qq install -y \
        --no-install-recommends --no-remove -o Dpkg::Use-Pty=0 "$@" </dev/null 2>&1)
}

# Runs a command with an exclusive lock on the cache.
alone() {
    local lock status=0
    mkdir -p "$cache/apt" && exec {lock}>"$cache/apt/lock" && flock "$lock" || return
    "$@" || status=$?
    exec {lock}>&-
    return "$status"
}

# The unpacked packages of which apt has another version by now. Files of different versions need not fit together: QEMU
# refuses modules of another build.
outdated() {
    local package version now
    [ -e "$unpacked/packages" ] || return 0
    while read -r package version; do
        now=$(candidate "$package")
        [ -z "$now" ] || [ "$now" = "$version" ] || echo "$package"
    done <"$unpacked/packages"
}

# Unpacks packages with the dependencies that are missing in the file `status`, and those that are outdated, completely or
# not at all.
unpack_packages() {
    local archives=$cache/apt/cache/archives new=$unpacked.new package again
    mapfile -t again < <(outdated)
    echo 'Unpacking them: a minute or two.'
    # An interrupted run may have left some.
    rm -rf "$archives" "$new"
    apt_said=$({
        mkdir -p "$archives/partial" &&
            LC_ALL=C apt-get "${own_apt[@]}" "${patience[@]}" -o Dir::State::lists="$lists" -o Dir::State::status="$status" \
                -qq install -y --no-install-recommends --download-only "$@" "${again[@]}" </dev/null &&
            mkdir -p "$new/root" &&
            if [ -d "$unpacked/root" ]; then cp -al "$unpacked/root" "$new/"; fi
    } 2>&1) || return
    for package in "$archives"/*.deb; do
        case ${package##*/} in
        # All programs here run with the installed C library.
        libc6_*) ;;
        *) apt_said=$(dpkg-deb -x "$package" "$new/root" 2>&1) || return ;;
        esac
        dpkg-deb --show --showformat '${Package} ${Version}\n' "$package" >>"$new/packages.new" || return
    done
    # Of each package the version that was unpacked last.
    cat "$new/packages.new" "$unpacked/packages" 2>/dev/null | awk '!known[$1]++' >"$new/packages"
    rm "$new/packages.new"
    apt_said=$(complete_unpacked "$new" 2>&1) || return
    rm -rf "$unpacked" "$archives"
    mv "$new" "$unpacked"
    use_unpacked
}

# Does for unpacked files in $1 what an installation does: creates wrappers of programs, which find the unpacked
# libraries, links and linker scripts that point to the files, and the list of certificates.
complete_unpacked() {
    local program starter script path link certificates=$1/root/etc/ssl/certs/ca-certificates.crt
    mkdir -p "$1/bin"
    find "$1/root" -type l -lname '/*' | while read -r link; do
        path=$(readlink "$link")
        [ ! -e "$1/root$path" ] || ln -sfnr "$1/root$path" "$link"
    done
    for program in "$1"/root/{usr/bin,usr/sbin,bin,sbin}/*; do
        [ -f "$program" ] && [ -x "$program" ] || continue
        starter=$1/bin/${program##*/}
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %q "$@"\n' "$(printf '%q' "$(libraries_of_unpacked)")" \
            "$unpacked/${program#"$1/"}" >"$starter"
        chmod +x "$starter"
    done
    # An alternative of an installed package.
    if [ -e "$1/bin/gcc" ] && [ ! -e "$1/bin/cc" ]; then cp "$1/bin/gcc" "$1/bin/cc"; fi
    { grep -lIs 'GNU ld script' "$1"/root/usr/lib/*-linux-gnu/*.{a,so} || true; } | while read -r script; do
        for path in $(grep -o '/[^ ()]*' "$script" | grep '^/\(usr/\)\?lib'); do
            [ ! -e "$1/root$path" ] || sed -i "s#\([( ]\)$path\([) ]\)#\1$unpacked/root$path\2#" "$script"
        done
    done
    if [ -d "$1/root/usr/share/ca-certificates" ] && [ ! -e "$certificates" ]; then
        mkdir -p "${certificates%/*}"
        find "$1/root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$certificates"
    fi
}

libraries_of_unpacked() {
    local machine
    machine=$(uname -m)-linux-gnu
    echo "$unpacked/root/usr/lib/$machine:$unpacked/root/lib/$machine:$unpacked/root/usr/lib:$unpacked/root/lib"
}

# Adds unpacked programs to the search path after installed ones, and lets compilers find the files. Only Rust comes
# first if the installed one is too old.
use_unpacked() {
    local root=$unpacked/root machine
    machine=$(uname -m)-linux-gnu
    [ -d "$unpacked/bin" ] || return 0
    # For the guest runner, which copies programs into guests.
    export IOSB_UNPACKED=$unpacked
    is_among "$unpacked/bin" "${PATH//:/ }" || PATH="$PATH:$unpacked/bin"
    if [ -x "$unpacked/bin/cargo" ] && ! rust_fits "$(rust_needed)"; then
        PATH="$unpacked/bin:$PATH"
    fi
    if [ -d "$root/usr/include" ]; then
        export C_INCLUDE_PATH=$root/usr/include:$root/usr/include/$machine
        export LIBRARY_PATH=$root/usr/lib/$machine
        export LIBBPF_SYS_LIBRARY_PATH=$root/usr/lib/$machine:/usr/lib/$machine
        export PKG_CONFIG_PATH=$root/usr/lib/$machine/pkgconfig
    fi
    if [ -e "$root/etc/ssl/certs/ca-certificates.crt" ] && [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then
        export SSL_CERT_FILE=$root/etc/ssl/certs/ca-certificates.crt CARGO_HTTP_CAINFO=$root/etc/ssl/certs/ca-certificates.crt
    fi
}

# Installs what is missing of Rust and of the named groups: build, fuzz, guests, arm64, pages, peers, workload, metrics, exports,
# analyses, trees, shells, lint. On failure it
# prints the cause in one line, and leaves what it has done.
require() {
    local needed packages toolchain to_install to_unpack status gone='' apt_said=''
    needed=$(rust_needed)
    use_unpacked
    if ! find_missing "$@" || ! apt_knows_all; then
        command -v apt-get >/dev/null || {
            refuse "no apt-get here; install Rust >= $needed (rustup.rs) and what Debian packages as: ${packages[*]}"
            return
        }
        echo "Fetching apt's lists of packages: some seconds."
        fetch_lists
        if ! find_missing "$@" || ! apt_knows_all; then
            if grep -qE '^(W:|E:|Err:)' <<<"$apt_said"; then
                refuse "not to be had: ${packages[*]}: $(cause "$lists" <<<"$apt_said")"
            else
                refuse "apt's sources lack some of: Rust >= $needed, ${packages[*]}; install what is missing yourself (Rust: rustup.rs)"
            fi
            return
        fi
    fi
    if [ "${toolchain[1]:-}" = toolchain ]; then
        downloads+=('a stable Rust toolchain, by rustup: about 150 MB')
    fi
    to_install=()
    to_unpack=()
    [ "${#packages[@]}" -eq 0 ] || choose_way
    if [ "${#packages[@]}" -gt 0 ] || [ "${#downloads[@]}" -gt 0 ]; then
        announce || return
    fi
    downloads=()
    if [ "${#to_install[@]}" -gt 0 ] && ! install_packages "${to_install[@]}"; then
        # The lists may be older than the archive.
        fetch_lists
        install_packages "${to_install[@]}" || {
            refuse "not installed: ${to_install[*]}: $(cause /var/cache/apt <<<"$apt_said")"
            return
        }
    fi
    if [ "${#to_unpack[@]}" -gt 0 ] && ! alone unpack_packages "${to_unpack[@]}"; then
        fetch_lists
        alone unpack_packages "${to_unpack[@]}" || {
            rm -rf "$unpacked.new"
            refuse "not unpacked: ${to_unpack[*]}: $(cause "$cache" <<<"$apt_said")"
            return
        }
    fi
    if [ "${#toolchain[@]}" -gt 0 ]; then
        "${toolchain[@]}" || {
            refuse "this failed: ${toolchain[*]}"
            return
        }
        rust_fits "$needed" || export RUSTUP_TOOLCHAIN=stable
    fi
    ! is_among build "$@" || rust_fits "$needed" ||
        refuse "Rust >= $needed is not to be found; install it from rustup.rs"
}
