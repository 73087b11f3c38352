//! Tests of `[tenants]`, `[[tenant]]` and `[[resource]]`.

use super::*;
use sherwood_dispatch::OverRate;
use sherwood_model::{Legs, ResourceKind, TenantId, Unit};

/// A backend with a store, on lines 1 and 2.
const BACKEND: &str = "[[backend]]\nname = \"a\"\nstore = { kind = \"synthetic\" }\n";

fn tenancy(text: &str) -> TenancySetup {
    config(text).tenancy.expect("there are tenants")
}

#[test]
fn configuration_without_tenants_has_one_and_divides_as_before() {
    let config = config(BACKEND);
    assert_eq!((config.tenancy, config.tenants), (None, vec!["default".to_owned()]));
}

#[test]
fn tenants_without_options_have_the_documented_ones() {
    let TenancySetup { options, tenants, resources } = tenancy("[[tenant]]\nname = \"gold\"");
    let expected = TenancyOptions {
        policy: "hare".to_owned(),
        period: Duration::from_secs(20),
        window: Duration::from_secs(60),
        salt: 0.01,
        apply_over: 0.01,
        lend: true,
        conserving: true,
        over: OverRate::Wait,
    };
    assert_eq!((options, resources.len()), (expected, 0));
    assert_eq!((tenants[0].weight, tenants[0].base_bytes, tenants[0].bytes_min), (1.0, 64 << 20, 0));
}

#[test]
fn options_and_resources_are_those_of_the_file() {
    let text = format!(
        "{BACKEND}[tenants]\npolicy = \"drf\"\nperiod = \"200s\"\nsalt = 0.02\napply_over = 0\nlend = false\nconserving = false\n\
         over = \"refuse\"\n[[tenant]]\nname = \"gold\"\n\
         [[resource]]\nname = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = 3000\n\
         [[resource]]\nname = \"w\"\nkind = \"writes\"\nbackend = \"a\"\nunit = {{ bytes = \"1KiB\" }}\ntotal = 10.5\n\
         [[resource]]\nname = \"n\"\nkind = \"network\"\nlegs = \"client\"\ntotal = \"50MiB\"\n"
    );
    let TenancySetup { options, resources, .. } = tenancy(&text);
    assert_eq!((options.period, options.window), (Duration::from_secs(200), Duration::from_secs(200)));
    assert_eq!((options.lend, options.conserving, options.over), (false, false, OverRate::Refuse));
    let [reads, writes, network] = &resources[..] else { panic!("three") };
    assert_eq!((reads.kind, reads.unit), (ResourceKind::Reads(BackendId(0)), Unit::DYNAMODB_READ));
    assert_eq!((writes.unit, writes.total_per_s), (Unit::DYNAMODB_WRITE, 10.5));
    assert_eq!((network.kind, network.legs), (ResourceKind::Network, Legs::Client));
    assert_eq!((network.unit.of(7), network.total_per_s), (7, 52_428_800.0));
}

#[test]
fn shares_that_are_not_stated_follow_the_weights() {
    let text = format!(
        "{BACKEND}[memory]\ntotal = \"100MiB\"\n\
         [[tenant]]\nname = \"x\"\nbase = {{ cache = 0.4, r = 0.25 }}\n[[tenant]]\nname = \"y\"\nweight = 3\n\
         [[tenant]]\nname = \"z\"\n[[resource]]\nname = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = 100"
    );
    let tenants = tenancy(&text).tenants;
    let mib = |mib: u64| mib << 20;
    let bytes: Vec<u64> = tenants.iter().map(|tenant| tenant.base_bytes).collect();
    assert!(bytes.iter().zip([40, 45, 15]).all(|(bytes, m)| bytes.abs_diff(mib(m)) <= 1), "{bytes:?}");
    let shares: Vec<f64> = tenants.iter().map(|tenant| tenant.base_shares[0]).collect();
    assert_eq!(shares, [0.25, 0.5625, 0.1875]);
    let thirds = "[[tenant]]\nname = \"x\"\nbase.cache = 0.3333\n".replace('x', "X")
        + "[[tenant]]\nname = \"y\"\nbase.cache = 0.3333\n[[tenant]]\nname = \"z\"\nbase.cache = 0.3333\n";
    let sum: u64 = tenancy(&thirds).tenants.iter().map(|tenant| tenant.base_bytes).sum();
    assert!((64 << 20) - sum <= 3, "decimal shares are scaled to a sum of 1: {sum}");
}

