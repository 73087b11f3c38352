//! The input files in `examples/tenants`: they are current, and have the gains that are published.
//!
//! `REWRITE=1 cargo test -p sherwood-policy --test examples` writes the files.

#![expect(clippy::disallowed_methods, reason = "compares and writes files")]

mod curves;

use curves::Popularity;
use serde_json::{Value, json};
use sherwood_model::{BackendId, DemandCurve, ResourceKind};
use sherwood_policy::tenants::{Division, Share, TenantOptions, TenantSeen, Tenants, by_name};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tenants");
const MIB: u64 = 1 << 20;
const GB: u64 = 1_000_000_000;

/// Every file with its name.
fn files() -> Vec<(&'static str, Value)> {
    vec![
        ("files", files_example()),
        ("units", units_example()),
        ("working-set-4m", working_set(4)),
        ("working-set-16m", working_set(16)),
        ("skew-0", skew(0.0)),
    ]
}

/// The paper's filesystem: 4 GB of cache and 3 GB/s of disk for two tenants that read 1 MB at once
/// from 5 and 8 GB. Disk is in units of 1 MB.
fn files_example() -> Value {
    let tenant = |name: &str, bytes: u64| {
        json!({
            "name": name,
            "base": amounts(2 * GB, 1_500.0, 0.0, 0.0),
            "demand_if_miss": {"db_rcu": 1.0, "db_wcu": 0.0, "net_bw": 0.0},
            "net_alpha": 0.0,
            "mrc": {"ticks_bytes": [bytes], "miss_ratio": [0.0]},
        })
    };
    json!({
        "about": "Two tenants of a filesystem, from the introduction of HARE's paper: both gain 20%",
        "params": {"cache_delta_bytes": GB / 10, "min_cache_size_bytes": 0},
        "totals": amounts(4 * GB, 3_000.0, 0.0, 0.0),
        "tenants": [tenant("A", 5 * GB), tenant("B", 8 * GB)],
    })
}

/// The paper's example of dominant resource fairness: requests of <1 read unit, 2 write units> and
/// <4, 1>, 1,200 of each per second.
fn units_example() -> Value {
    let tenant = |name: &str, reads: f64, writes: f64| {
        json!({
            "name": name,
            "base": amounts(0, 600.0, 600.0, 0.0),
            "demand_if_miss": {"db_rcu": reads, "db_wcu": writes, "net_bw": 0.0},
            "net_alpha": 0.0,
            "mrc": {"ticks_bytes": [MIB], "miss_ratio": [1.0]},
        })
    };
    json!({
        "about": "Two tenants without cache, from HARE's paper: both gain 33%",
        "params": {"cache_delta_bytes": MIB, "min_cache_size_bytes": 0},
        "totals": amounts(0, 1_200.0, 1_200.0, 0.0),
        "tenants": [tenant("A", 1.0, 2.0), tenant("B", 4.0, 1.0)],
    })
}

/// Figure 6a: a uniform working set of some million keys beside one of 6 million.
fn working_set(millions: u64) -> Value {
    let about = format!("Uniform working sets of {millions} and 6 million keys, figure 6a of HARE's paper");
    pair(&about, Popularity::uniform(millions * 1_000_000), Popularity::uniform(6_000_000))
}

/// Figure 6b: 12 million keys with a Zipf law of this exponent beside 6 million with 0.99.
fn skew(theta: f64) -> Value {
    let about =
        format!("12 million keys with Zipf {theta} beside 6 million with 0.99, figure 6b of HARE's paper");
    pair(&about, Popularity::zipf(12_000_000, theta), Popularity::zipf(6_000_000, 0.99))
}

/// Two tenants with the published baseline: 2 GiB, 1,000 read and write units, 50 MiB/s; pairs of
/// 516 bytes, of which 0.55 GB hold a million; 5% writes; a salt of 0.01; 64 points to 4 GiB.
fn pair(about: &str, first: Popularity, second: Popularity) -> Value {
    let (net_bw, range) = ((50 * MIB) as f64, 4_096 * MIB);
    let tenant = |name: &str, popularity: Popularity| {
        let ticks: Vec<u64> = (1..=64).map(|tick| range / 64 * tick).collect();
        let misses = |&bytes: &u64| {
            let keys = bytes as f64 / 550.0;
            // Six decimals keep the files short and are a tenth of a thousandth of the salt.
            libm::round((popularity.miss_ratio(keys) + 0.01).min(1.0) * 1e6) / 1e6
        };
        json!({
            "name": name,
            "base": amounts(2_048 * MIB, 1_000.0, 1_000.0, net_bw),
            "demand_if_miss": {"db_rcu": 0.95, "db_wcu": 0.05, "net_bw": 1_032.0},
            "net_alpha": 0.475,
            "mrc": {"ticks_bytes": ticks, "miss_ratio": ticks.iter().map(misses).collect::<Vec<_>>()},
        })
    };
    json!({
        "about": about,
        "params": {"cache_delta_bytes": 32 * MIB, "min_cache_size_bytes": 10 * MIB},
        "totals": amounts(range, 2_000.0, 2_000.0, 2.0 * net_bw),
        "tenants": [tenant("T1", first), tenant("T2", second)],
    })
}

