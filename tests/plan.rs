//! The choices of the planning code for excerpts of real kernels (`tests/fixtures/kernels`). The guest tests confirm on
//! the same kernels that these choices attach and count.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;

use iostackbreakdown::catalog::{Layer, Op, RECORDED_OPS};
use iostackbreakdown::kernel::block::BlockFacts;
use iostackbreakdown::kernel::btf::{BtfFunction, ModuleBtf, Scan};
use iostackbreakdown::kernel::builder::{FactsBuilder, MachineFacts};
use iostackbreakdown::kernel::kallsyms::Symbols;
use iostackbreakdown::kernel::preemption::{self, Model, Sources};
use iostackbreakdown::kernel::{Facts, Fprobe, Function, SYSCALL_PREFIXES};
use iostackbreakdown::probe::plan::selection::{Finding, Findings, select};
use iostackbreakdown::probe::plan::{
    self, BlockWay, BlockWish, END_FUNCTIONS, Plan, PlannedOp, Start, loses, loses_requests, starts_need_table,
};
use iostackbreakdown::probe::refusal::{Refusal, Refused};
use iostackbreakdown::probe::{Choice, Hook};

const KERNELS: [&str; 5] = ["5.10", "6.1", "6.1-full", "6.12", "7"];

fn fixture(kernel: &str, name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/fixtures/kernels", kernel, name]
        .iter()
        .collect();
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The facts about a kernel, as `kernel::gather` would have read them; `command_line` as booted.
fn facts(kernel: &str, command_line: &str, without: &[&str]) -> Facts {
    // Everything that any choice needs facts about.
    let wanted = plan::functions_of(&Layer::ALL, Choice::Kprobe, true);
    let without: Vec<String> = without.iter().map(|&name| name.to_owned()).collect();
    let builder = FactsBuilder::new(&wanted, &without);
    let names = builder.wanted();
    let symbols = Symbols::parse(BufReader::new(fixture(kernel, "kallsyms").as_bytes()), &names).unwrap();
    let btf = fixture(kernel, "btf");
    let types: BTreeSet<&str> = btf.lines().collect();
    let function = |module: Option<&'static str>| BtfFunction {
        id: 1,
        args: 1,
        module: module.map(|name| ModuleBtf { name, object: None }),
    };
    let is_in = |part: &str, name: &str| types.contains(format!("{part} {name}").as_str());
    let vmlinux = names.iter().filter(|name| is_in("vmlinux", name));
    let scan = Scan {
        functions: vmlinux.map(|name| ((*name).to_owned(), function(None))).collect(),
        fentry: true,
        fsession: types.contains("fsession"),
        fprobe: if types.contains("fprobe graph") {
            Fprobe::Graph
        } else if types.contains("fprobe rethook") {
            Fprobe::Rethook
        } else {
            Fprobe::Absent
        },
        session: types.contains("session"),
        task_storage: types.contains("task_storage"),
        answering_atomics: types.contains("task_storage"),
        block: block_facts(&btf),
        ..Scan::default()
    };
    let mut builder = builder.types(scan);
    for (module, missing) in builder.missing() {
        let found = missing.into_iter().filter(|name| is_in(module, name));
        builder = builder.listed(found.map(|name| (name.to_owned(), function(Some(module)))));
    }
    let preemption = fixture(kernel, "preemption");
    let mut lines = preemption.lines().rev();
    let version = lines.next().map(str::to_owned);
    let debugfs = if command_line.is_empty() {
        lines.next().map(str::to_owned)
    } else {
        None
    };
    let machine = MachineFacts {
        preemption: preemption::decide(&Sources {
            debugfs,
            version,
            command_line: Some(command_line.to_owned()),
            config: None,
        }),
        kprobe: true,
        tracefs: Some("/sys/kernel/tracing".into()),
        lacks_wide_exchange: false,
    };
    let is_text = |name: &str, module: Option<&str>| Ok::<_, Infallible>(symbols.is_text(name, module));
    let builder = builder.symbols(is_text).unwrap_or_else(|never| match never {});
    builder.machine(machine).build()
}

/// Parses lines `tracepoint NAME TYPE...`.
fn block_facts(btf: &str) -> BlockFacts {
    let tracepoint = |line: &str| {
        let mut words = line.strip_prefix("tracepoint ")?.split(' ').map(str::to_owned);
        Some((words.next()?, words.collect()))
    };
    BlockFacts {
        tracepoints: btf.lines().filter_map(tracepoint).collect(),
        ..BlockFacts::default()
    }
}

/// The plan for a machine with ext4 only.
const LAYERS: [Layer; 4] = [Layer::Syscall, Layer::Vfs, Layer::Ext4, Layer::Blk];

fn planned(kernel: &str, command_line: &str) -> (Plan, Facts) {
    let facts = facts(kernel, command_line, &[]);
    (plan::plan(&LAYERS, &facts, Choice::Auto), facts)
}

/// The file systems whose calls of shared functions are filtered.
fn narrowed(plan: &Plan) -> Vec<&'static str> {
    plan.narrowed().map(|(layer, _)| layer.name()).collect()
}

