#!/usr/bin/env python3
"""Ten tables of one recording, or of all recordings in a directory, by ClickHouse, in the form of the package chdb:
clickhouse_tables.py PATH. A server has the same function file()."""

import json

from chdb import session

import queries
import recordings

COLUMNS = {
    "calls": "toUnixTimestamp64Nano(begin) AS begin_ns, duration_ns, pid, op, value, offset AS start, size, file, "
    "syscall_ns, vfs_ns, file_system, file_system_ns",
    "async": "toUnixTimestamp64Nano(begin) AS begin_ns, op, value, offset AS start, size, file",
    "waits": "row AS wait, ns",
    "requests": "concat(toString(disk_major), ':', toString(disk_minor)) AS disk, op, sector, bytes, pid, "
    "toUnixTimestamp64Nano(issued) AS issued_ns, toUnixTimestamp64Nano(ended) AS ended_ns",
    "files": "file, concat(toString(inode_major), ':', toString(inode_minor)) AS device, inode, generation, "
    "CASE WHEN path_kind = 'whole' THEN path WHEN path IS NOT NULL THEN '' END AS whole_path",
}


def tables(root, segments):
    engine = session.Session()
    engine.query("CREATE DATABASE r")
    for table, columns in COLUMNS.items():
        files = [path[len(root) + 1 :] for path in recordings.files(root, segments, table)]
        if not files:
            engine.query(f"CREATE VIEW r.{table} AS {queries.nothing(table)}")
            continue
        if len(files) > 1:
            files = ["{" + ",".join(files) + "}"]
        # A segment repeats the definitions that it uses.
        distinct = "DISTINCT" if table == "files" else ""
        engine.query(
            f"CREATE VIEW r.{table} AS SELECT {distinct} splitByChar('/', _path)[-3] AS recording, {columns} "
            f"FROM file('{root}/{files[0]}', 'Arrow')"
        )
    all_texts = queries.texts(queries.CLICKHOUSE)
    # Numbers of 64 bits would otherwise be text.
    settings = "SETTINGS output_format_json_quote_64bit_integers = 0, cast_keep_nullable = 1"
    engine.query("USE r")
    results = ((table, engine.query(f"{text} {settings}", "JSONCompact")) for table, text in all_texts.items())
    return {table: json.loads(result.data())["data"] for table, result in results}


if __name__ == "__main__":
    recordings.main(tables)
