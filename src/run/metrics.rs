//! Serves metrics while a run measures.

use std::os::fd::BorrowedFd;

use crate::analyse;
use crate::cause::Cause;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{Snapshot, StackIncreases};
use crate::serve::{Endpoint, Listening};
use crate::source::Source;
use crate::source::live::{LastRead, Live};
use crate::view::metrics::Metrics;

/// Makes a page of metrics for each client.
pub struct MetricsServer {
    endpoint: Endpoint,
    metrics: Metrics,
    /// Those of the run, with every group.
    info: RunInfo,
    /// The start of the run.
    first: Snapshot,
    /// When the last page was made.
    last: Snapshot,
    /// What groups had counted then.
    read: LastRead,
    /// What the whole stack has counted for groups since the start.
    stacks: StackIncreases,
}

impl MetricsServer {
    /// # Errors
    /// If there can be no thread, in one line.
    pub fn start(listening: Listening, source: &Live, first: &Snapshot) -> Result<Self, Cause> {
        Ok(Self {
            endpoint: listening.serve()?,
            metrics: Metrics::new(env!("CARGO_PKG_VERSION")),
            info: RunInfo {
                top: usize::MAX,
                ..source.info().clone()
            },
            first: first.clone(),
            last: first.clone(),
            read: source.last_read().clone(),
            stacks: StackIncreases::default(),
        })
    }

    /// Readable when a client waits.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.endpoint.ready()
    }

    /// Answers the clients that wait.
    pub fn answer(&mut self, source: &Live) {
        let page = || {
            let mut now = source.counters(&mut self.read);
            let stacks = now.take_stacks();
            let latest = analyse::groups(&self.info, &self.last, &now, &stacks);
            self.stacks.add(stacks);
            let report = analyse::report_with(&self.info, &self.first, &now, &self.stacks);
            self.last = now;
            self.metrics.print(&report, latest.as_ref())
        };
        self.endpoint.answer(page);
    }
}
