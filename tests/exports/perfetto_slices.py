"""Reads a trace with Perfetto's own messages, and recomputes its slices, sums and flows."""

import json
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

trace = pb.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

tracks, stacks, counters, flows, names = {}, {}, {}, {}, {1: {}, 2: {}, 3: {}}
out = dict.fromkeys(
    ["badly_nested", "calls_ns", "sleeps_ns", "device_ns", "rows_ns", "lost", "dropped", "deepest_at_device", "deepest_counted"], 0
)
seen, now, at_device = set(), 0, 0
SLEEPS = {"queue", "device", "journal", "others' I/O", "lock", "other", "run queue"}
ROWS = {"syscall", "vfs", "ext4", "xfs"} | SLEEPS

for packet in trace.packet:
    out["dropped"] += packet.previous_packet_dropped
    if packet.HasField("clock_snapshot"):
        now = packet.timestamp
        names = {1: {}, 2: {}, 3: {}}
        continue
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.parent_uuid == 0 or track.parent_uuid in tracks, "parents come first"
        tracks[track.uuid] = track
        continue
    now += packet.timestamp
    for kind, entries in (
        (1, packet.interned_data.event_names),
        (2, packet.interned_data.debug_annotation_names),
    ):
        names[kind].update((entry.iid, entry.name) for entry in entries)
    texts = packet.interned_data.debug_annotation_string_values
    names[3].update((entry.iid, entry.str.decode()) for entry in texts)
    event = packet.track_event
    track = tracks[event.track_uuid]
    stack = stacks.setdefault(event.track_uuid, [])
    for note in event.debug_annotations:
        name = names[2][note.name_iid]
        if note.HasField("string_value_iid"):
            seen.add(names[3][note.string_value_iid])
        elif event.type == pb.TrackEvent.TYPE_SLICE_END and name in ROWS:
            out["rows_ns"] += note.int_value
    if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
        if track.name in ("queue", "device") and stack:
            out["badly_nested"] += 1
        stack.append((names[1][event.name_iid], now))
        at_device += track.name == "device"
        for flow in event.terminating_flow_ids:
            flows[flow] = flows.get(flow, 0) - 1
    elif event.type == pb.TrackEvent.TYPE_SLICE_END:
        if not stack:
            out["badly_nested"] += 1
            continue
        name, begin = stack.pop()
        at_device -= track.name == "device"
        if track.name == "device":
            out["device_ns"] += now - begin
        elif track.HasField("thread"):
            if name in SLEEPS:
                out["sleeps_ns"] += now - begin
                out["badly_nested"] += not stack
            elif name != "page fault":
                out["calls_ns"] += now - begin
    elif event.type == pb.TrackEvent.TYPE_INSTANT:
        for flow in event.flow_ids:
            flows[flow] = flows.get(flow, 0) + 1
        out["lost"] += names[1][event.name_iid] == "lost"
    elif event.type == pb.TrackEvent.TYPE_COUNTER:
        out["deepest_counted"] = max(out["deepest_counted"], event.counter_value)
    out["deepest_at_device"] = max(out["deepest_at_device"], at_device)

out["open_slices"] = sum(len(stack) for stack in stacks.values())
out["flows"] = len(flows)
out["flows_without_end"] = sum(left != 0 for left in flows.values())
out["names"] = sorted(seen)
print(json.dumps(out))