#[test]
fn every_tenant_has_a_partition_of_every_backend() {
    let backends: String = (0..4).map(|index| format!("[[backend]]\nname = \"b{index}\"\n")).collect();
    let tenants = |count| (0..count).map(|at| format!("[[tenant]]\nname = \"t{at}\"\n")).collect::<String>();
    let config = config(&format!("{backends}{}", tenants(1024)));
    assert_eq!((config.tenants.len(), config.partitions.len()), (1024, 4096));
    let last = config.partitions.last().expect("some");
    assert_eq!((last.name.as_str(), last.tenant, last.backend), ("t1023:b3", TenantId(1023), BackendId(3)));
    let sum: u64 = config.partitions.iter().map(|partition| partition.initial_bytes).sum();
    assert_eq!(sum, 64 << 20);
    let more = format!("{backends}[[backend]]\nname = \"b4\"\n{}", tenants(1024));
    let expected = "a.toml: there are 5120 partitions, counting those of every tenant and backend; at most 4096 \
                    are accepted: merge backends or tenants";
    assert_refused(&[(&more, expected)]);
    let expected = "a.toml:2057:1: there are 1025 [[tenant]]; at most 1024 are accepted: leave some out";
    assert_refused(&[(&format!("{backends}{}", tenants(1025)), expected)]);
}

#[test]
fn listed_partition_of_a_tenant_takes_of_its_share() {
    let config = config(
        "[[backend]]\nname = \"a\"\n[[backend]]\nname = \"b\"\n[[tenant]]\nname = \"gold\"\n[[tenant]]\nname = \"default\"\n\
         [[partition]]\ntenant = \"gold\"\nbackend = \"b\"\ninitial = \"8MiB\"\n[[partition]]\nbackend = \"a\"\nmin = \"20MiB\"",
    );
    let sizes: Vec<_> =
        config.partitions.iter().map(|one| (one.name.as_str(), one.initial_bytes >> 20)).collect();
    assert_eq!(sizes, [("gold:b", 8), ("gold:a", 24), ("a", 20), ("b", 12)]);
}

