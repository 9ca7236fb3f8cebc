//! What the planning code chooses, given excerpts of real kernels (`tests/fixtures/kernels`). The guest tests confirm on
//! the same kernels that what is chosen here attaches and counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;

use iostackbreakdown::kernel::block::BlockFacts;
use iostackbreakdown::kernel::btf::{BtfFunction, ModuleBtf};
use iostackbreakdown::kernel::kallsyms::Symbols;
use iostackbreakdown::kernel::preemption::{self, Sources};
use iostackbreakdown::kernel::{Facts, Fprobe, Function};
use iostackbreakdown::layer::Layer;
use iostackbreakdown::probe::plan::{
    self, BlockWay, BlockWish, END_FUNCTIONS, Plan, PlannedOp, Start, loses, loses_requests,
};
use iostackbreakdown::probe::{Choice, Hook};

const KERNELS: [&str; 5] = ["5.10", "6.1", "6.1-full", "6.12", "7"];

fn fixture(kernel: &str, name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/kernels", kernel, name]
        .iter()
        .collect();
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The facts of a kernel, as `kernel::gather` would have read them; `command_line` as booted.
fn facts(kernel: &str, command_line: &str, without: &[&str]) -> Facts {
    // All that any choice needs facts about.
    let wanted = plan::functions_of(&Layer::ALL, Choice::Kprobe);
    let names: BTreeSet<&str> = wanted
        .keys()
        .map(String::as_str)
        .filter(|name| !without.contains(name))
        .collect();
    let symbols = Symbols::parse(BufReader::new(fixture(kernel, "kallsyms").as_bytes()), &names).unwrap();
    let btf = fixture(kernel, "btf");
    let types: BTreeSet<&str> = btf.lines().collect();
    let mut functions: BTreeMap<String, Function> = BTreeMap::new();
    for (name, module) in &wanted {
        let known = names.contains(name.as_str());
        let in_vmlinux = types.contains(format!("vmlinux {name}").as_str());
        let in_module = module.filter(|module| types.contains(format!("{module} {name}").as_str()));
        let found = (known && (in_vmlinux || in_module.is_some())).then(|| BtfFunction {
            id: 1,
            args: 1,
            module: in_module.map(|name| ModuleBtf { name, object: None }),
        });
        let is_syscall = name.starts_with("__x64_sys_");
        let symbol = match (known, found.is_some() || is_syscall) {
            (false, _) => Some(false),
            (true, true) => None,
            (true, false) => Some(symbols.is_text(name, *module)),
        };
        functions.insert(name.clone(), Function { btf: found, symbol });
    }
    let preemption = fixture(kernel, "preemption");
    let mut lines = preemption.lines().rev();
    let version = lines.next().map(str::to_owned);
    let debugfs = if command_line.is_empty() {
        lines.next().map(str::to_owned)
    } else {
        None
    };
    Facts {
        functions,
        preemption: preemption::decide(&Sources {
            debugfs,
            version,
            command_line: Some(command_line.to_owned()),
            config: None,
        }),
        fentry: true,
        kprobe: true,
        fprobe: if types.contains("fprobe graph") {
            Fprobe::Graph
        } else if types.contains("fprobe rethook") {
            Fprobe::Rethook
        } else {
            Fprobe::Absent
        },
        session: types.contains("session"),
        tracefs: Some("/sys/kernel/tracing".into()),
        task_storage: types.contains("task_storage"),
        block: block_facts(&btf),
    }
}

/// Lines `tracepoint NAME TYPE...`.
fn block_facts(btf: &str) -> BlockFacts {
    let tracepoint = |line: &str| {
        let mut words = line.strip_prefix("tracepoint ")?.split(' ').map(str::to_owned);
        Some((words.next()?, words.collect()))
    };
    BlockFacts {
        tracepoints: btf.lines().filter_map(tracepoint).collect(),
        codes: BTreeMap::new(),
    }
}

fn planned(kernel: &str, command_line: &str) -> (Plan, Facts) {
    let facts = facts(kernel, command_line, &[]);
    (plan::plan(&Layer::ALL, &facts, Choice::Auto), facts)
}

fn functions_of(plan: &Plan, layer: Layer, op: &str) -> Vec<String> {
    let op = plan
        .ops
        .iter()
        .find(|planned| planned.layer == layer && planned.op.name == op)
        .unwrap();
    let own = op.points.iter().filter(|point| point.silent.is_none());
    own.map(|point| point.function.clone()).collect()
}

#[test]
fn the_first_choice_is_the_cheapest_that_loses_nothing() {
    for (kernel, command_line, functions, syscalls) in [
        ("5.10", "", Hook::Fentry, Hook::RawTracepoint),
        ("6.1", "", Hook::Fentry, Hook::RawTracepoint),
        ("6.1-full", "", Hook::Fentry, Hook::RawTracepoint),
        ("6.12", "", Hook::Fentry, Hook::RawTracepoint),
        ("6.1", "preempt=full", Hook::KprobeEvent, Hook::Tracepoint),
        ("6.12", "preempt=full", Hook::KprobeEvent, Hook::Tracepoint),
        ("7", "", Hook::Session, Hook::Session),
        ("7", "preempt=full", Hook::Session, Hook::Session),
    ] {
        let (plan, facts) = planned(kernel, command_line);
        let name = format!("{kernel} {command_line}");
        assert_eq!(plan.function_hooks.first(), Some(&functions), "{name}");
        assert_eq!(plan.syscall_hooks.first(), Some(&syscalls), "{name}");
        for hook in plan.first_choice() {
            assert_eq!(loses(hook, &facts), None, "{name}: {}", hook.name());
        }
    }
}

#[test]
fn every_op_has_a_function_and_ftrace_knows_those_in_btf() {
    for kernel in KERNELS {
        let (plan, _) = planned(kernel, "");
        let filter = fixture(kernel, "available_filter_functions");
        let traceable: BTreeSet<&str> = filter
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        let of_functions = |op: &&PlannedOp| !matches!(op.layer, Layer::Syscall | Layer::Blk);
        for op in plan.ops.iter().filter(of_functions) {
            assert!(
                !op.points.is_empty() && op.not_measured.is_none(),
                "{kernel}: {}",
                op.op.name
            );
            for point in &op.points {
                assert!(point.in_btf, "{kernel}: {}", point.function);
                assert!(
                    traceable.contains(point.function.as_str()),
                    "{kernel}: {}",
                    point.function
                );
            }
        }
    }
}

#[test]
fn fsync_is_timed_at_whatever_the_kernel_has() {
    for (kernel, expected) in [
        (
            "5.10",
            &["vfs_fsync_range", "vfs_fsync", "__x64_sys_fsync", "__x64_sys_fdatasync"][..],
        ),
        (
            "6.1",
            &["vfs_fsync_range", "vfs_fsync", "__x64_sys_fsync", "__x64_sys_fdatasync"],
        ),
        ("6.12", &["vfs_fsync_range", "vfs_fsync", "do_fsync"]),
        ("7", &["vfs_fsync_range", "vfs_fsync", "do_fsync"]),
    ] {
        let (plan, _) = planned(kernel, "");
        assert_eq!(functions_of(&plan, Layer::Vfs, "fsync"), expected, "{kernel}");
    }
}

#[test]
fn an_op_whose_only_function_is_inlined_is_not_silently_missing() {
    let without = ["vfs_fsync_range", "__x64_sys_fsync", "__x64_sys_fdatasync"];
    let facts = facts("6.1", "", &without);
    let plan = plan::plan(&[Layer::Vfs], &facts, Choice::Auto);
    assert_eq!(functions_of(&plan, Layer::Vfs, "fsync"), ["vfs_fsync"]);
    let fsync = plan.ops.iter().find(|op| op.op.name == "fsync").unwrap();
    assert_eq!(
        fsync.not_measured.as_ref().map(|what| what.what.as_str()),
        Some("most of fsync")
    );
}

#[test]
fn a_system_call_without_arguments_is_in_no_btf_and_left_to_kprobes() {
    let (plan, _) = planned("7", "");
    let sync = plan.ops.iter().find(|op| op.op.name == "sync").unwrap();
    let point = &sync.points[0];
    assert!(!point.in_btf && !point.fits(Hook::Session) && !point.fits(Hook::Fentry) && point.fits(Hook::KprobeEvent));
    assert_eq!(plan.first_choice(), [Hook::Session, Hook::KprobeEvent]);
}

#[test]
fn a_file_system_in_a_module_is_found_in_its_own_btf() {
    let (plan, facts) = planned("6.1-full", "");
    assert_eq!(functions_of(&plan, Layer::Ext4, "read"), ["ext4_file_read_iter"]);
    let function = &facts.functions["ext4_file_read_iter"];
    let module = function
        .btf
        .as_ref()
        .and_then(|btf| btf.module.as_ref())
        .map(|module| module.name);
    assert_eq!(module, Some("ext4"));
    // Before 5.11 modules have no BTF: the symbols tell, and kprobes do.
    let mut facts = facts;
    for (name, function) in &mut facts.functions {
        if name.starts_with("ext4_") {
            *function = Function {
                btf: None,
                symbol: Some(true),
            };
        }
    }
    let plan = plan::plan(&[Layer::Ext4], &facts, Choice::Auto);
    // What is not in the module has BTF all the same: shared functions, and the doors of asynchronous requests.
    assert_eq!(plan.first_choice(), [Hook::Fentry, Hook::KprobeEvent]);
    assert!(plan.ops.iter().all(|op| !op.points.is_empty()));
}

#[test]
fn a_missing_read_falls_back_and_says_what_it_does_not_see() {
    for kernel in KERNELS {
        let facts = facts(kernel, "", &["ext4_file_read_iter"]);
        let plan = plan::plan(&[Layer::Ext4], &facts, Choice::Auto);
        assert_eq!(
            functions_of(&plan, Layer::Ext4, "read"),
            ["generic_file_read_iter"],
            "{kernel}"
        );
        let read = plan.ops.iter().find(|op| op.op.name == "read").unwrap();
        let not_measured = read.not_measured.as_ref().unwrap();
        assert_eq!(not_measured.what, "direct reads");
        assert!(
            not_measured.reason.contains("ext4_file_read_iter"),
            "{}",
            not_measured.reason
        );
        assert_eq!(plan.shared_with().map(|fs| fs.name), Some("ext4"));
    }
    let facts = facts("6.1", "", &["ext4_file_read_iter", "generic_file_read_iter"]);
    let plan = plan::plan(&[Layer::Ext4], &facts, Choice::Auto);
    assert!(functions_of(&plan, Layer::Ext4, "read").is_empty());
    assert_eq!(
        plan.ops[0].not_measured.as_ref().map(|what| what.what.as_str()),
        Some("read")
    );
}

#[test]
fn what_the_kernel_does_not_offer_is_not_tried() {
    let mut facts = facts("7", "", &[]);
    facts.kprobe = false;
    facts.fprobe = Fprobe::Absent;
    facts.tracefs = None;
    let plan = plan::plan(&Layer::ALL, &facts, Choice::Auto);
    // It loses calls here, but there is nothing else.
    assert_eq!(plan.function_hooks, [Hook::Fentry]);
    assert_eq!(plan.syscall_hooks, [Hook::RawTracepoint, Hook::Fentry]);
    let line = plan::check_choice(Choice::KprobeSession, &Layer::ALL, &facts).unwrap_err();
    assert_eq!(
        line,
        "this kernel has no kprobe.session; it offers fentry/fexit, tp_btf"
    );
}

#[test]
fn without_tracefs_a_preemptible_kernel_loses_as_little_as_can_be() {
    let mut facts = facts("6.1", "preempt=full", &[]);
    facts.tracefs = None;
    let plan = plan::plan(&[Layer::Vfs], &facts, Choice::Auto);
    assert_eq!(plan.function_hooks.first(), Some(&Hook::Kprobe));
    assert!(loses(Hook::Kprobe, &facts).is_some());
}

#[test]
fn a_forced_hook_is_the_only_one() {
    let facts = facts("6.12", "preempt=full", &[]);
    let plan = plan::plan(&Layer::ALL, &facts, Choice::Fentry);
    assert_eq!(
        (plan.function_hooks.as_slice(), plan.syscall_hooks.as_slice()),
        (&[Hook::Fentry][..], &[Hook::Fentry][..])
    );
    assert!(loses(Hook::Fentry, &facts).is_some());
    let plan = plan::plan(&[Layer::Vfs], &facts, Choice::Tracepoint);
    assert!(plan.function_hooks.is_empty());
}

fn ways(kernel: &str, wish: BlockWish, choice: Choice) -> Vec<BlockWay> {
    plan::block_ways(wish, &facts(kernel, "", &[]), choice).unwrap()
}

const PLAIN: BlockWish = BlockWish {
    queued: false,
    by_owner: false,
    is_bio_based: false,
    is_uncounted: false,
};
const QUEUED: BlockWish = BlockWish { queued: true, ..PLAIN };
const OWNED: BlockWish = BlockWish {
    by_owner: true,
    ..PLAIN
};
const BIOS: BlockWish = BlockWish {
    is_bio_based: true,
    ..PLAIN
};
const UNCOUNTED: BlockWish = BlockWish {
    is_uncounted: true,
    ..QUEUED
};

#[test]
fn requests_are_seen_by_what_loses_none() {
    for kernel in KERNELS {
        for command_line in ["", "preempt=full"] {
            let facts = facts(kernel, command_line, &[]);
            for wish in [PLAIN, QUEUED, OWNED, BIOS] {
                let way = &plan::block_ways(wish, &facts, Choice::Auto).unwrap()[0];
                let preempted = facts.preemption.is_possible();
                let hook = if preempted { Hook::Kprobe } else { Hook::RawTracepoint };
                assert_eq!((way.hook, way.again), (hook, true), "{kernel} {command_line}: {wish:?}");
                assert_eq!(loses_requests(way, &facts), None, "{kernel} {command_line}: {wish:?}");
                // The event of a start may be skipped, too.
                assert!(
                    !preempted || way.start != Start::Event,
                    "{kernel} {command_line}: {wish:?}"
                );
            }
        }
        let facts = facts(kernel, "", &[]);
        let forced = &plan::block_ways(PLAIN, &facts, Choice::Kprobe).unwrap()[0];
        assert!(loses_requests(forced, &facts).is_some(), "{kernel}");
        for tracepoint in ["block_rq_issue", "block_rq_complete"] {
            assert_eq!(
                facts.block.argument(tracepoint, "request"),
                Some(0),
                "{kernel}: {tracepoint}"
            );
        }
    }
}

/// A kernel without kprobes is left with tracepoints, which are said to lose some where tasks are preempted.
#[test]
fn tracepoints_alone_are_honest() {
    let mut facts = facts("7", "", &[]);
    facts.kprobe = false;
    let ways = plan::block_ways(PLAIN, &facts, Choice::Auto).unwrap();
    assert_eq!(ways[0].hook, Hook::RawTracepoint);
    assert!(loses_requests(&ways[0], &facts).is_some());
}

#[test]
fn a_start_is_taken_from_what_the_kernel_has() {
    for (kernel, tracepoint) in [
        ("5.10", Start::Stamp),
        ("6.1", Start::Stamp),
        ("6.1-full", Start::Stamp),
        ("6.12", Start::Event),
        // Its tasks are preempted.
        ("7", Start::Stamp),
    ] {
        for (wish, stamps) in [(QUEUED, false), (OWNED, true), (UNCOUNTED, true)] {
            let way = &ways(kernel, wish, Choice::Auto)[0];
            let stamps = stamps && tracepoint == Start::Stamp;
            assert_eq!((way.start, way.bio_stamps), (tracepoint, stamps), "{kernel}: {wish:?}");
        }
    }
}

/// 6.12 and 7 have the function in their BTF and refuse a probe on it; then the next way is tried.
#[test]
fn functions_are_used_where_they_were_asked_for() {
    let starts = |kernel| -> Vec<Start> {
        let ways = ways(kernel, QUEUED, Choice::Kprobe);
        assert!(ways.iter().all(|way| way.hook == Hook::Kprobe), "{kernel}");
        ways.iter().map(|way| way.start).collect()
    };
    let function = Start::Function("blk_account_io_start");
    assert_eq!(starts("5.10"), [function, Start::Stamp]);
    assert_eq!(starts("6.1"), [Start::Stamp]);
    assert_eq!(starts("6.12"), [function, Start::Event]);
    assert_eq!(ways("5.10", PLAIN, Choice::Kprobe)[0].ends, [END_FUNCTIONS[0]]);
    assert_eq!(ways("6.1", PLAIN, Choice::Kprobe)[0].ends, END_FUNCTIONS);
}

#[test]
fn a_disk_without_requests_has_its_bios_seen() {
    for kernel in KERNELS {
        let ways = ways(kernel, BIOS, Choice::Auto);
        assert!(
            ways.iter().all(|way| way.is_bio_based && way.start == Start::Unneeded),
            "{kernel}"
        );
        assert!(plan::block_ways(BIOS, &facts(kernel, "", &[]), Choice::Kprobe).is_err());
    }
}

#[test]
fn a_kind_of_hook_that_sees_no_requests_is_refused_for_them() {
    let facts = Facts {
        tracefs: None,
        ..facts("6.12", "", &[])
    };
    let check = |choice, layers: &[Layer]| plan::check_choice(choice, layers, &facts);
    for choice in [Choice::Fentry, Choice::KprobeMulti, Choice::KprobeSession] {
        assert!(
            check(choice, &[Layer::Blk])
                .unwrap_err()
                .contains("does not see requests")
        );
    }
    assert_eq!(check(Choice::Fentry, &[Layer::Vfs, Layer::Blk]), Ok(()));
    assert_eq!(check(Choice::Tracepoint, &[Layer::Blk]), Ok(()));
    assert!(
        check(Choice::Tracepoint, &[Layer::Syscall, Layer::Blk])
            .unwrap_err()
            .contains("tracefs")
    );
    assert!(
        check(Choice::Tracepoint, &[Layer::Vfs, Layer::Blk])
            .unwrap_err()
            .contains("-T blk")
    );
}

#[test]
fn asynchronous_requests_have_doors_and_completions_on_every_kernel() {
    const OWN: [&str; 3] = ["io_complete_rw", "io_complete_rw_iopoll", "aio_complete_rw"];
    for kernel in KERNELS {
        let (plan, _) = planned(kernel, "");
        let fixed: &[&str] = if kernel == "7" { &["io_read_fixed"] } else { &[] };
        let expected = [
            &["vfs_read", "vfs_readv", "vfs_iter_read", "io_read"][..],
            fixed,
            &["aio_read"],
        ];
        assert_eq!(functions_of(&plan, Layer::Vfs, "read"), expected.concat(), "{kernel}");
        // What 5.10 has done at once ends in a function of its own; the others' doors tell.
        let more: &[&str] = if kernel == "5.10" { &["kiocb_done"] } else { &[] };
        let completions: Vec<&str> = plan.completions.iter().map(|end| end.function.as_str()).collect();
        assert_eq!(completions, [&OWN[..], more].concat(), "{kernel}");
        assert!(plan.completions.iter().all(|end| end.in_btf), "{kernel}");
        assert!(
            plan.ops
                .iter()
                .flat_map(|op| &op.points)
                .all(|point| point.silent.is_none())
        );
    }
}

#[test]
fn completions_come_in_interrupts_and_where_tasks_are_preempted_in_two_ways() {
    for (command_line, first) in [
        ("", &[Hook::Fentry][..]),
        ("preempt=full", &[Hook::Fentry, Hook::Kprobe]),
    ] {
        let (plan, _) = planned("6.12", command_line);
        assert_eq!(plan.completion_hooks, [first, &[Hook::Kprobe]], "{command_line}");
    }
    let mut facts = facts("6.12", "", &[]);
    facts.fentry = false;
    let plan = plan::plan(&[Layer::Vfs], &facts, Choice::Auto);
    assert_eq!(plan.completion_hooks, [[Hook::Kprobe]]);
}

#[test]
fn a_file_system_alone_gets_the_doors_without_their_layer() {
    let facts = facts("6.12", "", &[]);
    let plan = plan::plan(&[Layer::Syscall, Layer::Ext4], &facts, Choice::Auto);
    let doors: Vec<(&str, &str, Option<u8>)> = plan
        .ops
        .iter()
        .flat_map(|op| op.points.iter().map(move |point| (op.op.name, point)))
        .filter(|(_, point)| point.silent.is_some())
        .map(|(op, point)| (op, point.function.as_str(), point.silent))
        .collect();
    let frame = doors[0].2;
    assert_eq!(
        doors,
        [
            ("read", "io_read", frame),
            ("read", "aio_read", frame),
            ("write", "io_write", frame),
            ("write", "aio_write", frame)
        ]
    );
    // They are inside of none of the op's calls, and none of its calls is taken for one of them.
    assert!(plan.ops.iter().all(|op| Some(op.frame) != frame));
    assert!(!plan.completions.is_empty());
    let syscalls = plan::plan(&[Layer::Syscall], &facts, Choice::Auto);
    assert!(syscalls.completions.is_empty());
    assert_eq!(syscalls.rows(), syscalls.ops.len());
}

#[test]
fn completions_have_counters_of_their_own() {
    let (plan, _) = planned("6.12", "");
    let rows: Vec<(Layer, &str, usize)> = plan
        .completion_rows()
        .map(|(op, row)| (plan.ops[op].layer, plan.ops[op].op.name, row))
        .collect();
    let first = plan.ops.len();
    let expected = [
        (Layer::Vfs, "read", first),
        (Layer::Vfs, "write", first + 1),
        (Layer::Ext4, "read", first + 2),
        (Layer::Ext4, "write", first + 3),
    ];
    assert_eq!(rows, expected);
    assert_eq!(plan.rows(), first + 4);
}

#[test]
fn a_splice_has_the_frame_of_what_it_calls_and_frames_suffice() {
    use iostackbreakdown::kernel::interface::MAX_FRAMES;
    let (plan, facts) = planned("6.1", "");
    let frame = |name: &str| {
        let op = plan.ops.iter().find(|op| op.layer == Layer::Ext4 && op.op.name == name);
        op.unwrap().frame
    };
    assert_eq!(frame("splice_read"), frame("read"));
    assert_eq!(frame("splice_write"), frame("write"));
    let own = [
        frame("read"),
        frame("write"),
        frame("fault"),
        frame("mkwrite"),
        frame("open"),
    ];
    assert_eq!(BTreeSet::from(own).len(), own.len());
    let alone = plan::plan(&[Layer::Ext4], &facts, Choice::Auto);
    for op in plan.ops.iter().chain(&alone.ops) {
        let silent = op.points.iter().filter_map(|point| point.silent);
        assert!(silent.chain([op.frame]).all(|frame| u32::from(frame) < MAX_FRAMES));
    }
}

#[test]
fn mapped_pages_and_splices_are_timed_at_whatever_the_kernel_has() {
    for (kernel, fault, splice) in [
        ("5.10", "ext4_filemap_fault", "generic_file_splice_read"),
        ("6.1", "filemap_fault", "generic_file_splice_read"),
        ("6.1-full", "filemap_fault", "generic_file_splice_read"),
        ("6.12", "filemap_fault", "ext4_file_splice_read"),
        ("7", "filemap_fault", "ext4_file_splice_read"),
    ] {
        let (plan, _) = planned(kernel, "");
        assert_eq!(functions_of(&plan, Layer::Ext4, "fault"), [fault], "{kernel}");
        assert_eq!(functions_of(&plan, Layer::Ext4, "splice_read"), [splice], "{kernel}");
        let write = functions_of(&plan, Layer::Ext4, "splice_write");
        assert_eq!(write, ["iter_file_splice_write"], "{kernel}");
        assert_eq!(
            functions_of(&plan, Layer::Ext4, "mkwrite"),
            ["ext4_page_mkwrite"],
            "{kernel}"
        );
        assert_eq!(plan.shared_with().map(|fs| fs.name), Some("ext4"), "{kernel}");
    }
}
