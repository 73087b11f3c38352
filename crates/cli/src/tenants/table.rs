//! Answers about tenants as tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde_json::Value;

use crate::mrc::bytes;
use crate::policy::plain;

/// The answer of `GET /v1/tenants`, as far as it is shown.
#[derive(Debug, Deserialize)]
struct Standing {
    policy: String,
    resources: Vec<Resource>,
    gain: Option<f64>,
    bound: Option<f64>,
    moving: bool,
    latest: Option<Latest>,
    tenants: Vec<Tenant>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Latest {
    line: String,
}

#[derive(Debug, Deserialize)]
struct Tenant {
    name: String,
    weight: f64,
    holdings: Share,
    used: Share,
    waiting: BTreeMap<String, u64>,
    requests_per_s: f64,
    hit_ratio: Option<f64>,
    normalized: Option<f64>,
    predicted: Option<f64>,
}

/// The answer of `POST /v1/tenants/what-if`.
#[derive(Debug, Deserialize)]
struct Division {
    gain: f64,
    bound: Option<f64>,
    tenants: Vec<Divided>,
}

#[derive(Debug, Deserialize)]
struct Divided {
    name: String,
    weight: f64,
    base: Share,
    holdings: Share,
    normalized: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Share {
    cache_bytes: u64,
    rates: BTreeMap<String, f64>,
}

impl Share {
    fn rate(&self, resource: &str) -> f64 {
        self.rates.get(resource).copied().unwrap_or(0.0)
    }
}

/// Returns a row for each tenant with what it holds and uses, and the latest decision.
pub(super) fn standing(answer: Value) -> serde_json::Result<String> {
    let Standing { policy, resources, gain, bound, moving, latest, tenants } =
        serde_json::from_value(answer)?;
    let mut header: Vec<String> = ["tenant", "weight", "cache", "of"].map(str::to_owned).to_vec();
    for Resource { name } in &resources {
        header.extend([format!("{}/s", plain(name)), "of".to_owned(), "waiting".to_owned()]);
    }
    header.extend(["requests/s", "hits", "times", "by curve"].map(str::to_owned));
    let row = |tenant: &Tenant| {
        let Tenant { name, weight, holdings, used, requests_per_s, hit_ratio, normalized, predicted, .. } =
            tenant;
        let mut row =
            vec![plain(name), weight.to_string(), bytes(used.cache_bytes), bytes(holdings.cache_bytes)];
        for Resource { name } in &resources {
            let waiting = tenant.waiting.get(name).copied().unwrap_or(0).to_string();
            row.extend([amount(used.rate(name)), amount(holdings.rate(name)), waiting]);
        }
        let hits = hit_ratio.map_or("-".to_owned(), |ratio| format!("{:.1}%", ratio * 100.0));
        row.extend([amount(*requests_per_s), hits, times(*normalized), times(*predicted)]);
        row
    };
    let rows: Vec<_> = tenants.iter().map(row).collect();
    let mut text = aligned(header, &rows);
    text.push('\n');
    if let Some(Latest { line }) = latest {
        let _ = writeln!(text, "{}", line.chars().filter(|c| !c.is_control()).collect::<String>());
    } else {
        let _ = writeln!(text, "{} has not decided yet", plain(&policy));
    }
    text.push_str(&level(gain, bound, if moving { ", on the way to a division" } else { "" }));
    Ok(text)
}

/// Returns a row for each tenant with its baseline and what it would hold.
pub(super) fn division(answer: Value) -> serde_json::Result<String> {
    let Division { gain, bound, tenants } = serde_json::from_value(answer)?;
    let names: Vec<&String> =
        tenants.first().map(|first| first.holdings.rates.keys().collect()).unwrap_or_default();
    let mut header: Vec<String> = ["tenant", "weight", "cache", "baseline"].map(str::to_owned).to_vec();
    for name in &names {
        header.extend([format!("{}/s", plain(name)), "baseline".to_owned()]);
    }
    header.push("times".to_owned());
    let row = |tenant: &Divided| {
        let Divided { name, weight, base, holdings, normalized } = tenant;
        let mut row =
            vec![plain(name), weight.to_string(), bytes(holdings.cache_bytes), bytes(base.cache_bytes)];
        for name in &names {
            row.extend([amount(holdings.rate(name)), amount(base.rate(name))]);
        }
        row.push(times(*normalized));
        row
    };
    let rows: Vec<_> = tenants.iter().map(row).collect();
    let mut text = aligned(header, &rows);
    text.push('\n');
    text.push_str(&level(Some(gain), bound, ""));
    Ok(text)
}

fn level(gain: Option<f64>, bound: Option<f64>, more: &str) -> String {
    let bound = bound.map_or(String::new(), |bound| format!("; at most {bound:.3} is possible"));
    let Some(gain) = gain else {
        return format!("no resource limits any tenant by its curve{more}{bound}\n");
    };
    format!("every tenant has at least {gain:.3} times its baseline's throughput by its curve{more}{bound}\n")
}

/// Formats a normalized throughput, if there is one.
fn times(normalized: Option<f64>) -> String {
    normalized.map_or("-".to_owned(), |times| format!("{times:.3}"))
}

fn amount(value: f64) -> String {
    if value >= 10_000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Formats rows with columns as wide as their widest cell; the first is aligned to the left.
fn aligned(header: Vec<String>, rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(&header).chain(rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    for row in all() {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn share(cache_bytes: u64, reads: f64) -> Value {
        json!({"cache_bytes": cache_bytes, "rates": {"orders-reads": reads}})
    }

    #[test]
    fn table_shows_what_each_tenant_uses_of_what_it_holds() {
        let tenant = |name: &str, normalized: Option<f64>, predicted: Option<f64>| {
            json!({
                "name": name, "weight": 1.0, "holdings": share(3 << 30, 1_700.0), "used": share(2 << 30, 1_650.25),
                "waiting": {"orders-reads": 7}, "requests_per_s": 12_345.6, "hit_ratio": normalized.map(|_| 0.985),
                "normalized": normalized, "predicted": predicted, "base": share(2 << 30, 1_000.0),
            })
        };
        let answer = json!({
            "policy": "hare", "resources": [{"name": "orders-reads", "kind": "reads"}], "gain": 1.6, "bound": 1.616,
            "moving": true, "latest": null, "tenants": [tenant("gold", Some(1.604), Some(1.6)), tenant("s\u{1b}", None, None)],
        });
        assert_eq!(
            standing(answer).unwrap(),
            "\
tenant   weight    cache       of  orders-reads/s      of  waiting  requests/s   hits  times  by curve
gold          1  2.0 GiB  3.0 GiB          1650.2  1700.0        7       12346  98.5%  1.604     1.600
s\\u{1b}       1  2.0 GiB  3.0 GiB          1650.2  1700.0        7       12346      -      -         -

hare has not decided yet
every tenant has at least 1.600 times its baseline's throughput by its curve, on the way to a division; at most 1.616 is possible
"
        );
    }

    #[test]
    fn tenants_whose_keys_all_fit_have_no_gain() {
        assert_eq!(level(None, None, ""), "no resource limits any tenant by its curve\n");
    }

    #[test]
    fn what_if_shows_each_tenants_baseline_beside_what_it_would_hold() {
        let tenant = |name: &str, weight: f64, normalized: Value| {
            let (base, holdings) = (share(1 << 30, 500.0), share(3 << 29, 250.0));
            json!({"name": name, "weight": weight, "base": base, "holdings": holdings, "normalized": normalized})
        };
        let answer = json!({
            "policy": "hare", "gain": 1.25, "bound": null,
            "tenants": [tenant("gold", 2.0, json!(1.25)), tenant("fits", 1.0, Value::Null)],
        });
        assert_eq!(
            division(answer).unwrap(),
            "\
tenant  weight    cache  baseline  orders-reads/s  baseline  times
gold         2  1.5 GiB   1.0 GiB           250.0     500.0  1.250
fits         1  1.5 GiB   1.0 GiB           250.0     500.0      -

every tenant has at least 1.250 times its baseline's throughput by its curve
"
        );
    }
}
