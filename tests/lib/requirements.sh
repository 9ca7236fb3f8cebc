# What building, testing and the examples need, and how Debian and Ubuntu provide it. To be sourced by bash from a
# script at the top of the tree; `require` is the way in. What is there already is used, wherever it is from; nothing is
# ever removed. What apt cannot install beside what is there, or at all for lack of root, is unpacked into the cache.
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
    peers)
        cat <<'END'
strace                              strace
perf                                linux-perf
/usr/sbin/syscount*                 libbpf-tools
END
        ;;
    trees)
        cat <<'END'
debootstrap                         debootstrap
END
        ;;
    workload)
        cat <<'END'
sqlite3                             sqlite3
END
        ;;
    esac
}

# What is to be fetched besides packages, a line each; scripts may add to it before they call `require`.
downloads=()

# Programs that only root usually needs are not in everybody's search path.
PATH="$PATH:/usr/sbin:/sbin"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/iostackbreakdown
# Packages that could not be installed, of this release of the distribution: their files in root/, starters of their programs in bin/.
unpacked=$cache/unpacked/$( (. /etc/os-release && echo "$ID-${VERSION_ID:-}") 2>/dev/null || echo any)

# Where apt looks for its lists of packages: its own, or ours where it has none and nobody is root.
lists=/var/lib/apt/lists
# No mirror is worth waiting longer for, and no question can be answered.
patience=(-o Acquire::Retries=1 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30)

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

# Says why `require` cannot do what it is asked for.
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

