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
        })
    }

    /// Readable when a client waits.
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.endpoint.ready()
    }

    /// Answers the clients that wait.
    pub fn answer(&mut self, source: &Live) {
        let page = || {
            let report = analyse::report(&self.info, &self.first, &source.counters());
            self.metrics.print(&report)
        };
        self.endpoint.answer(page);
    }
}
