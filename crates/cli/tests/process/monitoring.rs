//! Prometheus with the configuration and the rules of `deploy/`.

use std::process::Command;

use crate::page::can_type;

const PROMETHEUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");

#[test]
fn configuration_and_rules_pass_promtool() {
    if !can_type(&[("promtool", "prometheus")]) {
        return;
    }
    for (checks, file) in
        [(["check", "config"], "prometheus.yml"), (["test", "rules"], "sherwood.rules.test.yml")]
    {
        let output =
            Command::new("promtool").args(checks).arg(file).current_dir(PROMETHEUS).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{checks:?} {file}: {said}{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}
