//! Tests of ramps, the guard, SLOs, deadlines and external caches.

use super::*;

#[test]
fn ramp_table_switches_the_ramp_on_and_is_validated() {
    let backend = |ramp: &str| format!("[[backend]]\nname = \"a\"\nramp = {{ {ramp} }}");
    let ramp = config(&backend("")).backends[0].dispatch.ramp;
    assert_eq!(ramp, Some(sherwood_dispatch::RampOptions::default()));
    assert_eq!(
        problem(&backend("grow = 1")),
        "a.toml:3:17: [[backend]] setting up dispatch: `ramp.grow` is 1, must be 1.01 to 10; leave it out for the default"
    );
}

#[test]
fn external_caches_are_required_of_all_partitions_or_none() {
    let partition = |name: &str, cache: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\n[[partition]]\nbackend = \"{name}\"\ncache = {{ {cache} }}\n"
        )
    };
    let memcached = partition("a", "kind = \"memcached\", address = \"cache-1:11211\"");
    let redis = "kind = \"redis\", address = \"[::1]:6379\", user = \"u\", password_file = \"p\"";
    let config = config(&format!("{memcached}{}", partition("b", redis)));
    let instances: Vec<_> = config.partitions.iter().filter_map(|one| one.instance.as_ref()).collect();
    assert_eq!((instances[0].kind, &instances[0].address[..]), (InstanceKind::Memcached, "cache-1:11211"));
    assert_eq!(instances[1].user.as_deref(), Some("u"));
    assert_eq!((config.partitions[0].bytes_min, config.partitions[1].bytes_min), (8 << 20, 2 << 20));
    let little = format!("[memory]\ntotal = \"4MiB\"\n{memcached}");
    assert!(
        problem(&little).contains("is 8MiB in sum; it must be at most the total of 4MiB"),
        "{}",
        problem(&little)
    );
    let wrong = |text: &str, what: &str| {
        let said = problem(text);
        assert!(said.contains(what), "{said}");
    };
    wrong(&format!("{memcached}[[backend]]\nname = \"b\""), "of some partitions and not of b");
    wrong(&format!("{memcached}[[listener]]\nbind = \"127.0.0.1:1\""), "must have no listener");
    wrong(&format!("[memory]\nsnapshot = {{ path = \"s\" }}\n{memcached}"), "has none to keep");
    wrong(&format!("{memcached}[control]\npolicy = \"shared-lru\""), "cannot share one LRU");
    wrong(&partition("a", "kind = \"redis\""), "has no address");
    wrong(&partition("a", "address = \"h:1\""), "has no kind");
    wrong(&partition("a", "kind = \"varnish\", address = \"h:1\""), "\"memcached\" or \"redis\"");
    wrong(&partition("a", "kind = \"redis\", address = \"h\""), "must be host and port");
    wrong(&partition("a", "kind = \"redis\", address = \"h:1\", user = \"u\""), "no password_file");
}

#[test]
fn partition_in_a_dry_run_keeps_its_initial_bytes_and_limits_must_allow_them() {
    let partition = |name: &str, more: &str| {
        format!("[[backend]]\nname = \"{name}\"\n[[partition]]\nbackend = \"{name}\"\n{more}\n")
    };
    let total = "[memory]\ntotal = \"64MiB\"\n";
    let held = partition("a", "initial = \"20MiB\"\ndry_run = true");
    let said = problem(&format!("{total}{held}{}", partition("b", "max = \"30MiB\"")));
    let expected = "max of all partitions is 50MiB in sum, counting initial where there is a dry_run, which keeps it; it must be at \
                    least the total of 64MiB: raise a max";
    assert!(said.contains(expected), "{said}");
    let config = config(&format!("{total}{held}{}{}", partition("b", "max = \"10MiB\""), partition("c", "")));
    let starts: Vec<u64> = config.partitions.iter().map(|one| one.initial_bytes >> 20).collect();
    assert_eq!(starts, [20, 10, 34], "what the others may not have goes to those who may");
}

