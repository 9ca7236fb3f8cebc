"""The files of recordings: of one, or of all in a directory."""

import json
import os
import sys


def recordings(path):
    """The directory that contains the recordings, and their names."""
    path = os.path.abspath(path)
    if os.path.exists(os.path.join(path, "meta.json")):
        return os.path.dirname(path), [os.path.basename(path)]
    found = sorted(
        name for name in os.listdir(path) if os.path.exists(os.path.join(path, name, "meta.json"))
    )
    return path, found


def segments(root, names):
    """Complete segments, as RECORDING/SEGMENT. One that was cut has no segment.json, and files without an end."""
    return [
        f"{name}/{segment}"
        for name in names
        for segment in sorted(os.listdir(os.path.join(root, name)))
        if os.path.exists(os.path.join(root, name, segment, "segment.json"))
    ]


def files(root, within, table):
    """The files of a table; a segment without rows of it has none."""
    paths = (os.path.join(root, segment, f"{table}.arrow") for segment in within)
    return [path for path in paths if os.path.exists(path)]


def main(tables):
    """Prints all tables of the recordings that the command line names, as JSON."""
    root, names = recordings(sys.argv[1])
    if not names:
        sys.exit(f"{sys.argv[1]}: no recording, and no directory of recordings")
    print(json.dumps(tables(root, segments(root, names))))
