//! Attaches the programs of the block layer: all programs of a way, or none.

use libbpf_rs::ProgramMut;

use super::{Attached, Attaching, Probe, Refusal, Refused, SkipSource, Why};
use crate::catalog::Layer;
use crate::kernel::interface::skeleton::IostackbreakdownProgs;
use crate::probe::Hook;
use crate::probe::plan::{BIO_FUNCTIONS, BlockWay, END_FUNCTIONS, ISSUE_FUNCTION, Plan, PlannedOp, Start};

/// A program, and what it is attached to.
struct Event<'a> {
    /// A tracepoint, or functions, of which each has its index here as its cookie.
    names: Vec<&'static str>,
    program: &'a ProgramMut<'a>,
    skips: Skips<'a>,
}

/// What is lost if the kernel skips a program.
#[derive(Clone, Copy)]
enum Skips<'a> {
    /// The event: no other program sees it.
    Lost,
    /// Nothing: another program sees it, or it shows as a request without an end.
    Covered,
    /// The event, if the kernel skips this program as well.
    LostWith(&'a ProgramMut<'a>),
    /// As `LostWith`, and the other program counts the skipped events that it recovers.
    LostUnlessRecovered(&'a ProgramMut<'a>),
}

impl Attaching<'_> {
    /// Attaches to all events of `way`, or to none. Completions are attached before issues, and these before starts, so
    /// that no request is begun whose end is not traced.
    pub(super) fn block(&mut self, ops: &[(usize, &PlannedOp)], way: &BlockWay) {
        match self.block_events(way) {
            Ok(names) => {
                for &(index, _) in ops {
                    self.attached.ops[index].points.clone_from(&names);
                }
                self.attached.block_way = Some(way.clone());
            }
            Err(why) => {
                for &(index, _) in ops {
                    self.refuse(index, Refused::BlockEvents, way.hook, why.clone());
                }
            }
        }
    }

    fn block_events(&mut self, way: &BlockWay) -> Result<Vec<(String, Hook)>, Why> {
        let progs = &self.attached.skeleton.progs;
        let mut links = Vec::new();
        let mut probes = Vec::new();
        let mut names: Vec<(String, Hook)> = Vec::new();
        let probe = |event: &Event<'_>, hook, missed: Vec<SkipSource>| {
            let program = self.program(event.program).ok();
            let mut probe = Probe::on_event(Some(Layer::Blk), hook, &event.names, program.clone());
            let sources: Vec<SkipSource> = program.map(SkipSource::Program).into_iter().chain(missed).collect();
            probe.alone.clone_from(&sources);
            let other = match event.skips {
                Skips::Covered => return probe,
                Skips::Lost => None,
                Skips::LostWith(other) | Skips::LostUnlessRecovered(other) => Some(other)
                    .filter(|other| self.attached.programs.has(other))
                    .and_then(|other| self.program(other).ok()),
            };
            match other {
                Some(other) => probe.skips.push(SkipSource::Both {
                    one: sources,
                    other,
                    is_recovered: matches!(event.skips, Skips::LostUnlessRecovered(_)),
                }),
                None => probe.skips = sources,
            }
            probe
        };
        for event in tracepoints(progs, way)
            .into_iter()
            .filter(|event| self.attached.programs.has(event.program))
        {
            let (_, link) = self
                .event(event.program)
                .map_err(|error| Why::from(error).at(event.names[0]))?;
            probes.push(probe(&event, Hook::RawTracepoint, Vec::new()));
            links.push((Some(Layer::Blk), link));
            names.push((event.names[0].to_owned(), Hook::RawTracepoint));
        }
        for event in functions(progs, way, self.setup.request.whole_stack)
            .into_iter()
            .filter(|event| self.attached.programs.has(event.program))
        {
            let mut missed = Vec::new();
            for (&function, cookie) in event.names.iter().zip(0..) {
                let (link, misses) = self
                    .program(event.program)
                    .and_then(|program| self.on_entry(&program, function, cookie))
                    .map_err(|error| Why::from(error).at(function))?;
                missed.push(misses);
                links.push((Some(Layer::Blk), link));
                names.push((function.to_owned(), way.hook));
            }
            probes.push(probe(&event, way.hook, missed));
        }
        names.dedup();
        self.attached.returns.extend(links);
        self.attached.probes.extend(probes);
        Ok(names)
    }
}

