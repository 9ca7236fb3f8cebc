#!/usr/bin/env python3
"""Ten tables of one recording, or of all recordings in a directory, by polars: polars_tables.py PATH"""

import polars as pl
from polars import col

import recordings

READS = ["read", "pread64", "readv", "preadv", "preadv2"]
WRITES = ["write", "pwrite64", "writev", "pwritev", "pwritev2"]
# The columns that are used, for tables that have no rows and thus no file.
TEXTS = ["op", "row", "file_system", "path", "path_kind"]
COLUMNS = {
    "calls": "begin duration_ns pid op value offset size file syscall_ns vfs_ns file_system file_system_ns",
    "async": "begin op value offset size file",
    "waits": "row ns",
    "requests": "ended issued disk_major disk_minor sector bytes op pid",
    "files": "file inode_major inode_minor inode generation path path_kind",
}


def table(root, segments, name):
    """A table of all recordings, read when and as far as it is needed; times as integers, in nanoseconds."""
    files = recordings.files(root, segments, name)
    if not files:
        columns = COLUMNS[name].split()
        types = {column: pl.String if column in TEXTS else pl.Int64 for column in columns}
        return pl.LazyFrame(schema={"recording": pl.String, **types})
    recording = col("path_of_file").str.split("/").list.get(-3).alias("recording")
    words = pl.selectors.categorical().cast(pl.String)
    times = pl.selectors.datetime().cast(pl.Int64)
    return pl.scan_ipc(files, include_file_paths="path_of_file").with_columns(recording, words, times)


def tables(root, segments):
    def read(name):
        return table(root, segments, name)

    ended = read("calls").filter(col("duration_ns").is_not_null()).with_columns(col("duration_ns").cast(pl.Int64))
    calls = read("calls")
    requests = (
        read("requests")
        .filter(col("issued").is_not_null())
        .with_columns(
            pl.format("{}:{}", "disk_major", "disk_minor").alias("disk"),
            (col("ended") - col("issued")).alias("ns"),
            col("sector", "bytes").cast(pl.Int64),
        )
    )
    of_op, of_disk = ["recording", "op"], ["recording", "disk"]
    ns = col("duration_ns")
    step = (pl.lit(2, pl.Int64).pow((ns.clip(1).log(2).floor() - 3).clip(0).cast(pl.UInt32))).cast(pl.Int64)
    rows = [
        calls.select("recording", pl.lit("syscall").alias("name"), col("syscall_ns").alias("ns")),
        calls.select("recording", pl.lit("vfs").alias("name"), col("vfs_ns").alias("ns")),
        calls.select("recording", col("file_system").alias("name"), col("file_system_ns").alias("ns")),
        read("waits").select("recording", col("row").alias("name"), "ns"),
    ]
    device = ["recording", "inode_major", "inode_minor"]
    # A segment repeats the definitions that it uses.
    files = read("files").unique(["recording", "file"]).sort("file")
    # An inode has a new generation when its number is used again, and is named by its first path.
    named = ["path", "path_kind"]
    first = [col(*named).filter(col("path").is_not_null()).first().over(*device, "inode", "generation")]
    # Files created one after the other under one path are one, such as a journal.
    alone = pl.format("{} {}", "inode", "generation")
    key = pl.when(col("path_kind") == "whole").then("path").otherwise(alone).alias("key")
    inode = pl.format("{}:{} {}", "inode_major", "inode_minor", col("inode").first().over(*device, "key")).alias("inode")
    first_file = col("file").first().over(*device, "key").alias("first_file")
    files = files.with_columns(first).with_columns(key).select("recording", "file", inode, first_file)
    moved = ["recording", *COLUMNS["async"].split()]
    accesses = (
        pl.concat([read(name).select(moved) for name in ("calls", "async")], how="vertical_relaxed")
        .join(files, on=["recording", "file"])
        .filter(col("op").is_in(READS + WRITES), col("offset").is_not_null())
        .with_columns(
            pl.coalesce(col("size").cast(pl.Int64), "value").alias("length"), col("offset").cast(pl.Int64).alias("first")
        )
        .filter(col("length") >= 0)
        .sort("begin", maintain_order=True)
    )
    before = (col("first") + col("length")).shift(1).over("recording", "first_file").fill_null(col("first"))
    moving = requests.filter(col("bytes") > 0, col("op").is_in(["read", "write", "write_zeroes"]))
    moving = moving.sort("issued", maintain_order=True)
    end = (col("sector") + (col("bytes") + 511) // 512).shift(1).over(of_disk).fill_null(col("sector"))
    changes = pl.concat(
        [
            requests.select(*of_disk, col("issued").alias("moment"), pl.lit(1).alias("change")),
            requests.select(*of_disk, col("ended").alias("moment"), pl.lit(-1).alias("change")),
        ]
    ).sort("moment", "change")
    depth = col("change").cum_sum().over(of_disk).cast(pl.Int64).alias("depth")
    until = (col("moment").shift(-1).over(of_disk) - col("moment")).fill_null(0).alias("ns")
    depths = changes.with_columns(depth, until)
    queries_of = {
        "calls": ended.group_by(of_op).agg(pl.len(), ns.sum(), ns.min().alias("min"), ns.max().alias("max")),
        "bytes": calls.filter(col("op").str.contains("read|write"))
        .group_by(of_op)
        .agg(col("value").filter(col("value") > 0).sum()),
        "errors": calls.filter(col("value") < 0).group_by(*of_op, (-col("value")).alias("errno")).len(),
        "histogram": ended.with_columns((ns - ns % step).alias("ge_ns")).group_by(*of_op, "ge_ns").len(),
        "requests": requests.group_by(of_op).agg(
            pl.len(), col("ns").sum(), col("ns").min().alias("min"), col("ns").max().alias("max"), col("bytes").sum()
        ),
        "rows": pl.concat(rows, how="vertical_relaxed").filter(col("ns") > 0).group_by("recording", "name").agg(col("ns").sum()),
        "access": accesses.with_columns(before.alias("before"))
        .group_by("recording", "first_file", "inode")
        .agg(pl.len(), col("length").sum(), (col("first") == col("before")).sum())
        .drop("first_file"),
        "seeks": moving.with_columns((col("sector") - end).alias("distance"))
        .group_by(of_disk)
        .agg(pl.len(), (col("distance") != 0).sum().alias("seeks"), col("distance").abs().sum()),
        "limits": requests.group_by("recording", "pid").agg(pl.len(), (col("ns") > 200_000).sum()),
        "usage": depths.group_by(of_disk).agg(
            col("ns").filter(col("depth") > 0).sum().alias("busy"),
            (col("depth") * col("ns")).sum().alias("device"),
            col("depth").max(),
        ),
    }
    return {name: query.collect().rows() for name, query in queries_of.items()}


if __name__ == "__main__":
    recordings.main(tables)