fn functions_of(plan: &Plan, layer: Layer, op: Op) -> Vec<String> {
    let op = plan
        .ops
        .iter()
        .find(|planned| planned.layer == layer && planned.spec.op == op)
        .unwrap();
    let own = op.points.iter().filter(|point| point.suppressed.is_none());
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

/// Functions that ftrace knows, from lines such as `ext4_sync_file [ext4]`.
fn traceable(filter: &str) -> BTreeSet<&str> {
    filter
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[test]
fn every_op_has_a_function_and_ftrace_knows_those_in_btf() {
    for kernel in KERNELS {
        let (plan, _) = planned(kernel, "");
        let filter = fixture(kernel, "available_filter_functions");
        let traceable = traceable(&filter);
        let of_functions = |op: &&PlannedOp| !matches!(op.layer, Layer::Syscall | Layer::Blk);
        for op in plan.ops.iter().filter(of_functions) {
            assert!(
                !op.points.is_empty() && op.not_measured.is_none(),
                "{kernel}: {}",
                op.spec.op
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
fn fsync_is_timed_at_the_functions_that_the_kernel_has() {
    let inlined = &[
        "vfs_fsync_range",
        "vfs_fsync",
        "__x64_sys_fsync",
        "__x64_sys_fdatasync",
        "__ia32_sys_fdatasync",
    ][..];
    for (kernel, expected) in [
        ("5.10", inlined),
        ("6.1", inlined),
        ("6.12", &["vfs_fsync_range", "vfs_fsync", "do_fsync"]),
        ("7", &["vfs_fsync_range", "vfs_fsync", "do_fsync"]),
    ] {
        let (plan, _) = planned(kernel, "");
        assert_eq!(functions_of(&plan, Layer::Vfs, Op::Fsync), expected, "{kernel}");
    }
}

#[test]
fn an_op_whose_only_function_is_inlined_is_reported_as_missing() {
    let without = ["vfs_fsync_range", "__x64_sys_fsync", "__x64_sys_fdatasync"];
    let facts = facts("6.1", "", &without);
    let plan = plan::plan(&[Layer::Vfs], &facts, Choice::Auto);
    assert_eq!(
        functions_of(&plan, Layer::Vfs, Op::Fsync),
        ["vfs_fsync", "__ia32_sys_fdatasync"]
    );
    let fsync = plan.ops.iter().find(|op| op.spec.op == Op::Fsync).unwrap();
    assert_eq!(
        fsync.not_measured.as_ref().map(|what| what.what.as_str()),
        Some("most fsync calls")
    );
}

#[test]
fn a_system_call_without_arguments_is_hooked_by_the_name_that_btf_has() {
    let sync_of = |plan: &Plan| {
        let sync = plan.ops.iter().find(|op| op.spec.op == Op::Sync).unwrap();
        sync.points[0].clone()
    };
    let (plan, _) = planned("7", "");
    let point = sync_of(&plan);
    assert_eq!(point.function, "__do_sys_sync");
    assert!(point.in_btf && point.fits(Hook::Session));

    let facts = facts("7", "", &["__do_sys_sync"]);
    let plan = plan::plan(&LAYERS, &facts, Choice::Auto);
    let point = sync_of(&plan);
    assert_eq!(point.function, "__x64_sys_sync");
    assert!(!point.in_btf && !point.fits(Hook::Session) && !point.fits(Hook::Fentry) && point.fits(Hook::KprobeEvent));
    assert_eq!(plan.first_choice(), [Hook::Session, Hook::KprobeEvent]);
}

#[test]
fn a_file_system_in_a_module_is_found_in_its_own_btf() {
    let (plan, facts) = planned("6.1-full", "");
    assert_eq!(functions_of(&plan, Layer::Ext4, Op::Read), ["ext4_file_read_iter"]);
    let function = &facts.functions["ext4_file_read_iter"];
    let module = function
        .btf
        .as_ref()
        .and_then(|btf| btf.module.as_ref())
        .map(|module| module.name);
    assert_eq!(module, Some("ext4"));
    // Before 5.11 modules have no BTF: only symbols show that they exist, and kprobes are used.
    let mut facts = facts;
    for (name, function) in &mut facts.functions {
        if name.starts_with("ext4_") {
            *function = Function {
                btf: None,
                symbol: Some(true),
                address: None,
            };
        }
    }
    let plan = plan::plan(&[Layer::Ext4], &facts, Choice::Auto);
    // Functions outside the module have BTF nevertheless: shared functions, and asynchronous entry points.
    assert_eq!(plan.first_choice(), [Hook::Fentry, Hook::KprobeEvent]);
    assert!(plan.ops.iter().all(|op| !op.points.is_empty()));
}

#[test]
fn a_missing_read_falls_back_and_names_the_calls_that_it_misses() {
    for kernel in KERNELS {
        let facts = facts(kernel, "", &["ext4_file_read_iter"]);
        let plan = plan::plan(&[Layer::Ext4], &facts, Choice::Auto);
        assert_eq!(
            functions_of(&plan, Layer::Ext4, Op::Read),
            ["generic_file_read_iter"],
            "{kernel}"
        );
        let read = plan.ops.iter().find(|op| op.spec.op == Op::Read).unwrap();
        let not_measured = read.not_measured.as_ref().unwrap();
        assert_eq!(not_measured.what, "direct reads");
        assert!(
            not_measured.reason.contains("ext4_file_read_iter"),
            "{}",
            not_measured.reason
        );
        assert_eq!(narrowed(&plan), ["ext4"]);
    }
    let facts = facts("6.1", "", &["ext4_file_read_iter", "generic_file_read_iter"]);
    let plan = plan::plan(&[Layer::Ext4], &facts, Choice::Auto);
    assert!(functions_of(&plan, Layer::Ext4, Op::Read).is_empty());
    assert_eq!(
        plan.ops[0].not_measured.as_ref().map(|what| what.what.as_str()),
        Some("read")
    );
}

/// A start in a cookie is enough for reads and writes of vfs made by system calls; all others have frames.
#[test]
fn fsession_is_chosen_without_preemption_where_a_cookie_is_enough() {
    let mut facts = facts("7", "", &[]);
    let hooks = |facts: &Facts, choice| plan::plan(&[Layer::Vfs], facts, choice).function_hooks;
    assert_eq!(hooks(&facts, Choice::Auto).first(), Some(&Hook::Session));
    assert!(loses(Hook::Fsession, &facts).is_some() && starts_need_table(&[Hook::Fsession], &facts));
    assert_eq!(hooks(&facts, Choice::Fsession), [Hook::Fsession, Hook::Fentry]);
    facts.preemption.model = Model::None;
    assert_eq!(hooks(&facts, Choice::Auto)[..2], [Hook::Fsession, Hook::Fentry]);
    assert_eq!(loses(Hook::Fsession, &facts), None);
    let mut plan = plan::plan(&LAYERS, &facts, Choice::Auto);
    let points = plan.ops.iter().flat_map(|op| &op.points);
    let in_cookies = points.filter(|point| point.fits(Hook::Fsession));
    let in_cookies: Vec<&str> = in_cookies.map(|point| point.function.as_str()).collect();
    assert_eq!(in_cookies, ["vfs_read", "vfs_readv", "vfs_write", "vfs_writev"]);
    assert!(plan.first_choice().contains(&Hook::Fsession));
    plan.keep_frames();
    assert_eq!(plan.function_hooks.first(), Some(&Hook::Fentry));
    assert!(!plan.first_choice().contains(&Hook::Fsession));
    let mut points = plan.ops.iter().flat_map(|op| &op.points);
    assert!(!points.any(|planned| planned.starts_in_cookie));
    for kernel in ["5.10", "6.1", "6.12"] {
        let facts = self::facts(kernel, "", &[]);
        assert!(
            plan::check_choice(Choice::Fsession, &LAYERS, &facts).is_err(),
            "{kernel}"
        );
    }
    let line = plan::check_choice(Choice::Fsession, &[Layer::Ext4], &facts).unwrap_err();
    assert!(line.contains("-T vfs"), "{line}");
}

#[test]
fn hooks_that_the_kernel_lacks_are_not_tried() {
    let mut facts = facts("7", "", &[]);
    facts.kprobe = false;
    facts.fprobe = Fprobe::Absent;
    facts.tracefs = None;
    facts.fsession = false;
    let plan = plan::plan(&Layer::ALL, &facts, Choice::Auto);
    // fentry loses calls here, but the kernel has no better hook.
    assert_eq!(plan.function_hooks, [Hook::Fentry]);
    assert_eq!(plan.syscall_hooks, [Hook::RawTracepoint, Hook::Fentry]);
    let line = plan::check_choice(Choice::KprobeSession, &Layer::ALL, &facts).unwrap_err();
    assert_eq!(
        line,
        "this kernel has no kprobe-session; values of --probe that may work: fentry, raw-tracepoint"
    );
}

#[test]
fn without_tracefs_a_preemptible_kernel_uses_the_hook_that_loses_least() {
    let mut facts = facts("6.1", "preempt=full", &[]);
    facts.tracefs = None;
    let plan = plan::plan(&[Layer::Vfs], &facts, Choice::Auto);
    assert_eq!(plan.function_hooks.first(), Some(&Hook::Kprobe));
    assert!(loses(Hook::Kprobe, &facts).is_some());
}

#[test]
fn starts_are_in_a_table_if_task_storage_would_lose_them() {
    for (command_line, hook, in_table) in [
        ("preempt=full", Hook::Fentry, true),
        ("preempt=full", Hook::KprobeEvent, false),
        ("", Hook::Fentry, false),
    ] {
        let facts = facts("6.1", command_line, &[]);
        assert_eq!(
            starts_need_table(&[hook], &facts),
            in_table,
            "{command_line} {}",
            hook.name()
        );
        let refused = Facts {
            storage_refused: true,
            ..facts
        };
        assert!(starts_need_table(&[hook], &refused));
    }
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

const REQUESTS_ONLY: BlockWish = BlockWish {
    queued: false,
    by_owner: false,
    by_submitter: false,
    is_bio_based: false,
    is_uncounted: false,
    whole_stack: false,
    records: false,
};
const QUEUED: BlockWish = BlockWish {
    queued: true,
    ..REQUESTS_ONLY
};
const OWNED: BlockWish = BlockWish {
    by_owner: true,
    ..REQUESTS_ONLY
};
const GROUPED: BlockWish = BlockWish {
    by_submitter: true,
    ..REQUESTS_ONLY
};
const BIOS: BlockWish = BlockWish {
    is_bio_based: true,
    ..REQUESTS_ONLY
};
const UNCOUNTED: BlockWish = BlockWish {
    is_uncounted: true,
    ..QUEUED
};

#[test]
fn requests_are_traced_by_a_way_that_loses_none() {
    for kernel in KERNELS {
        for command_line in ["", "preempt=full"] {
            let facts = facts(kernel, command_line, &[]);
            for wish in [REQUESTS_ONLY, QUEUED, OWNED, GROUPED, BIOS] {
                let way = &plan::block_ways(wish, &facts, Choice::Auto).unwrap()[0];
                let preempted = facts.preemption.is_possible();
                let hook = if preempted { Hook::Kprobe } else { Hook::RawTracepoint };
                assert_eq!((way.hook, way.again), (hook, true), "{kernel} {command_line}: {wish:?}");
                assert_eq!(loses_requests(way, &facts), None, "{kernel} {command_line}: {wish:?}");
                // The tracepoint of a start may be skipped as well.
                assert!(
                    !preempted || way.start != Start::Event,
                    "{kernel} {command_line}: {wish:?}"
                );
            }
        }
        let facts = facts(kernel, "", &[]);
        let forced = &plan::block_ways(REQUESTS_ONLY, &facts, Choice::Kprobe).unwrap()[0];
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

/// A kernel without kprobes is left with tracepoints, which are reported as lossy where tasks are preempted.
#[test]
fn tracepoints_alone_admit_their_losses() {
    let mut facts = facts("7", "", &[]);
    facts.kprobe = false;
    let ways = plan::block_ways(REQUESTS_ONLY, &facts, Choice::Auto).unwrap();
    assert_eq!(ways[0].hook, Hook::RawTracepoint);
    assert!(loses_requests(&ways[0], &facts).is_some());
}

#[test]
fn the_source_of_starts_depends_on_the_kernel() {
    for (kernel, tracepoint) in [
        ("5.10", Start::Stamp),
        ("6.1", Start::Stamp),
        ("6.1-full", Start::Stamp),
        ("6.12", Start::Event),
        // This kernel preempts tasks inside the kernel.
        ("7", Start::Stamp),
    ] {
        for (wish, stamps) in [(QUEUED, false), (OWNED, true), (GROUPED, true), (UNCOUNTED, true)] {
            let way = &ways(kernel, wish, Choice::Auto)[0];
            let stamps = stamps && tracepoint == Start::Stamp;
            assert_eq!((way.start, way.bio_stamps), (tracepoint, stamps), "{kernel}: {wish:?}");
        }
    }
}

/// Where nothing else depends on the submitter, no event of each request is needed for it.
#[test]
fn records_alone_see_bios_when_they_are_split() {
    let records = BlockWish {
        records: true,
        ..REQUESTS_ONLY
    };
    let of_a_process = BlockWish { records: true, ..OWNED };
    let in_stack = BlockWish {
        whole_stack: true,
        ..records
    };
    for kernel in KERNELS {
        let by_splits = [records, of_a_process, in_stack].map(|wish| ways(kernel, wish, Choice::Auto)[0].by_splits);
        assert_eq!(by_splits, [true, false, false], "{kernel}");
        let alone = [records, of_a_process, in_stack].map(|wish| {
            let way = &ways(kernel, wish, Choice::Auto)[0];
            (way.is_by_both(), way.submits_at_function())
        });
        // Where tasks are preempted, and no other program finds the bios that one has missed.
        assert_eq!(alone.map(|(_, alone)| alone), [alone[0].0, false, false], "{kernel}");
    }
    let mut facts = facts("6.1", "", &[]);
    facts.block.tracepoints.remove("block_split");
    let ways = plan::block_ways(records, &facts, Choice::Auto).unwrap();
    assert!(!ways[0].by_splits && ways[0].bio_stamps);
}

/// Other sources have the start of a request, but not which task waits for it.
#[test]
fn the_whole_stack_traces_each_bio_from_its_submission_on() {
    let wish = BlockWish {
        whole_stack: true,
        ..REQUESTS_ONLY
    };
    for kernel in KERNELS {
        for choice in [Choice::Auto, Choice::Kprobe, Choice::RawTracepoint] {
            let ways = ways(kernel, wish, choice);
            let stamped = |way: &BlockWay| way.bio_stamps && way.start == Start::Stamp;
            assert!(!ways.is_empty() && ways.iter().all(stamped), "{kernel} {choice:?}");
        }
    }
}

#[test]
fn functions_with_a_row_are_those_that_the_kernel_has() {
    let mut facts = facts("6.12", "", &[]);
    assert!(plan::plan(&LAYERS, &facts, Choice::Auto).row_functions.is_empty());
    let names = |layers: &[Layer]| -> Vec<String> {
        plan::functions_of_rows(layers, Choice::Auto)
            .map(|(name, _)| name)
            .collect()
    };
    let wanted = names(&Layer::ALL);
    assert_eq!(plan::functions_of_rows(&Layer::ALL, Choice::Tracepoint).count(), 0);
    // Functions of file systems that are not measured are not looked up.
    let of_tmpfs = |name: &String| name.starts_with("shmem_");
    assert!(wanted.iter().any(of_tmpfs) && !names(&LAYERS).iter().any(of_tmpfs));
    assert!(names(&LAYERS).iter().any(|name| name == "ext4_lookup"));
    for name in wanted {
        let exists = matches!(name.as_str(), "jbd2_log_wait_commit" | "xfs_vn_lookup");
        let function = Function {
            btf: None,
            symbol: Some(exists),
            address: None,
        };
        facts.functions.insert(name, function);
    }
    let plan = plan::plan(&Layer::ALL, &facts, Choice::Auto);
    let names: Vec<&str> = plan.row_functions.iter().map(|row| row.function.function).collect();
    assert_eq!(names, ["jbd2_log_wait_commit", "xfs_vn_lookup"]);
    let fits = |hook| plan.row_functions.iter().all(|row| row.fits(hook));
    assert!(fits(Hook::Kprobe) && !fits(Hook::Fentry));
}

/// 6.12 and 7 have the function in their BTF and refuse a probe on it; then the next candidate is tried.
#[test]
fn requested_kprobes_are_used_for_requests() {
    let starts = |kernel| -> Vec<Start> {
        let ways = ways(kernel, QUEUED, Choice::Kprobe);
        assert!(ways.iter().all(|way| way.hook == Hook::Kprobe), "{kernel}");
        ways.iter().map(|way| way.start).collect()
    };
    let function = Start::Function("blk_account_io_start");
    assert_eq!(starts("5.10"), [function, Start::Stamp]);
    assert_eq!(starts("6.1"), [Start::Stamp]);
    assert_eq!(starts("6.12"), [function, Start::Event]);
    assert_eq!(ways("5.10", REQUESTS_ONLY, Choice::Kprobe)[0].ends, [END_FUNCTIONS[0]]);
    assert_eq!(ways("6.1", REQUESTS_ONLY, Choice::Kprobe)[0].ends, END_FUNCTIONS);
}

#[test]
fn a_disk_without_requests_is_traced_by_its_bios() {
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
fn a_hook_that_cannot_trace_requests_is_refused_for_them() {
    let facts = Facts {
        tracefs: None,
        ..facts("6.12", "", &[])
    };
    let check = |choice, layers: &[Layer]| plan::check_choice(choice, layers, &facts);
    for choice in [Choice::Fentry, Choice::KprobeMulti, Choice::KprobeSession] {
        assert!(
            check(choice, &[Layer::Blk])
                .unwrap_err()
                .contains("cannot measure requests")
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
fn asynchronous_requests_have_entry_points_and_completions_on_every_kernel() {
    const OWN: [&str; 3] = ["io_complete_rw", "io_complete_rw_iopoll", "aio_complete_rw"];
    for kernel in KERNELS {
        let (plan, _) = planned(kernel, "");
        let fixed: &[&str] = if kernel == "7" { &["io_read_fixed"] } else { &[] };
        let expected = [
            &["vfs_read", "vfs_readv", "vfs_iter_read", "io_read"][..],
            fixed,
            &["aio_read"],
        ];
        assert_eq!(functions_of(&plan, Layer::Vfs, Op::Read), expected.concat(), "{kernel}");
        // On 5.10, requests that complete at once end in a function of their own; elsewhere they end with the return of
        // the entry point.
        let more: &[&str] = if kernel == "5.10" { &["kiocb_done"] } else { &[] };
        let completions: Vec<&str> = plan.completions.iter().map(|end| end.function.as_str()).collect();
        assert_eq!(completions, [&OWN[..], more].concat(), "{kernel}");
        assert!(plan.completions.iter().all(|end| end.in_btf), "{kernel}");
        assert_eq!(plan.failure.is_some(), kernel != "5.10", "{kernel}");
        assert!(
            plan.ops
                .iter()
                .flat_map(|op| &op.points)
                .all(|point| point.suppressed.is_none())
        );
    }
}

#[test]
fn completions_run_in_interrupts_and_have_two_programs_each() {
    for (command_line, first) in [
        ("", [Hook::Fentry, Hook::Fentry]),
        ("preempt=full", [Hook::Fentry, Hook::Kprobe]),
    ] {
        let (plan, _) = planned("6.12", command_line);
        assert_eq!(plan.completion_hooks, [&first[..], &[Hook::Kprobe]], "{command_line}");
    }
    let (plan, _) = planned("7", "");
    let sets = [
        &[Hook::Fentry, Hook::Session][..],
        &[Hook::Fentry, Hook::Kprobe],
        &[Hook::Kprobe],
    ];
    assert_eq!(plan.completion_hooks, sets);
    let mut facts = facts("6.12", "", &[]);
    facts.fentry = false;
    let plan = plan::plan(&[Layer::Vfs], &facts, Choice::Auto);
    assert_eq!(plan.completion_hooks, [[Hook::Kprobe]]);
}

/// A link at entries only can crash a kernel that keeps returns on each task's stack.
#[test]
fn no_link_at_entries_only_where_returns_are_on_the_stack() {
    for kernel in KERNELS {
        for command_line in ["", "preempt=full"] {
            let facts = facts(kernel, command_line, &[]);
            let is_graph = facts.fprobe == Fprobe::Graph;
            assert_eq!(is_graph, kernel.starts_with('7'), "{kernel}");
            for choice in [Choice::Auto, Choice::Kprobe] {
                let plan = plan::plan(&[Layer::Vfs, Layer::Ext4], &facts, choice);
                let hooks = plan.function_hooks.iter().chain(plan.completion_hooks.iter().flatten());
                let has_link = hooks.clone().any(|hook| *hook == Hook::Multi);
                assert!(!is_graph || !has_link, "{kernel} {choice:?}");
            }
            let refused = plan::check_choice(Choice::KprobeMulti, &[Layer::Vfs], &facts).err();
            let has_reason = refused.is_some_and(|line| line.contains("can crash this kernel"));
            assert_eq!(has_reason, is_graph, "{kernel}");
        }
    }
}

#[test]
fn a_file_system_without_vfs_has_suppressed_entry_points() {
    let facts = facts("6.12", "", &[]);
    let plan = plan::plan(&[Layer::Syscall, Layer::Ext4], &facts, Choice::Auto);
    let async_entries: Vec<(Op, &str, Option<u8>)> = plan
        .ops
        .iter()
        .flat_map(|op| op.points.iter().map(move |point| (op.spec.op, point)))
        .filter(|(_, point)| point.suppressed.is_some())
        .map(|(op, point)| (op, point.function.as_str(), point.suppressed))
        .collect();
    let frame = async_entries[0].2;
    assert_eq!(
        async_entries,
        [
            (Op::Read, "io_read", frame),
            (Op::Read, "aio_read", frame),
            (Op::Write, "io_write", frame),
            (Op::Write, "aio_write", frame)
        ]
    );
    // They are not nested in the op's calls, nor the op's calls in them.
    assert!(plan.ops.iter().all(|op| Some(op.frame) != frame));
    assert!(!plan.completions.is_empty());
    let syscalls = plan::plan(&[Layer::Syscall], &facts, Choice::Auto);
    assert!(syscalls.completions.is_empty());
    assert_eq!(syscalls.counters(), syscalls.ops.len());
}

#[test]
fn completions_have_counters_of_their_own() {
    let (plan, _) = planned("6.12", "");
    let rows: Vec<(Layer, Op, usize)> = plan
        .completion_counters()
        .map(|(op, row)| (plan.ops[op].layer, plan.ops[op].spec.op, row))
        .collect();
    let first = plan.ops.len();
    let expected = [
        (Layer::Vfs, Op::Read, first),
        (Layer::Vfs, Op::Write, first + 1),
        (Layer::Ext4, Op::Read, first + 2),
        (Layer::Ext4, Op::Write, first + 3),
    ];
    assert_eq!(rows, expected);
    assert_eq!(plan.counters(), first + 4);
}

#[test]
fn a_splice_shares_the_frame_of_its_callee_and_frames_suffice() {
    use iostackbreakdown::kernel::interface::MAX_FRAMES;
    let (plan, facts) = planned("6.1", "");
    let frame = |op: Op| {
        let planned = plan
            .ops
            .iter()
            .find(|known| known.layer == Layer::Ext4 && known.spec.op == op);
        planned.unwrap().frame
    };
    assert_eq!(frame(Op::SpliceRead), frame(Op::Read));
    assert_eq!(frame(Op::SpliceWrite), frame(Op::Write));
    let own = [
        frame(Op::Read),
        frame(Op::Write),
        frame(Op::Fault),
        frame(Op::Mkwrite),
        frame(Op::Open),
    ];
    assert_eq!(BTreeSet::from(own).len(), own.len());
    let alone = plan::plan(&[Layer::Ext4], &facts, Choice::Auto);
    for op in plan.ops.iter().chain(&alone.ops) {
        let suppressed = op.points.iter().filter_map(|point| point.suppressed);
        assert!(suppressed.chain([op.frame]).all(|frame| u32::from(frame) < MAX_FRAMES));
    }
}

#[test]
fn mapped_pages_and_splices_are_timed_at_the_functions_that_the_kernel_has() {
    for (kernel, fault, splice) in [
        ("5.10", "ext4_filemap_fault", "generic_file_splice_read"),
        ("6.1", "filemap_fault", "generic_file_splice_read"),
        ("6.1-full", "filemap_fault", "generic_file_splice_read"),
        ("6.12", "filemap_fault", "ext4_file_splice_read"),
        ("7", "filemap_fault", "ext4_file_splice_read"),
    ] {
        let (plan, _) = planned(kernel, "");
        assert_eq!(functions_of(&plan, Layer::Ext4, Op::Fault), [fault], "{kernel}");
        assert_eq!(functions_of(&plan, Layer::Ext4, Op::SpliceRead), [splice], "{kernel}");
        let write = functions_of(&plan, Layer::Ext4, Op::SpliceWrite);
        assert_eq!(write, ["iter_file_splice_write"], "{kernel}");
        assert_eq!(
            functions_of(&plan, Layer::Ext4, Op::Mkwrite),
            ["ext4_page_mkwrite"],
            "{kernel}"
        );
        assert_eq!(narrowed(&plan), ["ext4"], "{kernel}");
    }
}

/// The file systems whose modules each kernel includes.
fn file_systems(kernel: &str) -> Vec<Layer> {
    // Debian's cloud kernels do not include f2fs.
    Layer::file_systems()
        .filter(|layer| *layer != Layer::F2fs || kernel == "6.1-full")
        .collect()
}

#[test]
fn every_file_system_has_all_its_ops_on_every_kernel_that_has_it() {
    for kernel in KERNELS {
        let facts = facts(kernel, "", &[]);
        let layers = file_systems(kernel);
        assert_eq!(plan::check_file_systems(&layers, &facts), Ok(()), "{kernel}");
        let plan = plan::plan(&layers, &facts, Choice::Auto);
        let filter = fixture(kernel, "available_filter_functions");
        let traceable = traceable(&filter);
        for op in &plan.ops {
            let name = format!("{kernel} {} {}", op.layer.name(), op.spec.op);
            // Before 6.6 tmpfs has no function for opens.
            let is_absent = (op.layer, op.spec.op) == (Layer::Tmpfs, Op::Open) && !["6.12", "7"].contains(&kernel);
            assert_eq!(op.points.is_empty(), is_absent, "{name}");
            let missing = op.not_measured.as_ref().map(|missing| missing.reason.as_str());
            let reason = "shmem_file_open: not in this kernel";
            assert_eq!(missing, is_absent.then_some(reason), "{name}");
            assert!(
                op.points.iter().all(|planned| traceable.contains(&*planned.function)),
                "{name}"
            );
            let own = op.points.iter().filter(|planned| planned.suppressed.is_none());
            // Two entry points for the same call would be one too many; an open by NFS has several.
            assert!(
                own.count() == 1 || is_absent || (op.layer == Layer::Nfs && op.spec.op == Op::Open),
                "{name}"
            );
        }
        // Before 5.11 modules have no BTF.
        let hooks = if kernel == "5.10" {
            vec![Hook::Fentry, Hook::KprobeEvent]
        } else {
            vec![plan.function_hooks[0]]
        };
        assert_eq!(plan.first_choice(), hooks, "{kernel}");
    }
}

#[test]
fn shared_functions_are_filtered_by_file_system() {
    let shared = |kernel| {
        let plan = plan::plan(&file_systems(kernel), &facts(kernel, "", &[]), Choice::Auto);
        let points = plan
            .ops
            .iter()
            .flat_map(|op| op.points.iter().map(move |planned| (op, planned)));
        let shared = points.filter(|(_, planned)| planned.point.shared);
        let names = shared.map(|(op, planned)| format!("{} {}", planned.function, op.layer.name()));
        names.collect::<BTreeSet<String>>()
    };
    let of = |function: &str, layers: &[&str]| -> Vec<String> {
        layers.iter().map(|layer| format!("{function} {layer}")).collect()
    };
    let all = ["ext4", "xfs", "btrfs", "nfs", "tmpfs"];
    let with_f2fs = ["ext4", "xfs", "btrfs", "f2fs", "nfs", "overlay", "tmpfs"];
    let without_overlay = ["ext4", "xfs", "btrfs", "f2fs", "nfs", "tmpfs"];
    for (kernel, expected) in [
        (
            "6.1-full",
            vec![
                of("generic_file_splice_read", &with_f2fs),
                of("iter_file_splice_write", &without_overlay),
                of("filemap_fault", &["ext4", "btrfs", "nfs"]),
                of("generic_file_write_iter", &["tmpfs"]),
                of("noop_fsync", &["tmpfs"]),
            ],
        ),
        (
            "6.12",
            vec![
                of("filemap_splice_read", &["btrfs"]),
                of("iter_file_splice_write", &all),
                of("filemap_fault", &["ext4", "btrfs", "nfs"]),
                of("noop_fsync", &["tmpfs"]),
            ],
        ),
        (
            "7",
            vec![
                of("iter_file_splice_write", &all),
                of("filemap_fault", &["ext4", "btrfs", "nfs"]),
                of("noop_fsync", &["tmpfs"]),
            ],
        ),
    ] {
        assert_eq!(shared(kernel), expected.into_iter().flatten().collect(), "{kernel}");
    }
    let facts = facts("7", "", &[]);
    let plan = plan::plan(&file_systems("7"), &facts, Choice::Auto);
    assert_eq!(narrowed(&plan), all);
}

/// overlayfs calls the functions of the file systems below it, which may be another overlayfs.
#[test]
fn overlayfs_has_frames_of_its_own() {
    use iostackbreakdown::catalog::{Files, Shape};
    let facts = facts("7", "", &[]);
    let plan = plan::plan(
        &[Layer::Vfs, Layer::Ext4, Layer::Overlay, Layer::Tmpfs],
        &facts,
        Choice::Auto,
    );
    let frames = |layer| -> BTreeSet<u8> {
        let ops = plan.ops.iter().filter(|op| op.layer == layer);
        ops.map(|op| op.frame).collect()
    };
    for below in [Layer::Ext4, Layer::Vfs] {
        assert!(frames(Layer::Overlay).is_disjoint(&frames(below)), "{below}");
    }
    assert!(frames(Layer::Tmpfs).is_subset(&frames(Layer::Ext4)));
    let is_outermost = |layer| {
        let op = plan
            .ops
            .iter()
            .find(|op| op.layer == layer && op.spec.op == Op::Read)
            .unwrap();
        let word = op.word(0, op.points[0].point, Files::None);
        assert_eq!(word.shape, Shape::Kiocb0);
        word.outermost
    };
    assert!(is_outermost(Layer::Ext4) && !is_outermost(Layer::Overlay));
}

#[test]
fn more_ops_than_a_run_can_count_are_refused() {
    let facts = facts("7", "", &[]);
    let mut plan = plan::plan(&Layer::ALL, &facts, Choice::Auto);
    assert_eq!(plan::check_room(&plan), Ok(()));
    let another = plan.ops[0].clone();
    plan.ops.resize(300, another);
    let line = plan::check_room(&plan).unwrap_err();
    assert!(line.contains("a run counts 256 at most; name fewer"), "{line}");
}

#[test]
fn calls_for_records_are_planned_only_by_runs_that_record() {
    let facts = facts("7", "", &[]);
    let is_its = |op: &&PlannedOp| op.layer == Layer::Syscall && RECORDED_OPS.iter().any(|spec| spec.op == op.spec.op);
    let planned = |is_recorded| plan::plan_of(&Layer::ALL, &facts, Choice::Auto, is_recorded);
    assert_eq!(planned(false).ops.iter().filter(is_its).count(), 0);
    assert_eq!(planned(true).ops.iter().filter(is_its).count(), RECORDED_OPS.len());
    assert_eq!(plan::check_room(&planned(true)), Ok(()));
    let functions = |is_recorded| plan::functions_of(&[Layer::Syscall], Choice::Auto, is_recorded);
    let added = functions(true).len() - functions(false).len();
    assert!(added >= 2 * RECORDED_OPS.len(), "{added} with those of 32-bit programs");
}

#[test]
fn file_systems_share_frames_and_entry_points() {
    use iostackbreakdown::kernel::interface::MAX_FRAMES;
    let facts = facts("6.1-full", "", &[]);
    let of = |layers: &[Layer]| plan::plan(layers, &facts, Choice::Auto);
    for layers in [&Layer::ALL[..], &file_systems("6.1-full")] {
        let plan = of(layers);
        let suppressed = plan
            .ops
            .iter()
            .flat_map(|op| &op.points)
            .filter_map(|point| point.suppressed);
        let frames = plan.ops.iter().map(|op| op.frame).chain(suppressed);
        assert!(frames.max() < Some(MAX_FRAMES as u8));
        let frame = |layer| {
            plan.ops
                .iter()
                .find(|op| op.layer == layer && op.spec.op == Op::Fsync)
                .unwrap()
                .frame
        };
        assert_eq!(frame(Layer::Nfs), frame(Layer::Ext4));
    }
    // An asynchronous request enters once, whichever file system it is for.
    let plan = of(&[Layer::Xfs, Layer::Nfs]);
    let async_entries = plan
        .ops
        .iter()
        .flat_map(|op| &op.points)
        .filter(|point| point.suppressed.is_some());
    let async_entries: Vec<&str> = async_entries.map(|point| point.function.as_str()).collect();
    assert_eq!(async_entries, ["io_read", "aio_read", "io_write", "aio_write"]);
}

#[test]
fn a_file_system_that_is_not_in_the_kernel_has_nothing_to_hook() {
    let facts = facts("6.12", "", &[]);
    let named = |layers: &[Layer]| plan::check_file_systems(layers, &facts);
    assert_eq!(named(&[Layer::Syscall, Layer::Ext4, Layer::Nfs]), Ok(()));
    assert_eq!(
        named(&[Layer::Ext4, Layer::F2fs]).unwrap_err(),
        "-T f2fs: the module f2fs is not loaded; mount such a file system first, or run: modprobe f2fs"
    );
    // Shared functions are not hooked for it, either.
    let plan = plan::plan(&[Layer::Ext4, Layer::F2fs], &facts, Choice::Auto);
    assert_eq!(narrowed(&plan), ["ext4"]);
    for op in plan.ops.iter().filter(|op| op.layer == Layer::F2fs) {
        let why = op.not_measured.as_ref().map(|what| what.reason.as_str());
        assert!(
            op.points.is_empty() && why == Some("there is no f2fs in this kernel"),
            "{}",
            op.spec.op
        );
    }
}

/// Debian's kernel for arm64 has the same functions as the same version for x86-64, and system calls under the names of
/// that architecture; calls that newer architectures lack have an op on x86-64 only.
#[test]
fn arm64_has_the_same_functions_by_its_own_names() {
    let types = |kernel| fixture(kernel, "btf");
    let (x86, arm) = (types("6.12"), types("6.12-arm64"));
    let of = |text: &'static str| move |line: &&str| line.starts_with(text);
    let on_arm: BTreeSet<&str> = arm.lines().collect();
    let [x86_prefix, arm_prefix] = SYSCALL_PREFIXES;
    let mut seen = 0;
    // The alternative name of a call without arguments exists on x86-64 only.
    let named = |line: &&str| of("vmlinux ")(line) && !line.contains(" __do_sys_");
    for line in x86.lines().filter(named) {
        let same = line.replace(x86_prefix, arm_prefix);
        assert!(on_arm.contains(same.as_str()), "{same}");
        seen += 1;
    }
    assert!(seen > 30, "{seen}");

    let calls = Layer::Syscall.ops().iter().map(|op| op.points[0].function);
    let absent = calls.filter(|function| !on_arm.contains(format!("vmlinux {arm_prefix}{function}").as_str()));
    let of_x86 = [
        "open",
        "creat",
        "newstat",
        "newlstat",
        "access",
        "getdents",
        "rename",
        "unlink",
        "rmdir",
        "link",
        "symlink",
        "mkdir",
        "mknod",
        "readlink",
        "chmod",
        "chown",
        "lchown",
        "utime",
        "utimes",
        "futimesat",
    ];
    // Calls that exist since 6.13.
    let is_newer = |function: &str| function.ends_with("xattrat");
    let absent: BTreeSet<&str> = absent.filter(|function| !is_newer(function)).collect();
    assert_eq!(absent, BTreeSet::from(of_x86));
}

fn after(findings: &[Finding]) -> Findings {
    let mut all = Findings::default();
    findings.iter().cloned().for_each(|finding| all.add(finding));
    all
}

#[test]
fn the_best_alternative_of_a_plan_is_tried_first_and_the_next_one_after_a_refusal() {
    let facts = facts("6.12", "", &[]);
    let mut plan = plan::plan(&LAYERS, &facts, Choice::Auto);
    plan.block_ways = plan::block_ways(REQUESTS_ONLY, &facts, Choice::Auto).unwrap();
    let all = &plan.completion_hooks;
    let first = select(&plan, &facts, false, &Findings::default());
    assert_eq!(first.hooks, plan.first_choice());
    assert_eq!((first.completions, first.way), (&all[0][..], plan.block_ways.first()));
    assert!(first.has_other_way && !first.starts_in_table && !first.vfs_checks_no_files);

    let next = |finding: Finding| select(&plan, &facts, false, &after(&[finding]));
    assert_eq!(next(Finding::NoCompletions).completions, all[1]);
    assert!(next(Finding::NoTaskStorage).starts_in_table);
    assert!(next(Finding::NoFileCheck).vfs_checks_no_files);
    let way = next(Finding::NoBlockWay(Vec::new()));
    assert_eq!((way.way, way.has_other_way), (plan.block_ways.get(1), false));
    let hooks = next(Finding::LeftOut(vec![Hook::Kprobe, Hook::Kprobe])).hooks;
    assert_eq!(hooks, [Hook::Fentry, Hook::Kprobe, Hook::RawTracepoint]);

    // A finding does not undo another one.
    let more = after(&[
        Finding::NoFileCheck,
        Finding::NoCompletions,
        Finding::NoCompletions,
        Finding::NoTaskStorage,
    ]);
    let last = select(&plan, &facts, false, &more);
    assert!(last.vfs_checks_no_files && last.starts_in_table && last.completions.is_empty());
    assert_eq!(last.hooks, first.hooks);
}

#[test]
fn the_hooks_in_use_decide_on_a_table_of_starts_and_on_completions() {
    let (plan, known) = planned("6.1", "preempt=full");
    let none = Findings::default();
    // Kprobe events, which lose nothing, are preferred; trampolines would lose calls with task storage.
    assert!(!select(&plan, &known, false, &none).starts_in_table);
    let trampolines = after(&[Finding::LeftOut(vec![Hook::Fentry])]);
    assert!(select(&plan, &known, false, &trampolines).starts_in_table);
    assert!(select(&plan, &known, true, &none).starts_in_table);
    let (old, without) = planned("5.10", "");
    assert!(!without.task_storage && select(&old, &without, false, &none).starts_in_table);
    let calls = plan::plan(&[Layer::Syscall, Layer::Vfs], &known, Choice::Tracepoint);
    assert!(!calls.completions.is_empty());
    assert!(select(&calls, &known, false, &none).completions.is_empty());
}

#[test]
fn a_refusal_of_a_way_is_stored_once() {
    let refusal = |errno| Refusal {
        of: Refused::BlockEvents,
        hook: Hook::RawTracepoint,
        why: std::io::Error::from_raw_os_error(errno).into(),
    };
    let findings = after(&[
        Finding::NoBlockWay(vec![refusal(1)]),
        Finding::NoBlockWay(vec![refusal(1), refusal(22)]),
    ]);
    assert_eq!(findings.of_ways(), [refusal(1), refusal(22)]);
}
