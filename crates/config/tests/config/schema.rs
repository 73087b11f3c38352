//! The JSON Schema of the configuration: what validators say about files, and whether its ranges,
//! defaults and names are those of the code.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::*;
use crate::programs;

const REMEDY: &str =
    "python3 -m venv target/venv && target/venv/bin/pip install -r scripts/python-requirements.txt";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all configurations of nodes below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, found),
            false if path.extension().is_some_and(|end| end == "toml") => found.push(path),
            false => {}
        }
    }
}

/// Runs `check-jsonschema`; none if it is not installed.
fn check(arguments: &[&str], files: &[PathBuf]) -> Option<(bool, String)> {
    let program = programs::python().with_file_name("check-jsonschema");
    let output = programs::run(Command::new(program).args(arguments).args(files), REMEDY)?;
    Some((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[test]
fn validator_accepts_the_schema_and_every_configuration_of_the_repository() {
    let schema = root().join("docs/sherwood.schema.json");
    let Some((valid, said)) = check(&["--check-metaschema"], std::slice::from_ref(&schema)) else { return };
    assert!(valid, "{said}");
    let mut all = vec![root().join("sherwood.example.toml")];
    files(&root().join("examples"), &mut all);
    files(&root().join("deploy"), &mut all);
    assert!(all.len() > 5, "{all:?}");
    let (valid, said) = check(&["--schemafile", schema.to_str().unwrap()], &all).unwrap();
    assert!(valid, "{said}");
}

#[test]
fn validator_accepts_the_openapi_document() {
    let program = programs::python().with_file_name("openapi-spec-validator");
    let document = root().join("docs/openapi.json");
    let mut command = Command::new(program);
    let Some(output) = programs::run(command.args(["--schema", "3.1"]).arg(document), REMEDY) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn validator_refuses_wrong_configurations() {
    let schema = root().join("docs/sherwood.schema.json");
    let folder = tempfile::tempdir().unwrap();
    let wrong = [
        ("memory.totl = \"1GiB\"", "'totl' was unexpected"),
        ("memory.total = \"1gib\"", "does not match"),
        ("memory.eviction = \"mru\"", "'mru' is not one of"),
        ("server.threads = 0", "0 is less than the minimum of 1"),
        ("[[listener]]\nprotocol = \"redis\"", "'bind' is a required property"),
        ("[backend]\nname = \"a\"", "is not of type 'array'"),
        ("[[backend]]\nname = \"a\"\nstore = { kind = \"kv\", path = \"a\", n = 3 }", "'n' is not one of"),
        ("[[backend]]\nname = \"a\"\nstore = { kind = \"pg\" }", "'pg' is not one of"),
    ];
    for (text, expected) in wrong {
        let file = folder.path().join("a.toml");
        std::fs::write(&file, text).unwrap();
        let Some((valid, said)) = check(&["--schemafile", schema.to_str().unwrap()], &[file]) else { return };
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!valid && said.contains(expected), "{text}: {said}");
    }
}

/// Text before a key of each table, so that the key is in a valid file.
fn context(table: &str, name: &str, kind: &str) -> Option<String> {
    let backend = "[[backend]]\nname = 'a'\ntimeout = '1m'\n";
    let tenant = "[[tenant]]\nname = 't'\n";
    let store = "store.kind = 'kv'\nstore.path = 'a'\n";
    let replicated =
        format!("{backend}replicas = [{{ kind = 'memcached', address = 'a:1' }}]\nduplicates = 1\n");
    let cluster =
        "[cluster]\nname = 's'\nnode = 'a'\nnodes = ['a']\nbus = { servers = ['nats://[::1]:1'] }\n";
    Some(match table {
        "Memory" => "[memory]\ntotal = '1GiB'\n".to_owned(),
        "Snapshot" => "[memory.snapshot]\npath = 'a'\n".to_owned(),
        "Server" => "[server]\n".to_owned(),
        "Listener" => {
            let bind = if name == "permissions" { "unix:/a" } else { "127.0.0.1:1" };
            format!("{backend}{store}[[listener]]\nbind = '{bind}'\nbackend = 'a'\nmode = 'write-through'\n")
        }
        "Backend" if ["partitions", "consistency", "ack"].contains(&name) => replicated,
        "Backend" => backend.to_owned(),
        "Log" => format!("{replicated}[backend.log]\n"),
        "TtlRule" => format!("{backend}[[backend.ttl_rules]]\nprefix = 'a'\n"),
        "Stale" => format!("{backend}[backend.stale]\n"),
        "Writes" => format!("{backend}{store}[backend.writes]\n"),
        "Shared" => format!("{cluster}[[backend]]\nname = 'a'\ntimeout = '1ms'\n[backend.shared]\n"),
        "Cluster" => cluster.to_owned(),
        "Dispatch" => {
            let rules = match name {
                "alpha" | "beta" | "target" => "queue = 'edf'\nadmit = 'deadline'\n",
                "target_delay" => "admit = 'delay'\n",
                "tokens" | "lookups" | "age" => "balance = 'tokens'\n",
                "extra" | "cancel" => "copies = 'hedge'\n",
                "factor" => "copies = 'fixed'\n",
                _ => "",
            };
            let replicas = ["{ kind = 'synthetic' }"; 8].join(", ");
            let store =
                if name == "factor" { format!("replicas = [{replicas}]\n") } else { store.to_owned() };
            format!("{backend}{store}[backend.dispatch]\n{rules}")
        }
        "Hedge" => format!("{backend}[backend.dispatch]\ncopies = 'hedge'\n[backend.dispatch.hedge]\n"),
        "Retry" => format!("{backend}[backend.dispatch.retry]\n"),
        "Probe" => format!("{backend}[backend.dispatch.probe]\n"),
        "Ramp" => format!("{backend}{store}[backend.ramp]\n"),
        "DeadlineClasses" => format!("{backend}[backend.deadlines]\n"),
        // Its connector is not part of this build.
        "Store" if kind == "zookeeper" && cfg!(not(feature = "zookeeper")) => return None,
        "Store" if kind == "cassandra" && cfg!(not(feature = "cassandra")) => return None,
        "Store" => {
            let needs = match kind {
                "kv" | "sqlite" => "path = 'a'\n",
                "memcached" | "redis" | "zookeeper" => "address = 'a:1'\n",
                "http" => "url = 'http://a/{key}'\n",
                "mysql" | "postgres" => {
                    "address = 'a:1'\nuser = 'a'\npassword_file = 'a'\ndatabase = 'a'\nquery = 'SELECT a FROM a WHERE a = :key'\n"
                }
                "cassandra" => "address = 'a:1'\nkeyspace = 'a'\ntable = 'a'\n",
                "dynamodb" => "table = 'abc'\nregion = 'eu-central-1'\n",
                _ => "",
            };
            format!("{backend}[backend.store]\nkind = '{kind}'\n{needs}")
        }
        "Partition" => format!("{backend}[[partition]]\nbackend = 'a'\n"),
        "Instance" => format!(
            "{backend}[[partition]]\nbackend = 'a'\n[partition.cache]\nkind = 'redis'\naddress = 'a:1'\n"
        ),
        "Tenants" => format!("{tenant}[tenants]\n"),
        "Tenant" => tenant.to_owned(),
        "Resource" => {
            let kind = if name == "legs" { "kind = 'network'" } else { "kind = 'reads'\nbackend = 'a'" };
            format!("{tenant}{backend}{store}[[resource]]\nname = 'r'\n{kind}\ntotal = 10\n")
        }
        "Slo" => "[slo]\n".to_owned(),
        "ScopedSlo" => "[[slo.class]]\nname = 'a'\n".to_owned(),
        "Deadline" => "[[deadline]]\nwithin = '1s'\n".to_owned(),
        "Scheduler" => "[[scheduler]]\n".to_owned(),
        "Control" => "[control]\n".to_owned(),
        "Replication" => {
            let copies = "dispatch = { copies = 'fixed', factor = 1 }\n";
            format!("{backend}{store}{copies}[replication]\ntiers = ['a']\n")
        }
        "Guard" => "[control.guard]\n".to_owned(),
        "Tao" => "[control.tao]\n".to_owned(),
        "Cliffhanger" => "[control.cliffhanger]\n".to_owned(),
        "Fair" => "[control.fair]\n".to_owned(),
        "Lama" => "[control.lama]\n".to_owned(),
        "SpanExport" => "[otlp.export]\nendpoint = 'http://a:1'\n".to_owned(),
        "Admin" => "[admin]\n".to_owned(),
        _ => return None,
    })
}

/// A key of the schema in a file in which it may stand.
struct Placed<'a> {
    table: &'a str,
    name: &'a str,
    key: &'a Value,
    context: String,
}

impl Placed<'_> {
    fn file(&self, value: &str) -> String {
        let Self { name, context, .. } = self;
        let own = format!("{name} = ");
        // It stands in the last table of the context, with other values of those above it.
        let start = context.rfind("]\n").map_or(0, |at| at + 2);
        let (before, table) = context.split_at(start);
        let others = table.lines().filter(|line| !line.starts_with(&own)).map(|line| line.to_owned() + "\n");
        format!("{before}{}{own}{value}\n", others.collect::<String>())
    }

    fn read(&self, text: &str) -> Result<Config, Vec<String>> {
        parse("a", text, &Flags::default(), sherwood_policy::available_without_options())
            .map_err(|error| error.problems.iter().map(ToString::to_string).collect())
    }

    /// Returns what is wrong with a value of the key in itself.
    fn refusals(&self, value: &str) -> Vec<String> {
        let about = |message: &String| {
            let named = message.contains(&format!("{} is ", self.name)) && message.contains("must be");
            named || message.contains("unknown")
        };
        let problems = self.read(&self.file(value)).err().unwrap_or_default();
        problems.into_iter().filter(about).collect()
    }
}

fn every_key(check: &mut impl FnMut(&Placed<'_>)) {
    let schema = schema();
    for (table, definition) in schema["$defs"].as_object().unwrap() {
        for (name, key) in definition["properties"].as_object().into_iter().flatten() {
            let kinds: Vec<&str> = match key["x-kinds"].as_array() {
                Some(kinds) => kinds.iter().map(|kind| kind.as_str().unwrap()).collect(),
                None => vec!["kv"],
            };
            for kind in kinds {
                if let Some(context) = context(table, name, kind) {
                    check(&Placed { table, name, key, context });
                }
            }
        }
    }
}

/// Returns the bounds of a key's range and the values next to them, as TOML.
fn bounds(key: &Value) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    for (name, step) in [("x-min", -1_i64), ("x-max", 1)] {
        let Some(text) = key[name].as_str() else { continue };
        let beyond = match text.parse::<Span>() {
            Ok(Span(time)) => {
                let micros = i64::try_from(time.as_micros()).unwrap() + step;
                (micros > 0).then(|| format!("\"{micros}us\""))
            }
            Err(_) => Some((text.parse::<ByteSize>().unwrap().0 as i64 + step).to_string()),
        };
        found.push((format!("\"{text}\""), beyond));
    }
    for (name, step) in [("minimum", -1_i64), ("maximum", 1)] {
        if key["pattern"].is_string() || key[name].is_null() {
            continue;
        }
        let beyond = match (key["type"].as_str().unwrap(), key[name].as_f64().unwrap()) {
            ("integer", bound) => {
                let beyond = bound as i64 + step;
                // Numbers that the type of the key cannot have are refused as such.
                (0..1 << 31).contains(&beyond).then(|| beyond.to_string())
            }
            // Far enough for numbers that are rounded to hundredths.
            (_, 0.0) => Some((0.1 * step as f64).to_string()),
            (_, bound) => Some((bound * if step < 0 { 0.4 } else { 1.1 }).to_string()),
        };
        found.push((key[name].to_string(), beyond));
    }
    found
}

#[test]
fn ranges_of_the_schema_are_those_of_the_code() {
    let (mut seen, mut wrong) = (0, Vec::new());
    every_key(&mut |placed| {
        for (bound, beyond) in bounds(placed.key) {
            seen += 1;
            let refused = placed.refusals(&bound);
            if !refused.is_empty() {
                wrong.push(format!("{}: the bound is refused: {refused:?}", placed.file(&bound)));
            }
            if let Some(beyond) = beyond
                && placed.read(&placed.file(&beyond)).is_ok()
            {
                wrong.push(format!("{}: the value beyond the bound is accepted", placed.file(&beyond)));
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 200, "{seen} bounds");
}

#[test]
fn names_of_the_schema_are_those_of_the_code() {
    let (mut seen, mut wrong) = (0, Vec::new());
    every_key(&mut |placed| {
        let Some(names) = placed.key["enum"].as_array() else { return };
        // The values of some keys depend on the kind of store.
        let depends = placed.table == "Store" && ["kind", "value"].contains(&placed.name);
        for name in names.iter().filter(|_| !depends) {
            seen += 1;
            let refused = placed.refusals(&name.to_string());
            if !refused.is_empty() {
                wrong.push(format!("{}: {refused:?}", placed.file(&name.to_string())));
            }
        }
        let unknown = placed.file("\"no-such-name\"");
        if placed.read(&unknown).is_ok() {
            wrong.push(unknown);
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 50, "{seen} names");
}

#[test]
fn defaults_of_the_schema_are_those_of_the_code() {
    let (mut seen, mut wrong) = (0, Vec::new());
    every_key(&mut |placed| {
        let default = &placed.key["default"];
        let own = format!("\n{} = ", placed.name);
        if default.is_null() || placed.context.contains(&own) {
            return;
        }
        seen += 1;
        let read = |text: &str| placed.read(text).map(|config| format!("{config:?}"));
        let (with, without) = (placed.file(&default.to_string()), &placed.context);
        match (read(&with), read(without)) {
            (Ok(with), Ok(without)) if with == without => {}
            (Ok(_), Ok(_)) => wrong.push(format!("{with}: that is not the default")),
            (with_default, without) => {
                wrong.push(format!("{with}: {:?} {:?}", with_default.err(), without.err()))
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 100, "{seen} defaults");
}
