//! Reports of comparisons, made of sections.

use serde::Serialize;

use super::comparison::{Comparison, Group, Measure, by_scenario};
use crate::chart::{self, escaped};
use crate::out;

/// A part of a report in three formats: JSON, text and HTML.
#[derive(Default)]
pub(super) struct Section {
    /// Name and value of a field in the JSON document.
    pub(super) field: Option<(&'static str, String)>,
    /// The printed text.
    pub(super) text: String,
    /// The part of the HTML page, which is followed by `pictures`.
    pub(super) html: String,
    pub(super) pictures: Vec<Picture>,
}

/// A picture with its caption.
pub(super) struct Picture {
    /// File name without the extension.
    pub(super) name: String,
    pub(super) svg: String,
    pub(super) caption: String,
}

impl Section {
    /// Returns a section with a field of the JSON document, its printed text and its HTML.
    pub(super) fn new(name: &'static str, value: &impl Serialize, text: String, html: String) -> Self {
        Self { field: Some((name, out::json(value))), text, html, pictures: Vec::new() }
    }

    /// Returns a section that appears on the HTML page only.
    pub(super) fn page(html: String) -> Self {
        Self { html, ..Self::default() }
    }
}

/// Formats the report as an HTML page.
pub(super) fn page(title: &str, sections: &[Section]) -> String {
    let figure = |picture: &Picture| chart::figure(&picture.svg, &picture.caption);
    let part =
        |section: &Section| section.html.clone() + &section.pictures.iter().map(figure).collect::<String>();
    chart::page(title, &sections.iter().map(part).collect::<String>())
}

/// Formats the report as a text.
pub(super) fn text(sections: &[Section]) -> String {
    sections.iter().map(|section| section.text.as_str()).collect()
}

/// Formats the report as a JSON document, with a field for `scale` if there is one.
pub(super) fn document<R: Serialize, O>(
    comparison: &Comparison<R, O>,
    scale: Option<&str>,
    sections: &[Section],
) -> String {
    let Comparison { kept, settings, seeds, wall_s, .. } = comparison;
    let runs: Vec<_> = kept.iter().map(|run| &run.outcome).collect();
    let mut fields = vec![("version", out::json(env!("CARGO_PKG_VERSION")))];
    fields.extend(scale.map(|scale| ("scale", out::json(scale))));
    fields.extend([
        ("settings", out::json(settings)),
        ("seeds", out::json(seeds)),
        ("wall_s", out::json(wall_s)),
    ]);
    fields.extend(sections.iter().filter_map(|section| section.field.clone()));
    fields.push(("runs", out::json(&runs)));
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}\n", fields.join(","))
}

/// The figure that decides which policy of a scenario did best.
pub(super) struct Goal<R> {
    pub(super) measure: Measure<R>,
    /// True if the largest value is the best one.
    pub(super) is_gain: bool,
    /// The verb of the best one, such as "missed the fewest deadlines".
    pub(super) words: &'static str,
}

/// Formats the sentence that says which policy did best in how many scenarios; empty with fewer
/// than two policies.
pub(super) fn best<R, O>(groups: &[Group<'_, R, O>], goal: &Goal<R>) -> String {
    let mut wins: Vec<(String, usize)> = Vec::new();
    let mut scenarios = 0;
    for groups in by_scenario(groups).filter(|groups| groups.len() > 1) {
        scenarios += 1;
        let value =
            |group: &Group<'_, R, O>| goal.measure.mean(group) * if goal.is_gain { -1.0 } else { 1.0 };
        let best = groups.iter().map(value).fold(f64::INFINITY, f64::min);
        for group in groups.iter().filter(|group| value(group) <= best) {
            match wins.iter_mut().find(|(label, _)| *label == group.label()) {
                Some((_, times)) => *times += 1,
                None => wins.push((group.label(), 1)),
            }
        }
    }
    wins.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    let Some(most) = wins.first().map(|(_, times)| *times) else { return String::new() };
    let names: Vec<_> =
        wins.iter().filter(|(_, times)| *times == most).map(|(name, _)| escaped(name)).collect();
    let all = if scenarios == 1 { String::new() } else { format!(" in {most} of {scenarios} scenarios") };
    format!("<p><strong>{}</strong> {}{all}.</p>\n", names.join(" and "), goal.words)
}

/// Formats the second paragraph of a page: what was simulated, and how to read its figures.
pub(super) fn preface(system: &str, settings: (&str, &[String]), seeds: &[u64], notes: &str) -> String {
    let (kind, settings) = settings;
    let settings = if settings.is_empty() { "none".to_owned() } else { settings.join(", ") };
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    format!(
        "<p>Simulated by Sherwood {system}; {kind}: {}; seeds: {}. {notes} Where there are several seeds, ± or a \
         range in brackets is the 95% confidence interval of the mean.</p>\n",
        escaped(&settings),
        seeds.join(", "),
    )
}
