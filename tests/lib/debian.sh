# Minimal Debian trees. To be sourced by bash after tests/lib/requirements.sh, which has `fail` and the cache.
# shellcheck shell=bash
# shellcheck disable=SC2154 # `cache` is from there.

# Starts the script again in a mount namespace of its own, so that all its mounts end with it; $1 says whether it is in one. Where
# that cannot be done, the script ends as left out.
isolate() {
    [ "${1:-}" != --inside ] || return 0
    if [ "$(id -u)" -ne 0 ] || ! unshare --mount mount -t tmpfs none /mnt 2>/dev/null; then
        echo 'not run: making trees needs root, and mounts'
        echo '0 passed, 0 failed, 1 skipped'
        exit
    fi
    exec unshare --mount --propagation private "$0" --inside "$@"
}

# Removes a directory of trees once nothing is mounted in it: never through a mount, and never anything mounted.
fell() {
    local mounted
    while read -r mounted; do
        umount --lazy "$mounted" 2>/dev/null
    done < <(mounts_in "$1" | sort -r)
    if [ -z "$(mounts_in "$1")" ]; then
        rm -rf --one-file-system "$1"
    else
        echo "left there, as something is mounted in it: $1" >&2
    fi
}

mounts_in() {
    awk -v folder="$1/" 'index($5 "/", folder) == 1 { print $5 }' /proc/self/mountinfo
}

# Finds the mirrors that this machine uses: `mirror`, and `security` if there is one.
find_mirrors() {
    local sources
    # shellcheck disable=SC2016 # A format of apt's.
    sources=$(apt-get indextargets --format '$(REPO_URI)')
    mirror=${IOSB_DEBIAN_MIRROR:-$(grep -m 1 -E '^https?:.*/debian/?$' <<<"$sources")}
    [ -n "$mirror" ] || fail "apt's sources name no Debian mirror; name one by IOSB_DEBIAN_MIRROR"
    mirror=${mirror%/}
    # shellcheck disable=SC2034 # For the script.
    security=$(grep -m 1 -E '^https?:.*/debian-security/?$' <<<"$sources")
}

# Unpacks a minimal Debian $1, with the packages $3 besides (separated by commas), into the directory $2. The cache keeps it as an
# archive.
unpack_debian() {
    local name=$1${3:+-${3//,/-}} archive new
    archive=$cache/trees/$name.tar
    new=$cache/trees/$name.new
    if [ ! -e "$archive" ]; then
        mkdir -p "$cache/trees/debs"
        # An interrupted run may have left it.
        fell "$new"
        debootstrap --variant=minbase ${3:+--include="$3"} --cache-dir="$cache/trees/debs" "$1" "$new" "$mirror" >"$cache/trees/$name.log" 2>&1 || {
            tail -n 5 "$cache/trees/$name.log"
            fell "$new"
            return 1
        }
        tar -C "$new" -cf "$archive.new" . && mv "$archive.new" "$archive"
        fell "$new"
    fi
    mkdir -p "$2" && tar -C "$2" -xf "$archive"
}
