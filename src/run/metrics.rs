//! Serves metrics while a run measures.

use std::os::fd::BorrowedFd;

use crate::analyse;
use crate::cause::Cause;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;
use crate::serve::{Endpoint, Listening};
use crate::source::Source;
use crate::source::live::Live;
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
        })
    }

    /// Readable when a client waits.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.endpoint.ready()
    }

    /// Answers the clients that wait.
    pub fn answer(&mut self, source: &Live) {
        let page = || {
            let now = source.counters();
            let report = analyse::report(&self.info, &self.first, &now);
            let latest = analyse::groups(&self.info, &self.last, &now);
            self.last = now;
            self.metrics.print(&report, latest.as_ref())
        };
        self.endpoint.answer(page);
    }
}
