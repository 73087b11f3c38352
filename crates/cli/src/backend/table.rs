//! Text and JSON output of `sherwood backend check`.

use std::time::Duration;

use serde::Serialize;

use super::check::{Answer, Fault, Tried};
use crate::exit::Failure;

/// Formats the results of checks as text: a row for each replica, followed by its details, or by
/// the error and its remedy.
pub(super) fn text(tried: &[Tried]) -> String {
    if tried.is_empty() {
        return "no backend has a store: there is nothing to try\n".to_owned();
    }
    let head = ["backend", "replica", "kind", "result", "round trip", "server"].map(str::to_owned);
    let rows: Vec<[String; COLUMNS]> = std::iter::once(head).chain(tried.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
        for line in at.checked_sub(1).map(|at| below(&tried[at])).unwrap_or_default() {
            text.push_str(&format!("  {}\n", plain(&line)));
        }
    }
    text
}

const COLUMNS: usize = 6;

fn row(tried: &Tried) -> [String; COLUMNS] {
    let Tried { backend, replica, kind, outcome } = tried;
    let (result, round_trip, server) = match outcome {
        Ok(Answer { report, round_trip }) => {
            ("ok", round_trip.map_or("-".to_owned(), milliseconds), report.server.clone())
        }
        Err(fault) => (fault.cause, "-".to_owned(), "-".to_owned()),
    };
    [backend.clone(), replica.to_string(), kind.clone(), result.to_owned(), round_trip, plain(&server)]
}

/// Escapes control characters, which a terminal would interpret.
fn plain(text: &str) -> String {
    let escaped = |c: char| if c.is_control() { c.escape_debug().collect() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

fn below(tried: &Tried) -> Vec<String> {
    match &tried.outcome {
        Ok(answer) => answer.report.details.clone(),
        Err(fault) => match fault.message.rsplit_once("; ") {
            Some((wrong, remedy)) => vec![wrong.to_owned(), format!("remedy: {remedy}")],
            None => vec![fault.message.clone()],
        },
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1_000.0)
}

/// Formats the results of checks as indented JSON: `{"ok": …, "replicas": […]}`.
pub(super) fn json(tried: &[Tried]) -> Result<String, Failure> {
    let ok = tried.iter().all(|one| one.outcome.is_ok());
    let all = ReportJson { ok, replicas: tried.iter().map(ReplicaJson::from).collect() };
    let text = serde_json::to_string_pretty(&all).map_err(Failure::failed)?;
    Ok(text + "\n")
}

#[derive(Serialize)]
struct ReportJson<'a> {
    ok: bool,
    replicas: Vec<ReplicaJson<'a>>,
}

#[derive(Serialize)]
struct ReplicaJson<'a> {
    backend: &'a str,
    replica: usize,
    kind: &'a str,
    ok: bool,
    #[serde(flatten)]
    outcome: OutcomeJson<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OutcomeJson<'a> {
    Answer { server: &'a str, details: &'a [String], round_trip_us: Option<u64> },
    Fault { cause: &'a str, message: &'a str },
}

impl<'a> From<&'a Tried> for ReplicaJson<'a> {
    fn from(tried: &'a Tried) -> Self {
        let Tried { backend, replica, kind, outcome } = tried;
        let ok = outcome.is_ok();
        let outcome = match outcome {
            Ok(Answer { report, round_trip }) => {
                let round_trip_us =
                    round_trip.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
                OutcomeJson::Answer { server: &report.server, details: &report.details, round_trip_us }
            }
            Err(Fault { cause, message }) => OutcomeJson::Fault { cause, message },
        };
        Self { backend, replica: *replica, kind, ok, outcome }
    }
}

#[cfg(test)]
mod tests {
    use sherwood_store::Report;

    use super::*;

    fn tried() -> [Tried; 2] {
        let report =
            Report { server: "memcached 1.6.18".into(), details: vec!["127.0.0.1:11211, no TLS".into()] };
        let answer = Answer { report, round_trip: Some(Duration::from_micros(1_234)) };
        let message = "h:1 cannot be reached (refused; twice); start the server, or correct it".to_owned();
        let fault = Fault { cause: "unreachable", message };
        let one = |backend: &str, replica, outcome| Tried {
            backend: backend.into(),
            replica,
            kind: "memcached".into(),
            outcome,
        };
        [one("sessions", 0, Ok(answer)), one("sessions-of-old", 1, Err(fault))]
    }

    #[test]
    fn backend_check_table_has_a_row_per_replica_and_remedies_of_failures() {
        let expected = "\
backend          replica  kind       result       round trip  server
sessions         0        memcached  ok           1.23 ms     memcached 1.6.18
  127.0.0.1:11211, no TLS
sessions-of-old  1        memcached  unreachable  -           -
  h:1 cannot be reached (refused; twice)
  remedy: start the server, or correct it
";
        assert_eq!(text(&tried()), expected);
        assert!(text(&[]).contains("nothing to try"));
    }

    #[test]
    fn control_characters_in_a_servers_answer_are_escaped() {
        let mut tried = tried();
        tried[0].outcome.as_mut().unwrap().report.server = "\u{1b}[2J\n1.6".into();
        let message = "the server failed (\u{1b}[2J\nBOOM); look at its log".to_owned();
        tried[1].outcome = Err(Fault { cause: "server", message });
        assert!(text(&tried).contains(r"  \u{1b}[2J\n1.6"), "{}", text(&tried));
        assert!(text(&tried).contains(r"  the server failed (\u{1b}[2J\nBOOM)"), "{}", text(&tried));
    }

    #[test]
    fn backend_check_json_has_the_results_of_the_table() {
        let read: serde_json::Value = serde_json::from_str(&json(&tried()).unwrap()).unwrap();
        assert_eq!(read["ok"], false);
        assert_eq!(read["replicas"][0]["round_trip_us"], 1_234);
        assert_eq!(read["replicas"][0]["server"], "memcached 1.6.18");
        assert_eq!(read["replicas"][1]["cause"], "unreachable");
        assert_eq!(read["replicas"][1]["ok"], false);
    }
}