#[test]
fn slos_and_guard_default_to_the_global_slo() {
    let config = config(
        "[slo]\nbound = \"80ms\"\n[[slo.class]]\nname = \"page\"\npercentile = 90\n[[slo.tenant]]\nname = \"t\"\n\
         bound = \"20ms\"\n[control.guard]\nworse = 0.5\n[[backend]]\nname = \"a\"\n[[partition]]\nbackend = \"a\"\n\
         tenant = \"t\"\ndry_run = true\n",
    );
    let slos: Vec<_> =
        config.slos.iter().map(|one| (&one.to, one.slo.percentile, one.slo.bound.as_millis())).collect();
    let (page, tenant) = (SloScope::Class("page".to_owned()), SloScope::Tenant(sherwood_model::TenantId(1)));
    assert_eq!(slos, [(&page, 90.0, 80), (&tenant, 99.0, 20)]);
    let guard = config.control.guard.expect("on by default");
    assert_eq!((guard.bound.as_millis(), guard.worse_ratio, guard.blame_ratio), (80, 0.5, 0.5));
    assert!(config.partitions[0].dry_run && !config.partitions[1].dry_run);
    assert!(problem("[[slo.tenant]]\nname = \"silver\"").contains("it must be \"default\""));
    assert!(problem("[[slo.class]]\nbound = \"1s\"").contains("[[slo.class]] has no name"));
    let twice = "[[slo.class]]\nname = \"a\"\n[[slo.class]]\nname = \"a\"";
    assert!(problem(twice).contains("is there on line 2 already"), "{}", problem(twice));
}

#[test]
fn deadline_rules_name_known_backends_and_tenants_and_a_time_in_range() {
    let file = |rules: &str| {
        format!("[[backend]]\nname = \"a\"\n[[partition]]\nbackend = \"a\"\ntenant = \"gold\"\n{rules}")
    };
    let rules = "[[deadline]]\nwithin = \"1s\"\n\
                 [[deadline]]\nbackend = \"a\"\nprefix = \"p:\"\ntenant = \"gold\"\nwithin = \"50ms\"";
    let rules = config(&file(rules)).deadlines;
    let all =
        DeadlineRule { backend: None, prefix: String::new(), tenant: None, within: Duration::from_secs(1) };
    let (backend, tenant) = (Some(sherwood_model::BackendId(0)), Some(sherwood_model::TenantId(1)));
    let within = Duration::from_millis(50);
    assert_eq!(rules, [all, DeadlineRule { backend, prefix: "p:".to_owned(), tenant, within }]);
    let wrong = |rule: &str, what: &str| {
        let said = problem(&file(&format!("[[deadline]]\n{rule}")));
        assert!(said.contains(what), "{said}");
    };
    wrong("backend = \"b\"\nwithin = \"1s\"", "[[deadline]] backend is \"b\"; it must be \"a\"");
    wrong(
        "tenant = \"silver\"\nwithin = \"1s\"",
        "[[deadline]] tenant is \"silver\"; it must be \"default\" or \"gold\"",
    );
    wrong("prefix = \"p:\"", "[[deadline]] has no within");
    wrong("within = \"0s\"", "[[deadline]] within is 0s; it must be at least 1us");
    wrong("within = \"25h\"", "[[deadline]] within is 25h; it must be 1us to 1d");
    wrong("within = \"-1s\"", "[[deadline]] within: ");
    wrong("within = 50", "[[deadline]] within: ");
    wrong("wihtin = \"1s\"", "did you mean `within`?");
    wrong("within = \"1s\"\n[[deadline]]\nwithin = \"2s\"", "for the same keys as the one on line 6");
    let many: Vec<_> =
        (0..65).map(|i| format!("[[deadline]]\nprefix = \"{i}\"\nwithin = \"1s\"\n")).collect();
    let said = problem(&file(&many.concat()));
    assert!(said.contains("there are 65 [[deadline]]; at most 64 are accepted"), "{said}");
}
