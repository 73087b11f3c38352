//! The state of `sherwood top`: what it shows, after the node's answers and the keys pressed.

use std::cmp::Ordering;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent};

use super::seen::{Also, BackendKeys, BackendNow, Seen, last};
use crate::terminal::quits;

/// The column that rows are sorted by, largest first; names ascending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Blocking,
    Size,
    Misses,
    P99,
    Name,
}

/// The list in the lower part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum List {
    #[default]
    Partitions,
    Backends,
    Keys,
    Tenants,
    Nodes,
    Events,
}

/// The work of the caller after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Quit,
    Redraw,
}

/// The question that a node is asked again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) is_paused: bool,
    /// Answer that is asked for beside those that are always shown.
    pub(super) also: Option<Also>,
}

/// A partition in the list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) allocated_bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) hit_ratio: Option<f64>,
    pub(super) misses_per_s: Option<f64>,
    pub(super) query_p99_ms: Option<f64>,
    /// Requests that the backend blocked, in the control loop's window.
    pub(super) blocking: f64,
}

/// A backend in its list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BackendRow {
    pub(super) name: String,
    /// Replicas that get calls, of all.
    pub(super) up: usize,
    pub(super) replicas: usize,
    pub(super) in_flight: u32,
    pub(super) waiting: u32,
    /// Keys a second: all, failed, rejected, and answered with a stale value.
    pub(super) per_s: [Option<f64>; 4],
}

/// The state of the view.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) url: String,
    pub(super) seen: Option<Seen>,
    pub(super) rows: Vec<Row>,
    pub(super) backends: Vec<BackendRow>,
    /// Reason why the node does not answer, while it does not.
    pub(super) away: Option<String>,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    pub(super) sort: Sort,
    pub(super) list: List,
    /// Rows of the list that are scrolled past.
    pub(super) offset: usize,
}

impl State {
    pub(super) fn new(url: String) -> Self {
        Self { url, ..Self::default() }
    }

    /// Takes in the answers of the node, `elapsed` after the ones before, or the reason why there
    /// are none.
    pub(super) fn update(&mut self, answer: Result<Seen, String>, elapsed: Duration) {
        match answer {
            Ok(seen) => {
                self.rows = rows(&seen, self.seen.as_ref(), elapsed);
                self.backends = backend_rows(&seen, self.seen.as_ref(), elapsed);
                self.sort_rows();
                (self.seen, self.away) = (Some(seen), None);
            }
            Err(reason) => self.away = Some(reason),
        }
    }

    /// Changes what is shown as a key asks for.
    pub(super) fn press(&mut self, key: KeyEvent) -> Wish {
        let is_help = matches!(key.code, KeyCode::Char('?' | 'h') | KeyCode::F(1));
        if self.shows_help && (is_help || key.code == KeyCode::Esc) {
            self.shows_help = false;
            return Wish::Redraw;
        }
        if quits(key) {
            return Wish::Quit;
        }
        match key.code {
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('b') => self.sort_by(Sort::Blocking),
            KeyCode::Char('s') => self.sort_by(Sort::Size),
            KeyCode::Char('m') => self.sort_by(Sort::Misses),
            KeyCode::Char('l') => self.sort_by(Sort::P99),
            KeyCode::Char('n') => self.sort_by(Sort::Name),
            KeyCode::Tab => self.turn(),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(PAGE),
            KeyCode::PageUp => self.scroll(-PAGE),
            KeyCode::Home => self.offset = 0,
            _ if is_help => self.shows_help = true,
            _ => {}
        }
        Wish::Redraw
    }

    /// Returns what the node is to be asked.
    pub(super) fn question(&self) -> Question {
        let also = match self.list {
            List::Keys => Some(Also::Keys),
            List::Nodes => Some(Also::Cluster),
            List::Partitions | List::Backends | List::Tenants | List::Events => None,
        };
        Question { is_paused: self.is_paused, also }
    }

    /// Number of rows of the list that is shown.
    pub(super) fn list_rows(&self) -> usize {
        let Some(seen) = &self.seen else { return 0 };
        match self.list {
            List::Partitions => self.rows.len(),
            List::Backends => self.backends.len(),
            List::Keys => seen.hot_keys.iter().flatten().flatten().map(|of| of.keys.len()).sum(),
            List::Tenants => seen.history.tenants.len(),
            List::Nodes => match &seen.cluster {
                Some(Ok(Some(cluster))) => cluster.peers.len() + cluster.shared.len(),
                _ => 0,
            },
            List::Events => seen.history.events.len(),
        }
    }

