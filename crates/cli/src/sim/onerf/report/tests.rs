use sherwood_sim::{DominantRbc, Results, Setup};

use super::*;
use crate::chart::assert_well_formed;
use crate::sim::inputs::distinct;
use crate::sim::onerf::kept::Kept;
use crate::sim::onerf::plotted::{BackendSeries, Series};
use crate::sim::report::{self, Picture};
use crate::sim::study::Outcome;

/// A run of 55 minutes with two relevant backends.
fn run(scenario: &str, policy: &str, seed: u64) -> Kept {
    run_of(8, scenario, policy, seed)
}

/// A run with this number of backends, in which queries of higher-numbered backends are slower.
fn run_of(backends: usize, scenario: &str, policy: &str, seed: u64) -> Kept {
    let minutes = || (1..=55).map(f64::from);
    let backend = |number: usize| BackendSeries {
        name: format!("b{number:02}"),
        query_p99_ms: minutes().map(|minute| (minute > 5.0).then_some(minute * number as f64)).collect(),
        blocking_ratio: minutes().map(|_| if number < 3 { 0.4 } else { 0.1 }).collect(),
        allocation_bytes: minutes().map(|minute| 100.0 + minute * number as f64).collect(),
    };
    let results = Results {
        scenario: scenario.to_owned(),
        policy: policy.to_owned(),
        seed,
        slo_bound_ms: 150.0,
        slo_violation_ratio: seed as f64 / 100.0,
        p99_ms: 62.5,
        p99_max_ms: 480.0,
        dominant_rbc: DominantRbc { at: vec![0.4], mean: 0.35, max: 0.7 },
        allocation_bytes: [("b01".to_owned(), sherwood_sim::Allocation { mean: 1.0, max: 800.0 })].into(),
        static_equivalent_ratio: 1.6,
        complete: true,
        ..Results::default()
    };
    let inputs = serde_json::json!({
        "version": "0", "scenario": scenario, "document": null, "policy": policy, "seed": seed, "scale": "0.01",
        "settings": [],
    });
    Kept {
        inputs: serde_json::from_value(inputs).unwrap(),
        outcome: Outcome { results, wall_s: 1.0, queries_per_s: 1.0 },
        observed: Series {
            minute: minutes().collect(),
            p50_ms: minutes().map(|_| Some(8.0)).collect(),
            p90_ms: minutes().map(Some).collect(),
            p99_ms: minutes().map(|minute| (minute != 30.0).then_some(minute * 10.0)).collect(),
            backends: (1..=backends).map(backend).collect(),
        },
    }
}

fn limits() -> BTreeMap<String, Limits> {
    let line = LimitLine { backend: 5, name: "b06".to_owned(), points: vec![(0.0, 1.0), (55.0, 0.4)] };
    BTreeMap::from([("ramp-7-slow".to_owned(), vec![line.clone()]), ("our <own>".to_owned(), vec![line])])
}

fn compared() -> Vec<Kept> {
    let mut runs = Vec::new();
    for scenario in ["ramp-7-slow", "our <own>"] {
        for policy in ["robinhood", "shared-lru", "equal"] {
            runs.extend([1, 2].map(|seed| run(scenario, policy, seed)));
        }
    }
    runs
}

fn hits() -> Vec<LiveRun> {
    let run = |policy: &str, ms| LiveRun {
        policy: policy.to_owned(),
        hit_p99_ms: [("b01".to_owned(), ms), ("b02".to_owned(), 0.5)].into(),
    };
    vec![run("robinhood", 0.75), run("shared-lru", 0.25)]
}

/// Returns the picture with this name for the only scenario of `kept`.
fn figure(kept: &[Kept], limits: Limits, name: &str) -> Picture {
    let figures = figures::of(kept, Some(&limits), &kept[0].inputs.scenario);
    figures.into_iter().find(|figure| figure.name.ends_with(name)).unwrap_or_else(|| panic!("no {name}"))
}

fn comparison(kept: Vec<Kept>) -> Comparison {
    let seeds = distinct(&kept.iter().map(|run| run.inputs.seed).collect::<Vec<_>>());
    let values = vec![None; kept.len() / seeds.len()];
    Comparison { kept, values, seeds, settings: Vec::new(), swept: None, wall_s: 0.0 }
}

/// Returns the sections of the report of all runs.
fn studied() -> Vec<Section> {
    sections(&comparison(compared()), &limits(), &hits())
}

