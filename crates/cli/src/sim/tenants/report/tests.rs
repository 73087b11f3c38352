use serde_json::json;
use sherwood_sim::tenants::Results;

use super::*;
use crate::chart::assert_well_formed;
use crate::sim::report::page;
use crate::sim::study::Kept;
use crate::sim::tenants::study::Observed;

/// Names of the tenants; the second contains markup.
const TENANTS: [&str; 2] = ["gold", "<b>&\"silver\""];

type Run = Kept<Results, Observed>;

/// A run of two tenants, the second of which has no cache and is idle in the first ten seconds.
fn run(scenario: &str, policy: &str, seed: u64, normalized: f64) -> Run {
    let holdings = |index: usize| json!({ "cache_bytes": (1 - index) << 20, "rates": { "reads <r>": 50.0 } });
    let tenant = |index: usize| {
        json!({
            "name": TENANTS[index], "throughput": 100.0 * normalized, "normalized": normalized,
            "normalized_min": normalized - 0.125, "hit_ratio": 0.5, "predicted_hit_ratio": null, "p50_ms": 5.0,
            "p99_ms": 10.0, "p999_ms": 20.0 + seed as f64, "refused_ratio": 0.0, "holdings": holdings(index),
        })
    };
    let sample = |second: f64| {
        let tenant = |index: usize| {
            let throughput = if index == 1 && second < 15.0 { 0.0 } else { 100.0 * normalized };
            json!({ "throughput": throughput, "hit_ratio": 0.5, "holdings": holdings(index) })
        };
        let tenants = [tenant(0), tenant(1)];
        json!({ "second": second, "gain": normalized, "bound": null, "tenants": tenants })
    };
    let samples = [-10.0, 10.0, 20.0, 30.0].map(sample);
    let kept = json!({
        "inputs": {
            "version": "0", "scenario": scenario, "document": null, "policy": policy, "seed": seed, "scale": "0.01",
            "settings": [],
        },
        "outcome": {
            "scenario": scenario, "policy": policy, "within": null, "seed": seed, "scale": 0.01, "requests": 1_000,
            "normalized_least": normalized, "predicted_gain": normalized, "bound": null, "decisions": 2, "applied": 1,
            "tenants": [tenant(0), tenant(1)],
            "resources": [{ "name": "reads <r>", "total": 100.0, "used_ratio": [0.5, 0.0] }], "complete": true,
            "wall_s": 1.0, "queries_per_s": 1_000.0,
        },
        "observed": { "measured": { "seconds": 30.0, "tenants": [] }, "samples": samples },
    });
    serde_json::from_value(kept).unwrap()
}

/// Returns the runs of a policy with two seeds.
fn group(scenario: &str, policy: &str, value: Option<&str>, normalized: f64) -> (Option<String>, Vec<Run>) {
    let kept = [1, 2].map(|seed| run(scenario, policy, seed, normalized)).to_vec();
    (value.map(str::to_owned), kept)
}

/// Returns the page of these runs.
fn page_of(
    groups: impl IntoIterator<Item = (Option<String>, Vec<Run>)>,
    settings: &[String],
    swept: Option<&str>,
) -> String {
    let (values, kept): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
    let (settings, swept) = (settings.to_vec(), swept.map(str::to_owned));
    let kept = kept.concat();
    let comparison = Comparison { kept, values, seeds: vec![1, 2], settings, swept, wall_s: 0.0 };
    page("Tenants", &sections(&comparison))
}

/// Returns the titles of the figures of a page, each of which is checked.
fn titles(page: &str) -> Vec<&str> {
    let figures = page.split("<figure>").skip(1);
    let title = |figure| {
        let svg = between(figure, "<div class=\"wide\">\n", "</div>");
        assert_well_formed(svg);
        between(svg, "<title>", "</title>")
    };
    figures.map(title).collect()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("no {start} in {text}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} in {rest}")).0
}

/// Checks that a page has no figure that is no number, and needs no other file.
fn assert_complete(page: &str) {
    for wrong in ["NaN", "inf<", "<b>", "<r>", "<own>", "src=", "href=\"http"] {
        assert!(!page.contains(wrong), "{wrong} in {page}");
    }
    assert!(page.ends_with("</html>\n"));
}

#[test]
fn report_of_tenants_has_every_figure_of_each_scenario() {
    let groups = [
        group("hare-skew", "baseline", None, 1.0),
        group("hare-skew", "hare", None, 1.25),
        group("our <own>", "baseline", None, 1.0),
    ];
    let page = page_of(groups, &[], None);
    assert_complete(&page);
    let silver = "&lt;b&gt;&amp;&quot;silver&quot;: normalized throughput in ten seconds";
    let of_scenario = [
        "Normalized throughput",
        "P99.9 of latency",
        "Least gain of any tenant",
        "Use of the resources, and division of the cache",
        "gold: normalized throughput in ten seconds",
        silver,
    ];
    assert_eq!(titles(&page), [of_scenario, of_scenario].concat());
    assert!(page.contains("<h2>hare-skew</h2>") && page.contains("<h2>our &lt;own&gt;</h2>"), "{page}");
    let least = "<td class=\"word\">least gain</td><td>1.38</td><td>1.250</td><td>≥ 1.35</td>";
    assert!(page.contains(&format!("{least}<td class=\"word no\">no</td>")), "{page}");
    assert!(page.contains("seeds: 1, 2."), "{page}");
}

#[test]
fn report_of_a_sweep_draws_each_tenant_over_the_values() {
    let groups = ["4", "16"].map(|keys| group("hare-working-set", "hare", Some(keys), 1.5));
    let page = page_of(groups, &["keys=4,16".to_owned()], Some("keys"));
    assert_complete(&page);
    let silver = "&lt;b&gt;&amp;&quot;silver&quot;";
    let (throughput, tail) = ("normalized throughput", "P99.9 of latency");
    let expected = [
        format!("gold: {throughput}"),
        format!("gold: {tail}"),
        format!("{silver}: {throughput}"),
        format!("{silver}: {tail}"),
    ];
    assert_eq!(titles(&page), expected);
    assert!(page.contains("<td class=\"word\">hare keys=16</td>"), "{page}");
    assert!(!page.contains("paper says"), "with other settings, nothing is compared with the paper");
}