    fn sort_by(&mut self, sort: Sort) {
        (self.sort, self.list, self.offset) = (sort, List::Partitions, 0);
        self.sort_rows();
    }

    fn sort_rows(&mut self) {
        let value = |row: &Row| match self.sort {
            Sort::Blocking => row.blocking,
            Sort::Size => row.allocated_bytes as f64,
            Sort::Misses => row.misses_per_s.unwrap_or(-1.0),
            Sort::P99 => row.query_p99_ms.unwrap_or(-1.0),
            Sort::Name => 0.0,
        };
        let order = |a: &Row, b: &Row| -> Ordering {
            value(b).total_cmp(&value(a)).then_with(|| a.name.cmp(&b.name))
        };
        self.rows.sort_by(order);
    }

    fn turn(&mut self) {
        self.list = match self.list {
            List::Partitions => List::Backends,
            List::Backends => List::Keys,
            List::Keys => List::Tenants,
            List::Tenants => List::Nodes,
            List::Nodes => List::Events,
            List::Events => List::Partitions,
        };
        self.offset = 0;
    }

    fn scroll(&mut self, by: isize) {
        let last = self.list_rows().saturating_sub(1);
        self.offset = self.offset.saturating_add_signed(by).min(last);
    }
}

/// Rows that a page key scrolls.
const PAGE: isize = 10;

/// Returns the rows of the partitions; ratios and rates are of the time since the answers `before`.
fn rows(seen: &Seen, before: Option<&Seen>, elapsed: Duration) -> Vec<Row> {
    // The partitions of a node keep their places.
    let at_same_place = |index: usize| before?.partitions.get(index);
    let row = |(index, partition): (usize, &super::seen::Partition)| {
        let backend = seen.history.backends.iter().find(|backend| backend.name == partition.backend);
        let earlier = at_same_place(index)
            .filter(|earlier| earlier.name == partition.name)
            // Counts that fall are those of a node that was restarted.
            .filter(|earlier| earlier.hits <= partition.hits && earlier.misses <= partition.misses);
        let (hits, misses) = earlier.map_or((partition.hits, partition.misses), |earlier| {
            (partition.hits - earlier.hits, partition.misses - earlier.misses)
        });
        let look_ups = hits + misses;
        Row {
            name: partition.name.clone(),
            allocated_bytes: partition.allocated_bytes,
            used_bytes: partition.used_bytes,
            hit_ratio: (look_ups > 0).then(|| hits as f64 / look_ups as f64),
            misses_per_s: earlier.map(|_| misses as f64 / elapsed.as_secs_f64().max(1e-3)),
            query_p99_ms: match &partition.latency_ms {
                Some(latency) => Some(latency.p99),
                None => backend.and_then(|backend| last(&backend.query_p99_ms)),
            },
            blocking: backend.and_then(|backend| last(&backend.blocking)).unwrap_or(0.0),
        }
    };
    seen.partitions.iter().enumerate().map(row).collect()
}

/// Returns the rows of the backends that have replicas; rates are of the time since the answers
/// `before`.
fn backend_rows(seen: &Seen, before: Option<&Seen>, elapsed: Duration) -> Vec<BackendRow> {
    let row = |(index, backend): (usize, &BackendNow)| {
        let earlier = before.and_then(|before| before.backends.get(index));
        let earlier = earlier.filter(|earlier| earlier.name == backend.name);
        let per_s = |count: fn(&BackendKeys) -> u64| {
            // Counts that fall are those of a node that was restarted.
            let more = count(&backend.keys).checked_sub(count(&earlier?.keys))?;
            Some(more as f64 / elapsed.as_secs_f64().max(1e-3))
        };
        BackendRow {
            name: backend.name.clone(),
            up: backend.replica_states.iter().filter(|replica| replica.up).count(),
            replicas: backend.replica_states.len(),
            in_flight: backend.replica_states.iter().map(|replica| replica.in_flight).sum(),
            waiting: backend.replica_states.iter().map(|replica| replica.waiting).sum(),
            per_s: [
                per_s(|keys| keys.asked),
                per_s(|keys| keys.failed + keys.timed_out),
                per_s(|keys| keys.rejected),
                per_s(|keys| keys.stale),
            ],
        }
    };
    let asked = seen.backends.iter().enumerate().filter(|(_, backend)| !backend.replica_states.is_empty());
    asked.map(row).collect()
}
