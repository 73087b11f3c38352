//! Comparison of the book's page on configuration with the code.

use super::example::keys;
use super::*;

const PAGE: &str = include_str!("../../../../../docs/src/configuration.md");

/// Keys in the first cell of each row of the tables below a heading.
fn listed(heading: &str) -> Vec<&'static str> {
    let (_, section) = PAGE.split_once(&format!("\n### {heading}\n")).expect("the page has it");
    let (section, _) = section.split_once("\n### ").expect("it is not the last");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.map(|row| row.split(" |").next().expect("a split has a part"));
    cells.flat_map(|cell| cell.split('`').step_by(2)).collect()
}

/// Keys directly below `table`, which ends with a dot, without that prefix.
fn below(listed: &[&str], table: &str) -> BTreeSet<String> {
    let inside = listed.iter().filter_map(|key| key.strip_prefix(table));
    inside.map(|key| key.split('.').next().expect("a split has a part").to_owned()).collect()
}

#[test]
fn every_configuration_key_is_on_the_documentation_page() {
    let memory = listed("`[memory]`");
    assert_eq!(below(&memory, ""), keys::<RawMemory>());
    assert_eq!(below(&memory, "snapshot."), keys::<RawSnapshot>());
    assert_eq!(below(&listed("`[server]`"), ""), keys::<RawServer>());
    let listener = listed("`[[listener]]`");
    assert_eq!(below(&listener, ""), keys::<RawListener>());
    assert_eq!(below(&listener, "tls."), keys::<RawServerTls>());
    let backend = listed("`[[backend]]`");
    assert_eq!(below(&backend, ""), keys::<RawBackend>());
    assert_eq!(below(&backend, "ttl_rules."), keys::<RawTtlRule>());
    assert_eq!(below(&backend, "stale."), keys::<RawStale>());
    assert_eq!(below(&backend, "writes."), keys::<RawWrites>());
    assert_eq!(below(&backend, "dispatch."), keys::<RawDispatch>());
    assert_eq!(below(&backend, "dispatch.retry."), keys::<RawRetry>());
    assert_eq!(below(&backend, "dispatch.probe."), keys::<RawProbe>());
    assert_eq!(below(&backend, "ramp."), keys::<RawRamp>());
    assert_eq!(below(&backend, "deadlines."), keys::<RawDeadlineClasses>());
    let store = listed("A store");
    assert_eq!(below(&store, ""), keys::<RawStore>());
    assert_eq!(below(&store, "tls."), keys::<RawTls>());
    assert_eq!(below(&store, "tickets."), keys::<RawTicketsAccess>());
    let partition = listed("`[[partition]]`");
    assert_eq!(below(&partition, ""), keys::<RawPartition>());
    assert_eq!(below(&partition, "cache."), keys::<RawInstance>());
    assert_eq!(below(&listed("`[tenants]`"), ""), keys::<RawTenants>());
    assert_eq!(below(&listed("`[[tenant]]`"), ""), keys::<RawTenant>());
    assert_eq!(below(&listed("`[[resource]]`"), ""), keys::<RawResource>());
    let slo = listed("`[slo]`");
    assert_eq!(below(&slo, ""), keys::<RawSlo>());
    assert_eq!(below(&slo, "class."), keys::<RawScopedSlo>());
    assert_eq!(below(&slo, "tenant."), keys::<RawScopedSlo>());
    assert_eq!(below(&listed("`[[deadline]]`"), ""), keys::<RawDeadline>());
    assert_eq!(below(&listed("`[[scheduler]]`"), ""), keys::<RawScheduler>());
    let control = listed("`[control]`");
    assert_eq!(below(&control, ""), keys::<RawControl>());
    assert_eq!(below(&control, "guard."), keys::<RawGuard>());
    assert_eq!(below(&control, "tao."), keys::<RawTao>());
    assert_eq!(below(&control, "cliffhanger."), keys::<RawCliffhanger>());
    assert_eq!(below(&control, "fair."), keys::<RawFair>());
    assert_eq!(below(&control, "lama."), keys::<RawLama>());
    let admin = listed("`[admin]`");
    assert_eq!(below(&admin, ""), keys::<RawAdmin>());
    assert_eq!(below(&admin, "tls."), keys::<RawServerTls>());
    let otlp = listed("`[otlp]`");
    assert_eq!(below(&otlp, ""), keys::<RawOtlp>());
    assert_eq!(below(&otlp, "export."), keys::<RawSpanExport>());
}
