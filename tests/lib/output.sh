# shellcheck shell=bash
# The output of a command that may leave processes behind.

# Runs a command, and copies its output to the file $1. Fails if the command fails, or if it leaves processes behind that
# have its output open, which it names: the end of their output would be waited for without an end.
# $2: how long the rest of the output may take, in seconds.
with_output_in() {
    local file=$1 limit=$2 status=0 output writer
    shift 2
    exec {output}> >(exec tee "$file")
    writer=$!
    "$@" >&"$output" 2>&1 {output}>&- || status=$?
    exec {output}>&-
    end_of_output "$writer" "$limit" || status=1
    return "$status"
}

# Waits for the end of the `tee` $1, for $2 seconds at most.
end_of_output() {
    local output
    timeout "$2" tail -s 0.1 -f --pid="$1" /dev/null && return
    output=$(readlink "/proc/$1/fd/0") || return 0
    echo 'these processes were left behind, with the output open:'
    find /proc/[0-9]*/fd -lname "${output/\[/\\[}" -printf '%h\n' 2>/dev/null | sort -u | while IFS=/ read -r _ _ pid _; do
        [ "$pid" = "$1" ] || ps -o pid=,args= -p "$pid"
    done
    kill "$1"
    return 1
}