fn amounts(cache_bytes: u64, db_rcu: f64, db_wcu: f64, net_bw: f64) -> Value {
    json!({"cache_bytes": cache_bytes, "db_rcu": db_rcu, "db_wcu": db_wcu, "net_bw": net_bw})
}

/// Reads a file as `sherwood policy allocate` does.
fn tenants(file: &Value) -> Tenants {
    let share = |value: &Value| Share {
        bytes: value["cache_bytes"].as_u64().unwrap(),
        rates: ["db_rcu", "db_wcu", "net_bw"].map(|name| value[name].as_f64().unwrap()).to_vec(),
    };
    let floor = file["params"]["min_cache_size_bytes"].as_u64().unwrap();
    let seen = file["tenants"].as_array().unwrap().iter().map(|tenant| {
        let sizes =
            tenant["mrc"]["ticks_bytes"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap());
        let ratios =
            tenant["mrc"]["miss_ratio"].as_array().unwrap().iter().map(|miss| miss.as_f64().unwrap());
        let miss_ratio = DemandCurve::new([(0, 1.0)].into_iter().chain(sizes.zip(ratios)));
        let units = |name: &str| tenant["demand_if_miss"][name].as_f64().unwrap();
        let demand = vec![
            DemandCurve::of_misses(units("db_rcu"), 1.0, &miss_ratio),
            DemandCurve::constant(units("db_wcu")),
            DemandCurve::of_misses(units("net_bw"), tenant["net_alpha"].as_f64().unwrap(), &miss_ratio),
        ];
        let floor = Share { bytes: floor, rates: vec![] };
        TenantSeen { base: share(&tenant["base"]), floor, miss_ratio, demand }
    });
    let seen = seen.collect();
    let kinds =
        vec![ResourceKind::Reads(BackendId(0)), ResourceKind::Writes(BackendId(0)), ResourceKind::Network];
    Tenants::new(kinds, share(&file["totals"]), seen)
}

fn divide(policy: &str, file: &Value) -> Division {
    let chunk_bytes = file["params"]["cache_delta_bytes"].as_u64().unwrap();
    by_name(policy, TenantOptions { chunk_bytes, conserving: true }).unwrap().divide(&tenants(file))
}

fn row(division: &Division, index: usize) -> &[f64] {
    division.rates.row(sherwood_model::TenantId::from_index(index))
}

#[track_caller]
fn assert_near(value: f64, expected: f64) {
    assert!((value / expected - 1.0).abs() < 1e-9, "{value} is not {expected}");
}

#[test]
fn example_files_are_current() {
    for (name, file) in files() {
        let path = format!("{FOLDER}/{name}.json");
        let text = serde_json::to_string(&file).unwrap() + "\n";
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(written == text, "{path} is old: run this test with REWRITE=1");
    }
}

#[test]
fn filesystem_of_the_paper_gains_a_fifth() {
    for policy in ["hare", "hare-published"] {
        let division = divide(policy, &files_example());
        assert_eq!(division.bytes, [4 * GB, 0], "{policy}");
        assert_near(row(&division, 0)[0], 600.0);
        assert_near(row(&division, 1)[0], 2_400.0);
        division.normalized.iter().for_each(|&normalized| assert_near(normalized, 1.2));
    }
}

#[test]
fn tenants_without_cache_of_the_paper_gain_a_third() {
    for policy in ["hare", "hare-published", "drf", "memshare"] {
        let division = divide(policy, &units_example());
        assert_near(row(&division, 0)[0], 400.0);
        assert_near(row(&division, 1)[0], 800.0);
        division.normalized.iter().for_each(|&normalized| assert_near(normalized, 4.0 / 3.0));
        // The paper leaves 200 write units; conserving policies divide them, too.
        assert_near(row(&division, 0)[1], 960.0);
        assert_near(row(&division, 1)[1], 240.0);
    }
}

#[test]
fn gains_with_the_papers_workloads_are_those_measured_there() {
    let cases = [(working_set(4), 1.56), (working_set(16), 1.63), (skew(0.0), 1.37)];
    for (file, least) in cases {
        let hare = divide("hare", &file);
        let published = divide("hare-published", &file).gain;
        let about = &file["about"];
        assert!(hare.gain >= least, "{about}: {} < {least}", hare.gain);
        assert!(hare.gain >= published, "{about}: {} < {published}", hare.gain);
        assert!(hare.gain <= hare.bound.unwrap(), "{about}");
    }
}

#[test]
fn tenants_with_equal_workloads_trade_nothing_and_gain_what_drf_gives() {
    let file = working_set(6);
    let [hare, published, drf] = ["hare", "hare-published", "drf"].map(|policy| divide(policy, &file));
    assert_eq!((&hare.bytes, &published.bytes), (&drf.bytes, &drf.bytes));
    assert!(hare.trades.is_empty());
    assert_near(hare.gain, drf.gain);
    assert_near(published.gain, drf.gain);
}
