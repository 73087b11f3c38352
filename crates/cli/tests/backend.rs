//! `sherwood backend check`: results and exit statuses.
#![allow(clippy::disallowed_methods, reason = "the configuration is a file of the test")]

use std::path::Path;

use assert_cmd::Command;
use assert_cmd::assert::Assert;

/// Runs `sherwood backend check` with a configuration file of this text.
fn check(file: &str, more: &[&str]) -> Assert {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sherwood.toml");
    std::fs::write(&path, file.replace("FOLDER", folder.path().to_str().unwrap())).unwrap();
    check_at(&path, more)
}

fn check_at(path: &Path, more: &[&str]) -> Assert {
    let mut sherwood = Command::cargo_bin("sherwood").unwrap();
    sherwood.args(["backend", "check", "--config"]).arg(path).args(more).assert()
}

fn said(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

/// Returns a loopback address without a listener.
fn unused_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

const EMBEDDED: &str = "[[backend]]\nname = \"similar\"\nstore = { kind = \"compute\", n = 2 }\n\
                        [[backend]]\nname = \"catalog\"\nstore = { kind = \"kv\", path = \"FOLDER/kv\" }\n";

#[test]
fn check_of_reachable_stores_exits_with_0() {
    let output = check(EMBEDDED, &[]).success();
    let said = said(&output.get_output().stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines[1].starts_with("similar  0        compute  ok "), "{said}");
    assert!(lines[2].ends_with("kv in this process"), "{said}");
    check("", &[]).success().stdout("no backend has a store: there is nothing to try\n");
}

#[test]
fn missing_embedded_store_is_reported_and_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let (path, kv, db) =
        (folder.path().join("sherwood.toml"), folder.path().join("kv"), folder.path().join("none/x.db"));
    let file = format!(
        "[[backend]]\nname = \"catalog\"\nstore = {{ kind = \"kv\", path = {kv:?} }}\n\
         [[backend]]\nname = \"items\"\nstore = {{ kind = \"sqlite\", path = {db:?} }}\n"
    );
    std::fs::write(&path, file).unwrap();
    let look = || {
        let output = check_at(&path, &[]).success();
        let said = said(&output.get_output().stdout);
        for path in [&kv, &db] {
            let told = format!("  nothing is at {} yet; a node makes it at its start\n", path.display());
            assert!(said.contains(&told), "{said}");
        }
    };
    look();
    assert!(!kv.exists() && !db.parent().unwrap().exists());
    std::fs::create_dir_all(&kv).unwrap();
    std::fs::create_dir_all(db.parent().unwrap()).unwrap();
    std::fs::write(&db, "").unwrap();
    look();
    assert_eq!((kv.read_dir().unwrap().count(), db.metadata().unwrap().len()), (0, 0));
    std::fs::remove_dir(&kv).unwrap();
    std::fs::write(&kv, "").unwrap();
    let output = check_at(&path, &["catalog"]).code(1);
    let stdout = said(&output.get_output().stdout);
    assert!(stdout.contains(&format!("could not open store `catalog` at {}", kv.display())), "{stdout}");
}

#[test]
fn check_of_an_unreachable_store_exits_with_1_and_names_it() {
    let absent = unused_address();
    let file = format!(
        "{EMBEDDED}[[backend]]\nname = \"sessions\"\nreplicas = [{{ kind = \"memcached\", address = \"{absent}\" }}, \
         {{ kind = \"redis\", address = \"{absent}\" }}, {{ kind = \"http\", url = \"http://{absent}/{{key}}\" }}]\n"
    );
    let output = check(&file, &[]).code(1);
    let (stdout, stderr) = (said(&output.get_output().stdout), said(&output.get_output().stderr));
    assert_eq!(stdout.matches("unreachable").count(), 3, "{stdout}");
    let (server, service) = (
        "start the server, or correct the backend's `address`",
        "start the service, or correct the backend's `url`",
    );
    let count = |remedy: &str| stdout.matches(&format!("remedy: {remedy}\n")).count();
    assert_eq!((count(server), count(service)), (2, 1), "{stdout}");
    assert!(stdout.contains(&absent), "{stdout}");
    assert_eq!(stderr, "sherwood: 3 of 5 replicas failed\n");

    let output = check(&file, &["sessions", "--json"]).code(1);
    let json: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!((json["ok"].as_bool(), json["replicas"].as_array().unwrap().len()), (Some(false), 3));
    assert_eq!(
        (&json["replicas"][1]["kind"], &json["replicas"][1]["cause"]),
        (&"redis".into(), &"unreachable".into())
    );
    check(&file, &["similar"]).success();
}

#[test]
fn check_of_dynamodb_names_its_own_options() {
    let absent = unused_address();
    let store = |more: &str| {
        format!(
            "[[backend]]\nname = \"orders\"\nstore = {{ kind = \"dynamodb\", table = \"orders\", region = \"r\", \
             endpoint = \"http://{absent}\", {more} }}\n"
        )
    };
    let credentials = |name: &str| {
        format!(
            "credentials = {{ access_key_id = {{ env = \"PATH\" }}, secret_access_key = {{ env = \"{name}\" }} }}"
        )
    };
    let stdout = |file: &str| said(&check(file, &[]).code(1).get_output().stdout);
    let unreachable = stdout(&store(&credentials("PATH")));
    let expected = "correct the backend's `endpoint` or `region`";
    assert!(unreachable.contains("orders   0        dynamodb  unreachable"), "{unreachable}");
    assert!(unreachable.contains(expected) && unreachable.contains(&absent), "{unreachable}");
    let unset = stdout(&store(&credentials("SHERWOOD_TEST_UNSET")));
    assert!(unset.contains("`credentials.secret_access_key` cannot be used"), "{unset}");
    assert!(unset.contains("SHERWOOD_TEST_UNSET is not set"), "{unset}");
}

#[test]
fn check_with_an_invalid_file_or_name_exits_with_2() {
    let folder = tempfile::tempdir().unwrap();
    check_at(&folder.path().join("none.toml"), &[]).code(2).stdout("");
    let wrong = "[[backend]]\nname = \"items\"\nstore = { kind = \"http\", url = \"http://h/items\" }\n";
    let output = check(wrong, &[]).code(2).stdout("");
    let stderr = said(&output.get_output().stderr);
    assert!(stderr.contains("sherwood.toml:3:9: [[backend]] store: `url` cannot be used"), "{stderr}");
    let output = check(EMBEDDED, &["catalogue"]).code(2).stdout("");
    let stderr = said(&output.get_output().stderr);
    assert!(stderr.contains("no backend `catalogue`; there is similar, catalog"), "{stderr}");
}
