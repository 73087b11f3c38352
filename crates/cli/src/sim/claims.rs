//! Figures of papers, compared with the simulated ones.

use std::fmt::Write;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::report::Section;
use crate::chart::{Compared, comparison};

/// A figure of a paper, the simulated figure, and the range in which the latter has to be.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    /// The scenario or policy that the figure is about.
    pub(super) of: &'static str,
    pub(super) what: &'static str,
    /// The paper's figure, in words.
    pub(super) paper: &'static str,
    pub(super) ours: f64,
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
}

/// Returns a bound of a claim's range; none if the range has no such bound.
type Bound = fn(&Claim) -> Option<f64>;

/// The format in which the claims of a paper are shown.
pub(super) struct Form {
    pub(super) paper: &'static str,
    /// Subject of the claims: `policy` or `scenario`.
    pub(super) of: &'static str,
    /// Heading of the range in the text format, and the function that formats the range.
    pub(super) range: (&'static str, fn(&Claim) -> String),
    /// JSON fields with the bounds of the range.
    pub(super) bounds: &'static [(&'static str, Bound)],
    /// Widths of the columns in the text format.
    pub(super) widths: [usize; 5],
    /// Number of decimals of the simulated figures.
    pub(super) decimals: usize,
}

/// A claim as an object of the JSON document.
struct Entry<'a>(&'a Form, &'a Claim);

impl Claim {
    fn holds(&self) -> bool {
        self.least.is_none_or(|least| self.ours >= least) && self.most.is_none_or(|most| self.ours <= most)
    }

    /// Formats the required range.
    pub(super) fn range(&self) -> String {
        match (self.least, self.most) {
            (Some(least), None) => format!("≥ {least}"),
            (None, Some(most)) => format!("≤ {most}"),
            _ => String::new(),
        }
    }
}

impl Form {
    /// Returns the section of a report with these claims.
    pub(super) fn section(&self, claims: &[Claim]) -> Section {
        let entries: Vec<Entry<'_>> = claims.iter().map(|claim| Entry(self, claim)).collect();
        Section::new("claims", &entries, self.text(claims), self.html(claims))
    }

    fn text(&self, claims: &[Claim]) -> String {
        let mut text = String::new();
        let [of, what, paper, ours, range] = self.widths;
        if !claims.is_empty() {
            let (first, last) = (self.of, self.range.0);
            let _ = writeln!(
                text,
                "\n{first:<of$} {:<what$} {:>paper$} {:>ours$} {last:>range$}",
                "what", "paper", "ours"
            );
        }
        for claim in claims {
            let verdict = if claim.holds() { "" } else { "  no" };
            let _ = writeln!(
                text,
                "{:<of$} {:<what$} {:>paper$} {:>ours$.*} {:>range$}{verdict}",
                claim.of,
                claim.what,
                claim.paper,
                self.decimals,
                claim.ours,
                (self.range.1)(claim)
            );
        }
        text
    }

    fn html(&self, claims: &[Claim]) -> String {
        let compared = |claim: &Claim| Compared {
            of: claim.of,
            what: claim.what,
            paper: claim.paper,
            ours: format!("{:.*}", self.decimals, claim.ours),
            required: claim.range(),
            holds: claim.holds(),
        };
        comparison(self.paper, self.of, &claims.iter().map(compared).collect::<Vec<_>>())
    }
}

impl Serialize for Entry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(form, claim) = self;
        let mut entry = serializer.serialize_map(None)?;
        entry.serialize_entry(form.of, claim.of)?;
        entry.serialize_entry("what", claim.what)?;
        entry.serialize_entry("paper", claim.paper)?;
        entry.serialize_entry("ours", &claim.ours)?;
        for (name, bound) in form.bounds {
            entry.serialize_entry(name, &bound(claim))?;
        }
        entry.serialize_entry("holds", &claim.holds())?;
        entry.end()
    }
}
