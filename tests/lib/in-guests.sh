# For scripts at the top of the tree that run others in guests and check what comes out. To be sourced by bash, after
# requirements.sh. `work` is a directory that is removed at the end.
# shellcheck shell=bash

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
# Options of the runner for the programs of tests/exports/workload.
programs=()
for program in sqlite3 fio git; do
    path=$(command -v "$program") || fail "$program is missing"
    programs+=(--with "$path")
done

# Runs a script of this repository in a guest, and unpacks the archive that it prints into $work. $1: the kernel, $2: the
# script; then options of the runner, --, and arguments of the script.
in_guest() {
    local kernel=$1 script=$2
    shift 2
    cargo test --quiet --locked --test vm -- --kernels "$kernel" --variant none --exec "$script" "$@" >"$work/archive" || return
    base64 -d "$work/archive" | tar -C "$work" -xf -
}

# $1: what is checked. The rest: a command, whose output is shown if it fails, and lines that begin with `info:` always.
check() {
    local what=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok    $what"
        sed -n 's/^info: /      /p' "$work/log"
    else
        failed=$((failed + 1))
        echo "FAIL  $what"
        tail -n 15 "$work/log" | sed 's/^/      /'
        return 1
    fi
}