# Whether `as_root` works: a password is asked for at a terminal only.
may_be_root() {
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null || return 1
    if [ -t 0 ]; then sudo -v; else sudo -n true 2>/dev/null; fi
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

# What stopped a program, from what it said (on stdin), in a line with the way out. $1: where it wrote to.
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

# The version of a package that apt would install; nothing when there is none.
candidate() {
    LC_ALL=C apt-cache -o Dir::State::lists="$lists" policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v -F '(none)' || true
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

# Packages of a table of needs (on stdin) that are missing here.
missing_packages() {
    local need package
    while read -r need package; do
        case $need in
        /*) compgen -G "$need" >/dev/null || compgen -G "$unpacked/root$need" >/dev/null || echo "$package" ;;
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

# Whether a word is among those after it.
is_among() {
    local word=$1
    shift
    [[ " $* " == *" $word "* ]]
}

add_packages() {
    mapfile -t -O "${#packages[@]}" packages
}

# Whether apt has a candidate for all that is to be installed. One question, since apt may read its lists anew for each.
apt_knows_all() {
    local known
    [ "${#packages[@]}" -gt 0 ] || return 0
    known=$(LC_ALL=C apt-cache -o Dir::State::lists="$lists" policy "${packages[@]}" 2>/dev/null | grep '^  Candidate: ' | grep -vcF '(none)')
    [ "$known" -eq "${#packages[@]}" ]
}

# Fetches apt's lists of packages, without root to where nobody else looks. What apt says goes to `apt_said`: that some source
# among many fails is no error, as long as the others have what is needed.
fetch_lists() {
    if may_be_root; then
        apt_said=$(as_root env LC_ALL=C apt-get "${patience[@]}" -q update 2>&1) || true
    else
        lists=$cache/apt/lists
        mkdir -p "$lists/partial"
        apt_said=$(LC_ALL=C apt-get "${own_apt[@]}" "${patience[@]}" -o Dir::State::lists="$lists" -q update 2>&1) || true
    fi
}

# Options of an apt that changes nothing but its own folders in the cache.
own_apt=(
    -o Dir::Cache="$cache/apt/cache"
    -o APT::Sandbox::User=
    -o Acquire::Languages=none
    -o Debug::NoLocking=1
)

# Arguments around `--`: fills `options` and `operands`, which are the caller's own.
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

# The packages that a dry run (on stdin) removes.
removed() {
    sed -n 's/^Remv \([^ :]*\).*/\1/p'
}

# Whether apt can install packages without removing any.
can_be_added() {
    local plan
    plan=$(dry_run -- "$@" 2>/dev/null) && [ -z "$(removed <<<"$plan")" ]
}

# Parts `packages` into those that apt is to install and those that are to be unpacked.
choose_way() {
    local package
    to_install=()
    to_unpack=()
    if ! may_be_root; then
        to_unpack=("${packages[@]}")
        return
    fi
    if can_be_added "${packages[@]}"; then
        to_install=("${packages[@]}")
        return
    fi
    for package in "${packages[@]}"; do
        if can_be_added "$package"; then to_install+=("$package"); else to_unpack+=("$package"); fi
    done
    # Each may do by itself what all together do not.
    if [ "${#to_install[@]}" -gt 0 ] && ! can_be_added "${to_install[@]}"; then
        to_unpack=("${packages[@]}")
        to_install=()
    fi
}

# dpkg's table of what is installed (on stdin) without the packages named.
status_without() {
    awk -v without=" $* " 'BEGIN { RS = ""; ORS = "\n\n" } index(without, " " $2 " ") == 0'
}

# Finds a state of things in which apt removes nothing for packages: as it is here, or without what apt would remove (`gone`),
# or with nothing installed at all. Leaves it in the file `status`.
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
        echo 'apt cannot install them beside what is there'
    else
        echo 'only root can install them'
    fi
}

# Says what is to be fetched and how much, and asks whether to go on when there is somebody to ask.
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

# The packages, and what apt says about their size, with the options before `--`.
describe() {
    local options operands
    split_arguments "$@"
    fold -s -w 78 <<<"${operands[*]}" | sed 's/^/  /; s/ $//'
    # Answers "no" to apt's own question, and fails therefore.
    LC_ALL=C apt-get -o Debug::NoLocking=1 -o Dir::State::lists="$lists" "${options[@]}" install --no-install-recommends \
        --assume-no "${operands[@]}" 2>&1 | sed -n '/^[0-9]* upgraded\|^Need to get\|^After this/s/^/  /p' || true
}

install_packages() {
    echo 'Installing them: a minute or two.'
    apt_said=$(as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "${patience[@]}" -qq install -y \
        --no-install-recommends --no-remove -o Dpkg::Use-Pty=0 "$@" </dev/null 2>&1)
}

# Runs a command while no other run does so with the cache.
alone() {
    local lock status=0
    mkdir -p "$cache/apt" && exec {lock}>"$cache/apt/lock" && flock "$lock" || return
    "$@" || status=$?
    exec {lock}>&-
    return "$status"
}

# Unpacks packages, and what they need that is not installed according to the file `status`, as a whole or not at all.
unpack_packages() {
    local archives=$cache/apt/cache/archives new=$unpacked.new package
    echo 'Unpacking them: a minute or two.'
    # A run that was interrupted may have left some.
    rm -rf "$archives" "$new"
    apt_said=$({
        mkdir -p "$archives/partial" &&
            LC_ALL=C apt-get "${own_apt[@]}" "${patience[@]}" -o Dir::State::lists="$lists" -o Dir::State::status="$status" \
                -qq install -y --no-install-recommends --download-only "$@" </dev/null &&
            mkdir -p "$new/root" &&
            if [ -d "$unpacked/root" ]; then cp -al "$unpacked/root" "$new/"; fi
    } 2>&1) || return
    for package in "$archives"/*.deb; do
        case ${package##*/} in
        # Every program here runs with the C library that is installed.
        libc6_*) ;;
        *) apt_said=$(dpkg-deb -x "$package" "$new/root" 2>&1) || return ;;
        esac
    done
    apt_said=$(complete_unpacked "$new" 2>&1) || return
    rm -rf "$unpacked" "$archives"
    mv "$new" "$unpacked"
    use_unpacked
}

# Makes of unpacked files in $1 what installing makes of them: starters of programs, which find the libraries that came along,
# links and scripts of the linker that lead to where the files are, and the list of certificates.
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
    # An alternative where it is installed.
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

# Lets programs be found that were unpacked, behind those that are installed, and compilers find the files. Rust alone comes
# first where the one that is installed is too old.
use_unpacked() {
    local root=$unpacked/root machine
    machine=$(uname -m)-linux-gnu
    [ -d "$unpacked/bin" ] || return 0
    # For the guest runner, which takes programs into guests.
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

# Installs what is missing of Rust and of the groups named: build, fuzz, guests, peers, workload, trees, lint. Fails with one line
# that says why, and then leaves what it has done.
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