#[test]
fn invalid_tenants_are_refused() {
    let cases = [
        (
            "[tenants]\n",
            "a.toml:4:1: there is nobody to divide among; [tenants] and [[resource]] must have at least one [[tenant]]: \
             add [[tenant]] name = \"gold\"",
        ),
        ("[[tenant]]\n", "a.toml:4:1: [[tenant]] has no name; it must have one: set name = \"gold\""),
        (
            "[[tenant]]\nname = \"g g\"\n",
            "a.toml:5:8: [[tenant]] name is \"g g\"; it must be 1 to 64 letters, digits, '.', '_' or '-': set name = \"gold\"",
        ),
        (
            "[[tenant]]\nname = \"g\"\n[[tenant]]\nname = \"g\"\n",
            "a.toml:7:8: [[tenant]] name is \"g\" as on line 5; names must be unique: rename one",
        ),
        (
            "[tenants]\npolicy = \"hair\"\n[[tenant]]\nname = \"g\"\n",
            "a.toml:5:10: [tenants] policy is \"hair\"; it must be one of \"hare\", \"hare-published\", \"drf\", \"memshare\", \
             \"baseline\", \"non-partitioned\": did you mean \"hare\"?",
        ),
        (
            "[tenants]\nperiod = \"1ms\"\n[[tenant]]\nname = \"g\"\n",
            "a.toml:5:10: [tenants] period is 1ms; it must be at least 1s: set period = \"20s\"",
        ),
        (
            "[tenants]\nwindow = \"10s\"\n[[tenant]]\nname = \"g\"\n",
            "a.toml:5:10: [tenants] window is 10s; it must be at least 20s: set window = \"60s\"",
        ),
        (
            "[tenants]\nsalt = 0.6\n[[tenant]]\nname = \"g\"\n",
            "a.toml:5:8: [tenants] salt is 0.6; it must be 0 to 0.5: set salt = 0.01",
        ),
        (
            "[tenants]\napply_over = -1\n[[tenant]]\nname = \"g\"\n",
            "a.toml:5:14: [tenants] apply_over is -1; it must be at least 0: set apply_over = 0.01",
        ),
        (
            "[tenants]\nover = \"drop\"\n[[tenant]]\nname = \"g\"\n",
            "a.toml:5:8: [tenants] over is \"drop\"; it must be \"wait\" or \"refuse\": set over = \"wait\"",
        ),
        (
            "[[tenant]]\nname = \"g\"\nweight = 0\n",
            "a.toml:6:10: [[tenant]] weight is 0; it must be at least 0.001: set weight = 1.0",
        ),
        (
            "[[tenant]]\nname = \"g\"\nweight = nan\n",
            "a.toml:6:10: [[tenant]] weight is NaN; it must be 0.001 to 1000: set weight = 1.0",
        ),
        (
            "[[tenant]]\nname = \"g\"\nmin = \"65MiB\"\n",
            "a.toml:6:7: [[tenant]] min is 65MiB; it must be at most the share of g, 64MiB: lower it, or raise base.cache or \
             [memory] total",
        ),
        (
            "[[tenant]]\nname = \"g\"\nbase.cache = 0.5\n",
            "a.toml:6:14: [[tenant]] base of all tenants has cache = 0.500 in sum; it must be 1, since every tenant states \
             one: change this share",
        ),
        (
            "[[tenant]]\nname = \"g\"\nbase.cache = 0.7\n[[tenant]]\nname = \"h\"\nbase.cache = 0.7\n[[tenant]]\nname = \"i\"\n",
            "a.toml:9:14: [[tenant]] base of all tenants has cache = 1.400 in sum; it must be at most 1: change this share",
        ),
        (
            "[[tenant]]\nname = \"g\"\nbase = { cache = 1.5 }\n[[tenant]]\nname = \"h\"\n",
            "a.toml:6:18: [[tenant]] base has cache = 1.5; a share must be 0 to 1: set base = { cache = 0.5 }",
        ),
        (
            "[[tenant]]\nname = \"g\"\nbase = { cash = 0.5 }\n",
            "a.toml:6:17: [[tenant]] base is \"cash\"; it must be \"cache\": did you mean \"cache\"?",
        ),
        (
            "[[tenant]]\nname = \"g\"\n[[partition]]\ntenant = \"h\"\nbackend = \"a\"\n",
            "a.toml:7:10: [[partition]] tenant is \"h\"; it must be \"g\": did you mean \"g\"?",
        ),
        (
            "[[tenant]]\nname = \"g\"\n[[partition]]\nbackend = \"a\"\n",
            "a.toml:6:1: [[partition]] has no tenant, and no [[tenant]] is called \"default\"; it must name one: set tenant = \
             \"gold\"",
        ),
        (
            "[[tenant]]\nname = \"g\"\n[[tenant]]\nname = \"h\"\n[[partition]]\ntenant = \"h\"\nbackend = \"a\"\nmin = \"33MiB\"\n",
            "a.toml:11:7: [[partition]] min of all partitions of tenant h is 33MiB in sum; it must be at most its share of \
             the cache of 32MiB: lower this min or raise base.cache of the [[tenant]]",
        ),
        (
            "[[tenant]]\nname = \"g\"\n[control]\npolicy = \"shared-lru\"\n",
            "a.toml:7:10: [control] policy is \"shared-lru\"; it would share one LRU among all tenants: set policy = \
             \"robinhood\"",
        ),
        (
            "[[tenant]]\nname = \"g\"\n[control]\ndry_run = true\n",
            "a.toml:7:11: [control] dry_run is true; with [[tenant]] it must be false, since bytes and rates move between tenants all the \
             same: leave it out, or set [tenants] policy = \"baseline\"",
        ),
        (
            "[[tenant]]\nname = \"g\"\n[control.guard]\nenabled = true\n",
            "a.toml:7:11: [control.guard] enabled is set, and with [[tenant]] there is no guard: a tenant below its baseline brings \
             all back to theirs; set enabled = false, or leave the table out",
        ),
        (
            "[[tenant]]\nname = \"g\"\n[control.guard]\nfreeze = \"5m\"\n",
            "a.toml:7:10: [control.guard] freeze is set, and with [[tenant]] there is no guard: a tenant below its baseline brings \
             all back to theirs; set enabled = false, or leave the table out",
        ),
    ];
    for (tables, expected) in cases {
        assert_refused(&[(&format!("{BACKEND}{tables}"), expected)]);
    }
}