#[test]
fn every_picture_has_its_own_file_and_is_well_formed() {
    let sections = studied();
    let pictures: Vec<&Picture> = sections.iter().flat_map(|section| &section.pictures).collect();
    let mut names: Vec<String> = pictures.iter().map(|picture| format!("{}.svg", picture.name)).collect();
    names.sort();
    pictures.iter().for_each(|picture| assert_well_formed(&picture.svg));
    insta::assert_snapshot!(names.join("\n"));
}

#[test]
fn limited_backend_is_drawn_even_if_its_queries_are_fast() {
    let limits = LimitLine::of(&Setup::new("onerf-spikes", "shared-lru", 1)).unwrap();
    let kept = [run_of(20, "onerf-spikes", "shared-lru", 1)];
    let Picture { svg, caption, .. } = figure(&kept, limits, "backend-p99");
    let drawn =
        (1..=20).map(|number| format!("b{number:02}")).filter(|name| svg.contains(&format!(">{name}<")));
    assert_eq!(drawn.collect::<Vec<_>>(), ["b01", "b05", "b06", "b08", "b19", "b20"]);
    assert!(caption.starts_with("6 backends: those that are limited"), "{caption}");
    // When more backends are limited than are otherwise drawn, all limited ones are drawn.
    let line =
        |backend: usize| LimitLine { backend, name: format!("b{:02}", backend + 1), points: Vec::new() };
    let svg = figure(&kept, (0..9).map(line).collect(), "backend-p99").svg;
    assert!((1..=9).all(|number| svg.contains(&format!(">b0{number}<"))) && !svg.contains(">b20<"), "{svg}");
}

#[test]
fn axis_of_shares_covers_100_percent() {
    // P50 is always 8 ms, so all observations exceed lower bounds and none exceeds higher ones.
    let svg = figure(&[run("none", "robinhood", 1)], Vec::new(), "violations-p50").svg;
    let tick = |percent: u32| {
        let (before, _) = svg.split_once(&format!("text-anchor=\"end\">{percent}</text>")).expect("a tick");
        let (_, at) = before.rsplit_once(" y=\"").expect("its place");
        at.trim_end_matches("\" ").parse::<f64>().expect("a number") - 4.0
    };
    assert!(tick(100) < tick(60), "the axis goes on");
    let (_, line) = svg.rsplit_once("<path d=\"M60.0 ").expect("a line");
    assert!(line.starts_with(&format!("{:.1}L", tick(100))), "{line}");
}

#[test]
fn captions_of_figures_of_one_seed_name_the_seed() {
    let of_seed = |seed| ["robinhood", "shared-lru"].map(|policy| run("none", policy, seed));
    let kept = [of_seed(7), of_seed(8)].concat();
    for name in ["request-p99", "backend-p99", "blocking", "allocation"] {
        let caption = figure(&kept, Vec::new(), name).caption;
        assert!(caption.contains("; seed 7."), "{caption}");
    }
    assert!(figure(&kept, Vec::new(), "violations-p99").caption.ends_with("; all seeds."));
}

#[test]
fn comparison_report_is_a_self_contained_page() {
    let page = report::page("A report", &studied());
    assert!(!page.contains("src=") && !page.contains("href=\"http") && page.ends_with("</html>\n"));
    assert!(!page.contains("<own>") && page.contains("our &lt;own&gt;"), "names are no markup");
    assert!(page.contains("<td>1.50 (0.00–7.85)</td>"), "{page}");
    assert!(page.contains("does not") && page.contains("P99 above the SLO"), "the paper's rows are there");
    // Eight figures for each scenario, and that of hits.
    assert_eq!((page.matches("<svg").count(), page.matches("</figure>").count()), (17, 17));
}

#[test]
fn report_of_a_single_scenario_has_no_contents_or_overview() {
    let mut kept = vec![run("ramp-7-slow", "robinhood", 1)];
    kept[0].inputs.settings = vec!["servers=2 & more".to_owned()];
    let page = report::page("A report", &sections(&comparison(kept), &BTreeMap::new(), &[]));
    assert!(
        !page.contains("<nav>") && !page.contains("SLO violations, % of") && !page.contains("paper says")
    );
    assert!(page.contains("<h2 id=\"ramp-7-slow\">ramp-7-slow</h2>"));
    assert!(page.contains("so nothing is compared with it: servers=2 &amp; more.</p>"), "{page}");
}
