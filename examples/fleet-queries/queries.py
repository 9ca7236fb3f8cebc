"""Ten tables in SQL, for DuckDB and ClickHouse. Each has a row for every recording, so that the same query compares
the machines of a fleet.

The queries use views, which have the recording's name in addition to these columns, and times in nanoseconds."""

VIEWS = {
    "calls": [
        *("begin_ns", "duration_ns", "pid", "op", "value", "start", "size", "file"),
        *("syscall_ns", "vfs_ns", "file_system", "file_system_ns"),
    ],
    # Requests of io_uring and AIO.
    "async": ["begin_ns", "op", "value", "start", "size", "file"],
    "waits": ["wait", "ns"],
    "requests": ["disk", "op", "sector", "bytes", "pid", "issued_ns", "ended_ns"],
    # `whole_path` is '' where another kind of path is known.
    "files": ["file", "device", "inode", "generation", "whole_path"],
}


def nothing(view):
    """A view of a table that has no rows, and thus no file."""
    return f"SELECT '' AS recording, {', '.join(f'NULL AS {column}' for column in VIEWS[view])} WHERE 1 = 0"


# The two engines' names for the same.
DUCKDB = {"int": "BIGINT", "lag": "lag", "lead": "lead", "whole": "", "sectors": "(bytes + 511) // 512"}
CLICKHOUSE = {
    "int": "Int64",
    "lag": "lagInFrame",
    "lead": "leadInFrame",
    "whole": "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "sectors": "intDiv(bytes + 511, 512)",
}

TABLES = {
    # How many calls of each operation, and how long did they take? A call that was under way at the end has no duration.
    "calls": """
        SELECT recording, op, count(*), sum(duration_ns), min(duration_ns), max(duration_ns)
        FROM calls WHERE duration_ns IS NOT NULL GROUP BY recording, op""",
    # How many bytes did they read or write?
    "bytes": """
        SELECT recording, op, sum(CASE WHEN value > 0 THEN value ELSE 0 END)
        FROM calls WHERE op LIKE '%read%' OR op LIKE '%write%' GROUP BY recording, op""",
    # Which errors did they return?
    "errors": """
        SELECT recording, op, -value, count(*) FROM calls WHERE value < 0 GROUP BY recording, op, value""",
    # Histograms: each power of two has eight steps.
    "histogram": """
        WITH steps AS (
            SELECT recording, op, CAST(duration_ns AS {int}) AS ns,
                CAST(pow(2, greatest(floor(log2(greatest(duration_ns, 1))) - 3, 0)) AS {int}) AS step
            FROM calls WHERE duration_ns IS NOT NULL)
        SELECT recording, op, ns - ns % step AS ge_ns, count(*) FROM steps GROUP BY recording, op, ge_ns""",
    # How long were requests at the device?
    "requests": """
        SELECT recording, op, count(*), sum(ended_ns - issued_ns), min(ended_ns - issued_ns),
            max(ended_ns - issued_ns), sum(bytes)
        FROM requests WHERE issued_ns IS NOT NULL GROUP BY recording, op""",
    # Where was the time of all calls spent? What a call waited for is in a table of its own.
    "rows": """
        SELECT recording, name, sum(ns) FROM (
            SELECT recording, 'syscall' AS name, syscall_ns AS ns FROM calls
            UNION ALL SELECT recording, 'vfs', vfs_ns FROM calls
            UNION ALL SELECT recording, file_system, file_system_ns FROM calls WHERE file_system IS NOT NULL
            UNION ALL SELECT recording, wait, ns FROM waits) AS parts
        WHERE ns > 0 GROUP BY recording, name""",
    # Is each file read and written sequentially? An access is if it begins where the one before it ended. An inode has a new
    # generation when its number is used again. Files created one after the other under one path are one, such as a journal.
    "access": """
        WITH named AS (
            SELECT recording, file, device, inode, generation, first_value(whole_path) OVER (
                PARTITION BY recording, device, inode, generation
                ORDER BY CASE WHEN whole_path IS NULL THEN 1 ELSE 0 END, file {whole}) AS name
            FROM files),
        keyed AS (
            SELECT recording, file, device, inode,
                CASE WHEN name <> '' THEN name ELSE concat(inode, ' ', generation) END AS key
            FROM named),
        counted AS (
            SELECT recording, file, min(file) OVER (PARTITION BY recording, device, key) AS first_file, concat(device, ' ',
                first_value(inode) OVER (PARTITION BY recording, device, key ORDER BY file {whole})) AS inode
            FROM keyed),
        moving AS (
            SELECT recording, begin_ns, op, value, start, size, file FROM calls
            UNION ALL SELECT recording, begin_ns, op, value, start, size, file FROM async),
        accesses AS (
            SELECT moving.recording AS recording, first_file, inode, begin_ns, CAST(start AS {int}) AS first,
                CAST(coalesce(size, value) AS {int}) AS length
            FROM moving JOIN counted ON moving.recording = counted.recording AND moving.file = counted.file
            WHERE op IN ('read', 'pread64', 'readv', 'preadv', 'preadv2',
                         'write', 'pwrite64', 'writev', 'pwritev', 'pwritev2')
                AND start IS NOT NULL AND (size IS NOT NULL OR value >= 0)),
        ends AS (
            SELECT recording, first_file, inode, first, length, {lag}(first + length, 1, first)
                OVER (PARTITION BY recording, first_file ORDER BY begin_ns {whole}) AS before
            FROM accesses)
        SELECT recording, inode, count(*), sum(length), sum(CASE WHEN first = before THEN 1 ELSE 0 END)
        FROM ends GROUP BY recording, first_file, inode""",
    # How far does each disk go between successive requests, in sectors of 512 bytes?
    "seeks": """
        WITH ends AS (
            SELECT recording, disk, CAST(sector AS {int}) AS first,
                {lag}(CAST(sector + {sectors} AS {int}), 1, CAST(sector AS {int}))
                OVER (PARTITION BY recording, disk ORDER BY issued_ns {whole}) AS before
            FROM requests WHERE issued_ns IS NOT NULL AND bytes > 0 AND op IN ('read', 'write', 'write_zeroes'))
        SELECT recording, disk, count(*), sum(CASE WHEN first <> before THEN 1 ELSE 0 END), sum(abs(first - before))
        FROM ends GROUP BY recording, disk""",
    # How many requests were at the device for longer than 200 us, and whose?
    "limits": """
        SELECT recording, pid, count(*), sum(CASE WHEN ended_ns - issued_ns > 200000 THEN 1 ELSE 0 END)
        FROM requests WHERE issued_ns IS NOT NULL GROUP BY recording, pid""",
    # How long was each disk busy, and how many requests did it have at once?
    "usage": """
        WITH changes AS (
            SELECT recording, disk, issued_ns AS moment, 1 AS change FROM requests WHERE issued_ns IS NOT NULL
            UNION ALL SELECT recording, disk, ended_ns, -1 FROM requests WHERE issued_ns IS NOT NULL),
        depths AS (
            SELECT recording, disk,
                sum(change) OVER (PARTITION BY recording, disk ORDER BY moment, change ROWS UNBOUNDED PRECEDING) AS depth,
                {lead}(moment, 1, moment) OVER (PARTITION BY recording, disk ORDER BY moment, change {whole})
                    - moment AS ns
            FROM changes)
        SELECT recording, disk, sum(CASE WHEN depth > 0 THEN ns ELSE 0 END), sum(depth * ns), max(depth)
        FROM depths GROUP BY recording, disk""",
}


def texts(names):
    """All queries, with an engine's names."""
    return {table: text.format(**names) for table, text in TABLES.items()}
