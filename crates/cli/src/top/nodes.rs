//! The list of the nodes of a cluster, as one of them knows the others.

use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, Widget};

use super::parts::{BAD, HEADING, Lines, name_width, nothing, rate, up};
use super::seen::{Cluster, Loan, Peer, Seen, Shared};
use crate::policy::plain;
use crate::words;

/// Columns of the time since a node was heard, and of the time for which it is trusted.
const HEARD: u16 = 12;
const TRUSTED: u16 = 11;
const YEAR_S: f64 = 365.0 * 86_400.0;
/// Columns of a number of look-ups.
const LOOK_UPS: u16 = 10;
/// Columns of the units that are lent, at least and at most.
const LOAN: [usize; 2] = [10, 20];

/// Draws whose requests decisions use, the other nodes, and the backends that all share, without
/// the first `offset` nodes and backends.
pub(super) fn draw(area: Rect, buf: &mut Buffer, offset: usize, seen: &Seen) {
    let cluster = match &seen.cluster {
        Some(Ok(Some(cluster))) => cluster,
        Some(Ok(None)) => return nothing(area, buf, "this node is alone: it has no [cluster]"),
        Some(Err(why)) => return nothing(area, buf, &words::escaped(why)),
        None => return nothing(area, buf, "asking"),
    };
    let in_peers = offset.min(cluster.peers.len());
    let in_shared = (offset - in_peers).min(cluster.shared.len());
    let mut lines = Lines { area };
    Paragraph::new(statistics(cluster)).render(lines.take(1), buf);
    peers(&mut lines, buf, cluster, &cluster.peers[in_peers..]);
    shared(&mut lines, buf, cluster, &cluster.shared[in_shared..]);
}

/// Says whose requests decisions use.
fn statistics(cluster: &Cluster) -> String {
    let whose = match &cluster.statistics.from {
        None => "this node's requests alone".to_owned(),
        Some(from) if *from == cluster.node => "the requests of all nodes that are heard".to_owned(),
        Some(from) => {
            let age = cluster.statistics.age_s.map(|age| format!(", {} ago", time(age)));
            format!(
                "the requests of all nodes, as node {} counts them{}",
                plain(from),
                age.unwrap_or_default()
            )
        }
    };
    format!("node {}: decisions use {whose}", plain(&cluster.node))
}

fn peers(lines: &mut Lines, buf: &mut Buffer, cluster: &Cluster, shown: &[Peer]) {
    let name = name_width(cluster.peers.iter().map(|peer| &*peer.node), 4);
    let column = |loans: &[Loan]| -> Vec<String> { shown.iter().map(|peer| units(loans, peer)).collect() };
    let (borrowed, lent) = (column(&cluster.loans), column(&cluster.lent));
    let loans = [&borrowed, &lent].map(|column| loan_width(column));
    let row = |(peer, (borrowed, lent)): (&Peer, (&String, &String))| {
        let heard = peer.seen_s.map_or_else(|| "never".to_owned(), |ago| format!("{} ago", time(ago)));
        let loan = |text: &str, width: u16| Line::raw(words::shortened(text, width.into())).right_aligned();
        TableRow::new([
            Cell::from(words::shortened(&plain(&peer.node), name.into())),
            Cell::from(Line::raw(heard).right_aligned()),
            Cell::from(trusted(peer.trusted_s)),
            Cell::from(loan(borrowed, loans[0])),
            Cell::from(loan(lent, loans[1])),
            Cell::from(Line::styled(remark(peer), BAD)),
        ])
    };
    let heads = [("node", false), ("heard", true), ("trusted", true), ("borrowed/s", true), ("lent/s", true)];
    let widths = [name, HEARD, TRUSTED, loans[0], loans[1]];
    table(lines, buf, &heads, &widths, shown.iter().zip(borrowed.iter().zip(&lent)).map(row).collect());
}