#[test]
fn guard_is_off_among_tenants() {
    let guard = |tables: &str| config(&format!("{BACKEND}{tables}")).control.guard;
    assert!(guard("").is_some());
    assert_eq!(guard("[[tenant]]\nname = \"g\"\n"), None);
    let off = "[[tenant]]\nname = \"g\"\n[control]\ndry_run = false\n[control.guard]\nenabled = false\nfreeze = \"5m\"\n";
    assert_eq!(guard(off), None);
}

#[test]
fn tenants_with_the_name_of_another_path_of_the_admin_api_are_refused() {
    for name in ["trades", "what-if"] {
        let expected = format!(
            "a.toml:5:8: [[tenant]] name is \"{name}\", and /v1/tenants/{name} of the admin API is another thing: choose another name"
        );
        assert_refused(&[(&format!("{BACKEND}[[tenant]]\nname = \"{name}\"\n"), &expected)]);
    }
    config(&format!("{BACKEND}[[tenant]]\nname = \"trades2\"\n"));
}

#[test]
fn invalid_resources_are_refused() {
    let cases = [
        (
            "kind = \"network\"\ntotal = 1\n",
            "a.toml:6:1: [[resource]] has no name; it must have one: set name = \"catalog-reads\"",
        ),
        (
            "name = \"cache\"\nkind = \"network\"\ntotal = 1\n",
            "a.toml:7:8: [[resource]] name is \"cache\"; it must be 1 to 64 letters, digits, '.', '_' or '-', and not \
             \"cache\": set name = \"catalog-reads\"",
        ),
        (
            "name = \"r\"\ntotal = 1\n",
            "a.toml:6:1: [[resource]] has no kind; it must be one of \"reads\", \"writes\", \"network\": set kind = \"reads\"",
        ),
        (
            "name = \"r\"\nkind = \"read\"\nbackend = \"a\"\ntotal = 1\n",
            "a.toml:8:8: [[resource]] kind is \"read\"; it must be one of \"reads\", \"writes\", \"network\": did you mean \
             \"reads\"?",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\ntotal = 1\n",
            "a.toml:6:1: [[resource]] has no backend; it must name the one that counts: set backend = \"catalog\"",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\nbackend = \"b\"\ntotal = 1\n",
            "a.toml:9:11: [[resource]] backend is \"b\"; it must be \"a\": did you mean \"a\"?",
        ),
        (
            "name = \"r\"\nkind = \"network\"\nbackend = \"a\"\ntotal = 1\n",
            "a.toml:9:11: [[resource]] has a backend, and network is counted for all together: remove backend",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\nbackend = \"a\"\n",
            "a.toml:6:1: [[resource]] has no total; it must say how many units there are in a second: set total = 3000",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = 0\n",
            "a.toml:10:9: [[resource]] total is 0; it must be at least 1: set total = 3000",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = \"5MiB\"\n",
            "a.toml:10:9: [[resource]] total is 5MiB; it must be a number of units, a size is one of network: set total = \
             3000",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = 1\nlegs = \"both\"\n",
            "a.toml:11:8: [[resource]] legs are those of network, and kind is another: remove them",
        ),
        (
            "name = \"r\"\nkind = \"network\"\ntotal = 1\nunit = \"count\"\n",
            "a.toml:10:8: [[resource]] unit of network is always a byte: remove it",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = 1\nunit = \"counts\"\n",
            "a.toml:11:8: [[resource]] unit is \"counts\"; it must be \"dynamodb\" or \"count\": did you mean \"count\"?",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = 1\nunit = { bytes = 0 }\n",
            "a.toml:11:8: [[resource]] unit.bytes is 0 bytes; it must be at least 1B: set unit.bytes = 4096",
        ),
        (
            "name = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = 1\nunit = 7\n",
            "a.toml:11:8: [[resource]] unit: 7 is not accepted; write \"dynamodb\", \"count\", or { bytes = 4096 }",
        ),
        (
            "name = \"r\"\nkind = \"network\"\ntotal = 1\n[[resource]]\nname = \"s\"\nkind = \"network\"\ntotal = 2\n",
            "a.toml:10:1: [[resource]] s counts what the one on line 6 counts; list each once: remove one",
        ),
    ];
    for (keys, expected) in cases {
        assert_refused(&[(&format!("{BACKEND}[[tenant]]\nname = \"g\"\n[[resource]]\n{keys}"), expected)]);
    }
    let text = "[[backend]]\nname = \"a\"\n[[tenant]]\nname = \"g\"\n[[resource]]\nname = \"r\"\nkind = \"reads\"\nbackend = \"a\"\ntotal = 1";
    let expected = "a.toml:8:11: [[resource]] backend is \"a\", which has no store whose units could be counted: give it a store";
    assert_refused(&[(text, expected)]);
}

