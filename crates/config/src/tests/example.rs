//! Comparison of the example file with the code.

use sherwood_model::misread;

use super::*;

/// Keys of a raw table, taken from its error about an unknown key.
pub(super) fn keys<T: DeserializeOwned>() -> BTreeSet<String> {
    let Err(error) = toml::from_str::<T>("no_such_key = 0") else { panic!("unknown keys are refused") };
    let (_, known) = misread::unknown_field(error.message()).expect("the message lists the keys");
    known.into_iter().map(str::to_owned).collect()
}

fn present<'a>(tables: impl IntoIterator<Item = &'a toml::Value>) -> BTreeSet<String> {
    tables.into_iter().filter_map(toml::Value::as_table).flat_map(|table| table.keys().cloned()).collect()
}

#[test]
fn every_configuration_key_is_in_the_example_file() {
    let example: toml::Table = toml::from_str(EXAMPLE).expect("the example is TOML");
    let all = |name: &str| match &example[name] {
        toml::Value::Array(tables) => tables.clone(),
        table => vec![table.clone()],
    };
    let below = |tables: &[toml::Value], key: &str| -> Vec<toml::Value> {
        tables.iter().filter_map(|table| table.get(key)).cloned().collect()
    };
    let whole = toml::Value::Table(example.clone());
    assert_eq!(present([&whole]), keys::<RawFile>());
    assert_eq!(present(&all("memory")), keys::<RawMemory>());
    assert_eq!(present(&below(&all("memory"), "snapshot")), keys::<RawSnapshot>());
    assert_eq!(present(&all("server")), keys::<RawServer>());
    let listener = all("listener");
    assert_eq!(present(&listener), keys::<RawListener>());
    assert_eq!(present(&below(&listener, "tls")), keys::<RawServerTls>());
    assert_eq!(present(&all("backend")), keys::<RawBackend>());
    // `cache` is a comment in the example: a node that resizes external caches serves none of its
    // own.
    let shown = EXAMPLE.lines().find_map(|line| line.strip_prefix("# cache = ")).expect("it is shown");
    let instance: toml::Value = toml::from_str(&format!("cache = {shown}")).expect("it is TOML");
    assert_eq!(present([&instance["cache"]]), keys::<RawInstance>());
    let mut partitions = present(&all("partition"));
    partitions.insert("cache".to_owned());
    assert_eq!(partitions, keys::<RawPartition>());
    assert_eq!(present(&all("tenants")), keys::<RawTenants>());
    assert_eq!(present(&all("tenant")), keys::<RawTenant>());
    assert_eq!(present(&all("resource")), keys::<RawResource>());
    assert_eq!(present(&all("slo")), keys::<RawSlo>());
    let slos = all("slo").into_iter().flat_map(|slo| [slo["class"].clone(), slo["tenant"].clone()]);
    let slos: Vec<_> = slos.flat_map(|tables| tables.as_array().cloned().unwrap_or_default()).collect();
    assert_eq!(present(&slos), keys::<RawScopedSlo>());
    assert_eq!(present(&all("deadline")), keys::<RawDeadline>());
    assert_eq!(present(&all("scheduler")), keys::<RawScheduler>());
    assert_eq!(present(&all("control")), keys::<RawControl>());
    let control = all("control");
    assert_eq!(present(&below(&control, "guard")), keys::<RawGuard>());
    assert_eq!(present(&below(&control, "tao")), keys::<RawTao>());
    assert_eq!(present(&below(&control, "cliffhanger")), keys::<RawCliffhanger>());
    assert_eq!(present(&below(&control, "fair")), keys::<RawFair>());
    assert_eq!(present(&below(&control, "lama")), keys::<RawLama>());
    let cluster = all("cluster");
    assert_eq!(present(&cluster), keys::<RawCluster>());
    let bus = below(&cluster, "bus");
    let mut shown = present(&bus);
    // These are other ways of logging in.
    for other_way in ["credentials", "token_file"] {
        assert!(EXAMPLE.contains(&format!("\n# {other_way} = ")), "{other_way} is shown");
        shown.insert(other_way.to_owned());
    }
    assert_eq!(shown, keys::<RawBus>());
    assert_eq!(present(&below(&bus, "tls")), keys::<RawBusTls>());
    let admin = all("admin");
    assert_eq!(present(&admin), keys::<RawAdmin>());
    assert_eq!(present(&below(&admin, "tls")), keys::<RawServerTls>());
    let otlp = all("otlp");
    assert_eq!(present(&otlp), keys::<RawOtlp>());
    assert_eq!(present(&below(&otlp, "export")), keys::<RawSpanExport>());
    let backends = all("backend");
    let rules = backends.iter().filter_map(|backend| backend.get("ttl_rules")?.as_array()).flatten();
    assert_eq!(present(rules), keys::<RawTtlRule>());
    assert_eq!(present(&below(&backends, "stale")), keys::<RawStale>());
    assert_eq!(present(&below(&backends, "writes")), keys::<RawWrites>());
    assert_eq!(present(&below(&backends, "shared")), keys::<RawShared>());
    assert_eq!(present(&below(&backends, "log")), keys::<RawLog>());
    let dispatch = below(&backends, "dispatch");
    let mut shown = present(&dispatch);
    // These are other names of keys in `retry`, and refused beside them.
    for other_name in ["extra_ratio", "extra_burst"] {
        assert!(EXAMPLE.contains(&format!("#   {other_name} ")), "{other_name} is explained");
        shown.insert(other_name.to_owned());
    }
    assert_eq!(shown, keys::<RawDispatch>());
    assert_eq!(present(&below(&backends, "ramp")), keys::<RawRamp>());
    assert_eq!(present(&below(&backends, "deadlines")), keys::<RawDeadlineClasses>());
    assert_eq!(present(&below(&dispatch, "retry")), keys::<RawRetry>());
    assert_eq!(present(&below(&dispatch, "probe")), keys::<RawProbe>());
    let stores = backends.iter().filter_map(|backend| backend.get("store"));
    let replicas = backends.iter().filter_map(|backend| backend.get("replicas")?.as_array()).flatten();
    let stores: Vec<toml::Value> = stores.chain(replicas).cloned().collect();
    let mut shown = present(&stores);
    // These belong to connectors that only builds with their features have.
    for optional in ["keyspace", "root"] {
        assert!(EXAMPLE.contains(&format!("#   {optional} ")), "{optional} is explained");
        shown.insert(optional.to_owned());
    }
    assert_eq!(shown, keys::<RawStore>());
    assert_eq!(present(&below(&stores, "tls")), keys::<RawTls>());
    assert_eq!(present(&below(&stores, "tickets")), keys::<RawTicketsAccess>());
}
