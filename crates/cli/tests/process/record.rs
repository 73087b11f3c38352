//! `sherwood sim record` against a running node, and a simulation of the recorded scenario.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::support::Server;

const CONFIG: &str = r#"
[memory]
total = "8MiB"
mrc_sample = 1

[[listener]]
bind = "127.0.0.1:0"
backend = "similar"

[[backend]]
name = "similar"
replicas = [{ kind = "compute", n = 4, bytes = "900B" }, { kind = "compute", n = 4, bytes = "900B" }]

[[backend]]
name = "idle"

[admin]
bind = "127.0.0.1:0"
"#;

fn sherwood(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sherwood"));
    command.args(args);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An endless load, which ends with the test.
struct Load(Child);

impl Load {
    /// Starts about 200 requests a second with four keys each.
    fn on(address: &str) -> Self {
        let target = format!("http://{address}");
        let args = ["load", "--target", &target, "--backend", "similar", "--batch", "4", "--keys", "2000"];
        let mut command = sherwood(&args);
        // A given form of keys, so that the load does not try others first.
        command.args(["--key-format", "user:{n}"]);
        command.args(["--rate", "200", "--duration", "10m"]).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn recorded_scenario_of_a_loaded_node_can_be_simulated() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("sherwood.toml");
    fs::write(&config, CONFIG).unwrap();
    let node = Server::start(&["--config", config.to_str().unwrap()]);
    let (admin, file) = (node.address("admin"), directory.path().join("recorded.json"));
    let file = file.to_str().unwrap();
    let record = || sherwood(&["sim", "record", "--node", &admin, "--for", "2s", file]).output().unwrap();

    let output = record();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("nothing was asked of the node in "), "{}", said(&output));
    assert!(!fs::exists(file).unwrap());

    let _load = Load::on(&admin);
    // The load is running once something was asked and the backend has answered.
    let output = loop {
        let output = record();
        let unanswered =
            String::from_utf8_lossy(&output.stdout).contains("- similar: no call to it was seen");
        if !said(&output).contains("nothing was asked") && !unanswered {
            break output;
        }
    };
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        told.starts_with(&format!("wrote {file}; simulate it: sherwood sim run --scenario {file}")),
        "{told}"
    );
    assert!(
        told.contains("- idle: no call to it was seen") && told.contains("- similar: times of "),
        "{told}"
    );
    let document: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(document["request_types"], serde_json::json!([[1.0, [[1, 4]]]]));
    let replicas = |backend: usize| &document["backends"][backend]["service"]["replicas"];
    assert_eq!((replicas(0), replicas(1)), (&Value::from(2), &Value::from(1)));
    let size = document["backends"][0]["size"]["min"].as_u64().unwrap();
    assert!((890..=950).contains(&size), "900 bytes, and what a longer key takes: {size}");
    assert_eq!(document["profiles"]["node"]["cache_bytes_per_server"], 8 << 20);

    let simulate =
        ["sim", "run", "--scenario", file, "--policy", "robinhood", "--json", "--set", "minutes=0.05+0.1"];
    let output = sherwood(&simulate).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((found["scenario"].as_str(), &found["complete"]), (Some("as-recorded"), &Value::Bool(true)));
    assert_eq!(found["queries"].as_u64().unwrap(), 4 * found["requests"].as_u64().unwrap());
}

#[test]
fn recording_of_a_missing_node_fails_and_names_it() {
    // A port that tests never use.
    let nobody = "127.0.0.1:1";
    let output =
        sherwood(&["sim", "record", "--node", nobody, "--for", "1s", "never.json"]).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.starts_with(&format!("sherwood: asking http://{nobody}: {nobody} cannot be reached (")),
        "{text}"
    );
    assert!(text.ends_with("start a node there, or give its --node\n"), "{text}");
    let output = sherwood(&["sim", "record", "--for", "10ms", "never.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}