#[test]
fn listeners_and_users_that_tell_no_tenant_are_refused() {
    let listener = "[[listener]]\nbind = \"127.0.0.1:1\"\n";
    let tenant = "[[tenant]]\nname = \"g\"\n";
    let cases = [
        (
            format!("{listener}tenant = \"g\"\n"),
            "a.toml:3:10: [[listener]] has a tenant, and there is no [[tenant]]: add [[tenant]] with its name, or remove \
             tenant",
        ),
        (
            format!("{listener}tenant = \"h\"\n{tenant}"),
            "a.toml:3:10: [[listener]] tenant is \"h\"; it must be \"g\": did you mean \"g\"?",
        ),
        (
            format!("{listener}{tenant}"),
            "a.toml:1:1: the clients of a listener belong to no tenant; it must have a tenant or an auth_file, or a [[tenant]] \
             a prefix or the name \"default\": set tenant = \"gold\" in [[listener]]",
        ),
        (
            format!("{listener}auth_file = \"p\"\n{tenant}users = [\"u\", \"u\"]\n"),
            "a.toml:6:15: [[tenant]] users has \"u\" as on line 6; a user belongs to one tenant: remove one",
        ),
        (
            format!("{listener}auth_file = \"p\"\n{tenant}users = [\"u v\"]\n"),
            "a.toml:6:10: [[tenant]] users has \"u v\"; a user's name has 1 to 256 bytes without blanks and colons: set users \
             = [\"gold\"]",
        ),
        (
            format!("{listener}{tenant}prefix = \"g /\"\n"),
            "a.toml:5:10: [[tenant]] prefix is \"g /\"; it must have 1 to 200 bytes without blanks: set prefix = \"gold/\"",
        ),
        (
            format!("{listener}{tenant}prefix = \"g/\"\n[[tenant]]\nname = \"h\"\nprefix = \"g/h/\"\n"),
            "a.toml:8:10: [[tenant]] prefix is \"g/h/\", and that on line 5 begins with it or is its beginning; a key belongs \
             to one tenant: change one",
        ),
        (
            format!("{listener}{tenant}prefix = \"g/\"\n[[backend]]\nname = \"b\"\nprefix = \"g/b/\"\n"),
            "a.toml:5:10: [[tenant]] prefix is \"g/\", and that of backend \"b\" begins with it or is its beginning; keys must \
             tell tenants from backends: change one",
        ),
    ];
    for (text, expected) in cases {
        assert_refused(&[(&text, expected)]);
    }
    for fine in ["users = [\"u\"]\n", ""] {
        let config = config(&format!("{listener}auth_file = \"p\"\n{tenant}{fine}"));
        assert_eq!(config.listeners[0].tenant, None);
    }
    let config = config(&format!("{listener}tenant = \"h\"\n{tenant}[[tenant]]\nname = \"h\"\n"));
    assert_eq!(config.listeners[0].tenant, Some(TenantId(1)));
}