fn shared(lines: &mut Lines, buf: &mut Buffer, cluster: &Cluster, shown: &[Shared]) {
    let name = name_width(cluster.shared.iter().map(|of| &*of.backend), 14);
    let row = |of: &Shared| {
        let (writes, style) = match of.writes_in_s {
            Some(seconds) if seconds <= 0.0 => ("accepted".to_owned(), Default::default()),
            Some(seconds) => (format!("refused for {}", time(seconds)), BAD),
            None => ("refused while a node lacks this one".to_owned(), BAD),
        };
        TableRow::new([
            Cell::from(words::shortened(&plain(&of.backend), name.into())),
            Cell::from(trusted(Some(of.trusted_s))),
            Cell::from(Line::raw(words::count(of.untrusted)).right_aligned()),
            Cell::from(Line::styled(writes, style)),
        ])
    };
    let heads = [("shared backend", false), ("trusted", true), ("untrusted", true), ("writes", false)];
    table(lines, buf, &heads, &[name, TRUSTED, LOOK_UPS], shown.iter().map(row).collect());
}

/// Draws a table, which takes no row if it has none. The last of its columns has no width of its
/// own; heads are right-aligned where they say so.
fn table(
    lines: &mut Lines,
    buf: &mut Buffer,
    heads: &[(&'static str, bool)],
    widths: &[u16],
    rows: Vec<TableRow<'_>>,
) {
    if rows.is_empty() {
        return;
    }
    let head = |(text, is_right): &(&'static str, bool)| {
        let line = Line::styled(*text, HEADING);
        Cell::from(if *is_right { line.right_aligned() } else { line })
    };
    let header = TableRow::new(heads.iter().map(head).collect::<Vec<_>>());
    let area = lines.take(u16::try_from(rows.len() + 1).unwrap_or(u16::MAX));
    let rest = area.width.saturating_sub(widths.iter().map(|width| width + 1).sum());
    let widths = widths.iter().copied().chain([rest]).map(Constraint::Length);
    Table::new(rows, widths).header(header).column_spacing(1).render(area, buf);
}

/// Says for how long values are trusted if nothing more is heard.
fn trusted(seconds: Option<f64>) -> Line<'static> {
    let line = match seconds.filter(|&seconds| seconds > 0.0) {
        // With no other node nothing is awaited.
        Some(YEAR_S..) => Line::raw("always"),
        Some(seconds) => Line::raw(format!("for {}", time(seconds))),
        None => Line::styled("not trusted", BAD),
    };
    line.right_aligned()
}

/// Returns the units per second of each resource that are on loan between this node and another,
/// those of all tenants together.
fn units(loans: &[Loan], peer: &Peer) -> String {
    let mut of_resources: BTreeMap<&str, f64> = BTreeMap::new();
    for loan in loans.iter().filter(|loan| loan.node == peer.node) {
        *of_resources.entry(&loan.resource).or_default() += loan.units_per_s;
    }
    let of = |(resource, units): (&&str, &f64)| format!("{} {}", rate(*units), plain(resource));
    let all: Vec<String> = of_resources.iter().map(of).collect();
    if all.is_empty() { words::NONE.to_owned() } else { all.join(", ") }
}

fn loan_width(column: &[String]) -> u16 {
    column.iter().map(|text| words::width(text)).max().unwrap_or(0).clamp(LOAN[0], LOAN[1]) as u16
}

/// Says what is wrong between this node and another.
fn remark(peer: &Peer) -> &'static str {
    match (peer.lacks_us, peer.answered) {
        (true, _) => "lacks this node",
        (false, false) => "no answer yet",
        (false, true) => "",
    }
}

/// Formats seconds, with a tenth where that counts.
fn time(seconds: f64) -> String {
    match seconds {
        ..0.0 => "0.0 s".to_owned(),
        ..9.95 => format!("{seconds:.1} s"),
        // What a node answers may be longer than a duration can be.
        _ => up(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)),
    }
}