impl Attached {
    /// Why the block layer is not measured although it was planned; `None` if it is measured.
    pub(super) fn block_refusals(&self, plan: &Plan) -> Option<Vec<Refusal>> {
        let mut ops = plan.ops.iter().zip(&self.ops);
        let (_, first) = ops.find(|(op, _)| op.layer == Layer::Blk)?;
        first.points.is_empty().then(|| first.refused.clone())
    }
}

fn event<'a>(name: &'static str, program: &'a ProgramMut<'a>, skips: Skips<'a>) -> Event<'a> {
    Event {
        names: vec![name],
        program,
        skips,
    }
}

/// Programs on tracepoints in the order in which they are attached, which is that in which they run. The caller leaves
/// out those that are not loaded.
fn tracepoints<'a>(progs: &'a IostackbreakdownProgs<'_>, way: &BlockWay) -> [Event<'a>; 17] {
    use Skips::{Covered, Lost, LostUnlessRecovered, LostWith};
    let end = if way.again { Covered } else { Lost };
    let queue = if way.is_by_both() { Covered } else { Lost };
    [
        event("block_bio_complete", &progs.bio_end_second_btf, Covered),
        event("block_bio_complete", &progs.bio_end_btf, end),
        event("block_rq_complete", &progs.block_end_second_btf, Covered),
        event("block_rq_complete", &progs.block_end_btf, end),
        event(
            "block_rq_merge",
            &progs.block_merge_btf,
            LostWith(&progs.block_merge_second_btf),
        ),
        event("block_rq_merge", &progs.block_merge_second_btf, Covered),
        event("block_rq_issue", &progs.block_issue_btf, Lost),
        event("block_io_start", &progs.block_start_btf, Lost),
        // The second program sees whether the first one has run.
        event(
            "block_getrq",
            &progs.bio_getrq_btf,
            LostUnlessRecovered(&progs.bio_getrq_second_btf),
        ),
        event("block_getrq", &progs.bio_getrq_second_btf, Covered),
        // The request is counted in any case.
        event("block_split", &progs.bio_split_btf, Covered),
        event("block_split", &progs.bio_split_second_btf, Covered),
        event(
            "block_bio_backmerge",
            &progs.bio_backmerge_btf,
            LostWith(&progs.bio_backmerge_second_btf),
        ),
        event("block_bio_backmerge", &progs.bio_backmerge_second_btf, Covered),
        event(
            "block_bio_frontmerge",
            &progs.bio_frontmerge_btf,
            LostWith(&progs.bio_frontmerge_second_btf),
        ),
        event("block_bio_frontmerge", &progs.bio_frontmerge_second_btf, Covered),
        event("block_bio_queue", &progs.bio_queue_btf, queue),
    ]
}

/// Programs on functions in the order in which they are attached. The caller leaves out those that are not loaded.
fn functions<'a>(progs: &'a IostackbreakdownProgs<'_>, way: &BlockWay, in_stack: bool) -> Vec<Event<'a>> {
    use Skips::{Covered, Lost, LostWith};
    let [submit, bio_end] = BIO_FUNCTIONS;
    let [one, batch] = END_FUNCTIONS;
    let ends = if in_stack { way.ends.clone() } else { vec![one] };
    let end = if way.again { Covered } else { Lost };
    let mut events = vec![
        event(bio_end, &progs.bio_end_function, Covered),
        Event {
            names: ends,
            program: &progs.block_end_function,
            skips: end,
        },
        event(batch, &progs.block_end_batch_function, end),
        event(ISSUE_FUNCTION, &progs.block_issue_function, Lost),
        event(submit, &progs.bio_submit_function, LostWith(&progs.bio_queue_btf)),
    ];
    if let Start::Function(function) = way.start {
        events.push(event(function, &progs.block_start_function, Lost));
    }
    events
}
