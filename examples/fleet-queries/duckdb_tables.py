#!/usr/bin/env python3
"""Ten tables of one recording, or of all recordings in a directory, by DuckDB on datasets of pyarrow, which reads only
the columns that a query needs: duckdb_tables.py PATH"""

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

import queries
import recordings

COLUMNS = {
    "calls": "epoch_ns(\"begin\") AS begin_ns, duration_ns, pid, op, value, \"offset\" AS start, size, file, "
    "syscall_ns, vfs_ns, file_system, file_system_ns",
    "async": "epoch_ns(\"begin\") AS begin_ns, op, value, \"offset\" AS start, size, file",
    "waits": "\"row\" AS wait, ns",
    "requests": "disk_major || ':' || disk_minor AS disk, op, sector, bytes, pid, "
    "epoch_ns(issued) AS issued_ns, epoch_ns(ended) AS ended_ns",
    "files": "file, inode_major || ':' || inode_minor AS device, inode, generation, "
    "CASE WHEN path_kind = 'whole' THEN path WHEN path IS NOT NULL THEN '' END AS whole_path",
}


def tables(root, segments):
    # The names of directories become columns.
    names = pa.schema([("recording", pa.string()), ("segment", pa.string())])
    connection = duckdb.connect()
    for table, columns in COLUMNS.items():
        files = recordings.files(root, segments, table)
        if not files:
            connection.execute(f"CREATE VIEW {table} AS {queries.nothing(table)}")
            continue
        dataset = ds.dataset(files, format="ipc", partitioning=ds.DirectoryPartitioning(names), partition_base_dir=root)
        connection.register(f"{table}_files", dataset)
        # A segment repeats the definitions that it uses.
        distinct = "DISTINCT" if table == "files" else ""
        connection.execute(f"CREATE VIEW {table} AS SELECT {distinct} recording, {columns} FROM {table}_files")
    all_texts = queries.texts(queries.DUCKDB)
    return {table: connection.execute(text).fetchall() for table, text in all_texts.items()}


if __name__ == "__main__":
    recordings.main(tables)
