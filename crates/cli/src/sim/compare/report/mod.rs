//! A comparison as one page of HTML that needs nothing beside it.

mod bars;
mod chart;
mod figures;

use std::fmt::Write;

use super::keep::Kept;
use super::summary::Line;

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>Allocation policies compared</title>
<style>
body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
figure { margin: 2em 0 }
figure svg { width: 100%; height: auto }
figcaption { color: #555 }
</style>
</head>
<body>
";

/// The page of all `runs`, whose summary is `lines`; both in one order, a scenario at a time.
pub(super) fn page(runs: &[Kept], lines: &[Line]) -> String {
    let mut page = HEAD.to_owned();
    page += "<h1>Allocation policies compared</h1>\n";
    page += &preface(runs);
    for lines in lines.chunk_by(|a, b| a.scenario == b.scenario) {
        let scenario = &lines[0].scenario;
        let _ = writeln!(page, "<h2>{}</h2>", escaped(scenario));
        page += &table(lines);
        let runs: Vec<&Kept> = runs.iter().filter(|run| run.inputs.scenario == *scenario).collect();
        for figures::Figure { svg, caption } in figures::of(&runs) {
            let _ = writeln!(page, "<figure>\n{svg}<figcaption>{caption}</figcaption>\n</figure>");
        }
    }
    page + "</body>\n</html>\n"
}

fn preface(runs: &[Kept]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let settings = &first.inputs.settings;
    let settings = if settings.is_empty() { "none".to_owned() } else { escaped(&settings.join(", ")) };
    let mut seeds: Vec<u64> = runs.iter().map(|run| run.inputs.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds = seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "<p>Simulated by Sherwood {} at scale {}; settings changed: {settings}; seeds: {seeds}. With one seed, each policy \
         meets the same requests at the same times. Where there are several seeds, ± is the 95% confidence interval of \
         the mean.</p>\n",
        first.inputs.version, first.inputs.scale
    )
}

fn table(lines: &[Line]) -> String {
    let mut table = "<table>\n<tr><th>policy</th><th>SLO violations, %</th><th>P99, ms</th><th>worst P99, ms</th>\
                     <th>P50, ms</th><th>dominant blocker, mean %</th><th>at most %</th><th>static caches</th></tr>\n"
        .to_owned();
    for line in lines {
        let _ = writeln!(
            table,
            "<tr><td>{}</td><td>{:.2}</td><td>{:.1}</td><td>{:.0}</td><td>{:.1}</td><td>{:.0}</td><td>{:.0}</td><td>{:.2}</td></tr>",
            line.policy,
            line.slo_violation_ratio.times(100.0),
            line.p99_ms,
            line.p99_max_ms,
            line.p50_ms,
            line.dominant_rbc_mean.times(100.0),
            line.dominant_rbc_max.times(100.0),
            line.static_equivalent_ratio,
        );
    }
    table + "</table>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
