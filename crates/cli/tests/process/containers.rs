//! The container recipe and the Compose file of `deploy`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(deploy(path)).unwrap()
}

/// Returns the paths that a Compose file mounts for reading.
fn mounts(compose: &str) -> Vec<&str> {
    compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- ")?.strip_suffix(":ro")?.split_once(':'))
        .map(|(here, _)| here)
        .collect()
}

fn succeeds(args: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_sherwood")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn files_that_the_compose_file_mounts_exist_and_fit_together() {
    let compose = text("compose/compose.yaml");
    let mounts = mounts(&compose);
    assert!(mounts.len() >= 5, "{mounts:?}");
    for mount in mounts {
        assert!(deploy("compose").join(mount).exists(), "{mount} is mounted but missing");
    }
    succeeds(&["check-config", deploy("compose/sherwood.toml").to_str().unwrap()]);
    let scraped = text("prometheus/prometheus.yml");
    let target = scraped.split_once("targets: [\"").unwrap().1.split_once('"').unwrap().0;
    assert!(text("compose/sherwood.toml").ends_with(&format!("[admin]\nbind = \"{target}\"\n")));
}

#[test]
fn compose_file_of_the_cluster_starts_the_nodes_of_its_configuration() {
    let compose = text("../examples/cluster/compose.yaml");
    // The reader makes the secrets.
    for mount in mounts(&compose).into_iter().filter(|mount| *mount != "./secrets") {
        assert!(deploy("../examples/cluster").join(mount).exists(), "{mount} is mounted but missing");
    }
    succeeds(&["check-config", deploy("../examples/cluster/node.toml").to_str().unwrap()]);
    let lists =
        compose.lines().filter_map(|line| line.trim().strip_prefix("command: [serve, ")?.strip_suffix(']'));
    let mut started = Vec::new();
    for list in lists {
        let flags: Vec<&str> = list.split(", ").map(|flag| flag.trim_matches('"')).collect();
        let after = |name: &str| flags[flags.iter().position(|flag| *flag == name).expect(name) + 1];
        started.push(after("--node"));
        let health = format!("\"http://{}\"", after("--admin"));
        assert!(compose.contains(&health), "no health check asks {health}");
        succeeds(&[&["serve"], &flags[..], &["--help"]].concat());
    }
    let nodes = text("../examples/cluster/node.toml");
    let nodes = nodes.split_once("\nnodes = ").unwrap().1.lines().next().unwrap();
    assert_eq!(started, serde_json::from_str::<Vec<&str>>(nodes).unwrap());
}

#[test]
fn commands_of_the_container_recipe_are_commands_of_the_program() {
    let recipe = text("container/Containerfile");
    let arguments = |instruction: &str| -> Vec<String> {
        let list = recipe.split_once(instruction).unwrap().1.lines().next().unwrap();
        serde_json::from_str(list).unwrap()
    };
    let entry = arguments("\nENTRYPOINT ");
    assert_eq!(entry, ["/usr/bin/sherwood"]);
    let health = arguments("start-period=60s CMD ");
    assert_eq!(health[..1], entry);
    for command in [&health[1..], &arguments("\nCMD ")] {
        let help: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        succeeds(&help);
    }
    // Each file that is copied from the repository.
    for line in recipe.lines().filter_map(|line| line.strip_prefix("COPY deploy/")) {
        assert!(deploy(line.split(' ').next().unwrap()).exists(), "{line}");
    }
}
