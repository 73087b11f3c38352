//! Ended spans that wait for their export.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use opentelemetry_sdk::trace::SpanData;
use tokio::sync::Notify;

/// Most spans that wait, of some 2 KiB each. Chosen: those of a second at 1,000 sampled requests
/// per second, or of a pause of the collector at fewer.
pub(super) const QUEUE_MAX: usize = 4_096;
/// Maximum size of all queued spans, bytes.
pub(crate) const SPANS_BYTES_MAX: usize = QUEUE_MAX * (2 << 10);
/// Most spans of an export, which begins as soon as there are that many. The default of
/// OpenTelemetry.
pub(super) const BATCH_MAX: usize = 512;

/// A bounded queue of spans. Spans that do not fit are dropped, so that no request waits for the
/// collector.
#[derive(Debug, Default)]
pub(super) struct SpanQueue {
    spans: Mutex<VecDeque<SpanData>>,
    /// Wakes the exporter when there is a batch, or the queue is closed.
    due: Notify,
    is_closed: AtomicBool,
    exported: AtomicU64,
    overflowed: AtomicU64,
    failed: AtomicU64,
}

/// Counts of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExportCounts {
    /// Spans that a collector has accepted.
    pub(crate) exported: u64,
    /// Spans dropped because the queue was full.
    pub(crate) overflowed: u64,
    /// Spans dropped because their export failed.
    pub(crate) failed: u64,
}

impl SpanQueue {
    /// Adds the spans of one request or attempt, or drops them all if they do not fit: a part of a
    /// request would show another blocking query.
    pub(super) fn add(&self, spans: Vec<SpanData>) {
        let count = spans.len();
        let mut queue = self.spans();
        if queue.len() + count > QUEUE_MAX {
            drop(queue);
            self.overflowed.fetch_add(count as u64, Relaxed);
            return;
        }
        queue.extend(spans);
        if queue.len() >= BATCH_MAX {
            self.due.notify_one();
        }
    }

    /// Waits until there is a full batch, the queue is closed, or `most` is over. Returns the next
    /// batch, which may be empty; none if the queue is closed and empty.
    pub(super) async fn next(&self, most: Duration) -> Option<Vec<SpanData>> {
        if self.spans().len() < BATCH_MAX && !self.is_closed.load(Relaxed) {
            let _ = tokio::time::timeout(most, self.due.notified()).await;
        }
        let mut queue = self.spans();
        if queue.is_empty() && self.is_closed.load(Relaxed) {
            return None;
        }
        let count = queue.len().min(BATCH_MAX);
        Some(queue.drain(..count).collect())
    }

    /// Lets [`next`](Self::next) return what is left without a wait, and then none.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Relaxed);
        self.due.notify_one();
    }

    /// Counts `spans` spans of an export, accepted or lost.
    pub(super) fn count(&self, spans: usize, is_exported: bool) {
        let counter = if is_exported { &self.exported } else { &self.failed };
        counter.fetch_add(spans as u64, Relaxed);
    }

    pub(super) fn counts(&self) -> ExportCounts {
        ExportCounts {
            exported: self.exported.load(Relaxed),
            overflowed: self.overflowed.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    fn spans(&self) -> MutexGuard<'_, VecDeque<SpanData>> {
        self.spans.lock().expect("no panics while held")
    }
}
