"""Computes tables from the JSON Lines of an export with DuckDB, and prints them as JSON: duckdb_tables.py LINES PATH, the path of
a file whose bytes are one of them."""

import json
import sys

import duckdb

lines = f"read_json('{sys.argv[1]}', format='newline_delimited', maximum_object_size=1000000, sample_size=-1, union_by_name=true)"


def rows(query):
    return duckdb.sql(query).fetchall()


by_op = {
    op: [count, int(ns)]
    for op, count, ns in rows(
        f"select call.op, count(*), coalesce(sum(call.end_ns - call.begin_ns), 0) from {lines} where call is not null group by 1"
    )
}
device = rows(f"select sum(request.ended_ns - request.issued_ns) from {lines} where request is not null")[0][0]
texts = rows(f"select to_json(call.rows) from {lines} where call is not null")
per_row = sum(ns for (text,) in texts for ns in json.loads(text).values() if ns)
in_file = rows(f"select sum(call.value) from {lines} where call.path = '{sys.argv[2]}' and call.value > 0")[0][0]
# Without a loss there is no line of it.
kinds = [name for name, *_ in rows(f"describe select * from {lines}")]
losses = f"select lost.kind, sum(lost.records)::bigint from {lines} where lost is not null group by 1"
lost = dict(rows(losses)) if "lost" in kinds else {}
print(json.dumps({"by_op": by_op, "device_ns": int(device), "rows_ns": per_row, "bytes_of_file": int(in_file), "lost": lost}))
