//! Executes the pages that put a node beside the reader's own servers and applications, and the
//! README's section on them.

use crate::page::{Execution, Reader, can_type, free_port};

const README: &str = include_str!("../../../../README.md");
const REDIS: &str = include_str!("../../../../docs/src/front-redis.md");
const MYSQL: &str = include_str!("../../../../docs/src/front-mysql.md");
const POSTGRESQL: &str = include_str!("../../../../docs/src/front-postgresql.md");
const EXISTING: &str = include_str!("../../../../docs/src/existing-caches.md");
const OPENTELEMETRY: &str = include_str!("../../../../docs/src/opentelemetry.md");
const HTTP: &str = include_str!("../../../../docs/src/front-http.md");

/// The reader's Redis server.
const OWN_REDIS: &str = r#"
```sh
redis-server --bind 127.0.0.1 --port 6379 --save '' > redis.log 2>&1 &
until redis-cli -p 6379 ping 2> /dev/null | grep -q PONG; do sleep 0.1; done
```
"#;

/// The reader's MySQL server, of which `root` is the administrator.
const OWN_MYSQL: &str = r#"
```sh
PATH="$PATH:/usr/sbin"
mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$PWD/mysql" \
  --auth-root-authentication-method=normal --skip-test-db > mysql.log 2>&1
mariadbd --no-defaults --user="$(id -un)" --datadir="$PWD/mysql" --socket="$PWD/mysql.sock" \
  --bind-address=127.0.0.1 --port=3306 >> mysql.log 2>&1 &
printf '[client]\nsocket=%s\n' "$PWD/mysql.sock" > .my.cnf
mariadb-admin --user=root --silent --wait=60 ping
```
"#;

/// The reader's PostgreSQL server. It does not run as root.
const OWN_POSTGRESQL: &str = r#"
```sh
PATH="$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')"
chmod 755 . && mkdir postgresql
as=
if [ "$(id -u)" = 0 ]; then
  chown postgres postgresql
  as='setpriv --reuid=postgres --regid=postgres --clear-groups'
fi
$as initdb -D "$PWD/postgresql/data" -A trust -U postgres > postgresql.log 2>&1
$as postgres -D "$PWD/postgresql/data" -h 127.0.0.1 -p 5432 -k "$PWD/postgresql" >> postgresql.log 2>&1 &
until psql -h 127.0.0.1 -p 5432 -U postgres -c '' 2> /dev/null; do sleep 0.1; done
```
"#;

/// The table that the README's statement reads.
const PRODUCTS: &str = r#"
```sh
mariadb --user=root <<'SQL'
CREATE DATABASE shop;
USE shop;
CREATE TABLE product (id INT PRIMARY KEY, name VARCHAR(80), price DECIMAL(8,2));
INSERT INTO product SELECT seq, CONCAT('Product ', seq), seq FROM seq_1_to_100;
CREATE USER app@'127.0.0.1' IDENTIFIED BY 'of the test';
GRANT SELECT ON product TO app@'127.0.0.1';
SQL
```
"#;

/// The keys that the README's requests ask Redis for.
const KEYS: &str = r#"
```sh
for id in $(seq 100); do echo "SET user:$id of-$id"; done | redis-cli -p 6379 > /dev/null
```
"#;

/// Replaces each of the ports by a free one.
fn elsewhere(ports: &[&str]) -> Vec<(String, String)> {
    ports.iter().map(|port| ((*port).to_owned(), free_port().to_string())).collect()
}

/// Executes `servers` and then the page, in an empty directory.
fn follow(ports: &[&str], servers: &'static [&'static str], page: &'static str) {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = Reader::at(directory.path(), elsewhere(ports));
    for server in servers {
        reader.follow(server, |_| Execution::Run);
    }
    reader.follow(page, |_| Execution::Run);
}

const REDIS_PROGRAMS: [(&str, &str); 3] =
    [("redis-server", "redis-server"), ("redis-cli", "redis-tools"), ("curl", "curl")];
const MYSQL_PROGRAMS: [(&str, &str); 2] = [("mariadb", "mariadb-server"), ("curl", "curl")];

#[test]
fn page_on_redis_works_as_written() {
    if can_type(&REDIS_PROGRAMS) {
        follow(&["6379", "6380", "8080"], &[OWN_REDIS], REDIS);
    }
}

#[test]
fn page_on_mysql_works_as_written() {
    if can_type(&MYSQL_PROGRAMS) {
        follow(&["3306", "11311", "8080"], &[OWN_MYSQL], MYSQL);
    }
}

#[test]
fn page_on_postgresql_works_as_written() {
    if can_type(&REDIS_PROGRAMS) && can_type(&[("psql", "postgresql")]) {
        follow(&["5432", "6380", "8080"], &[OWN_POSTGRESQL], POSTGRESQL);
    }
}

#[test]
fn page_on_http_works_as_written() {
    if can_type(&[("python3", "python3"), ("curl", "curl")]) {
        follow(&["8000", "11311", "8080"], &[], HTTP);
    }
}

#[test]
fn page_on_opentelemetry_works_as_written() {
    if can_type(&[("curl", "curl")]) {
        follow(&["8080"], &[], OPENTELEMETRY);
    }
}

#[test]
fn page_on_existing_caches_works_as_written() {
    if can_type(&REDIS_PROGRAMS) && can_type(&[("memcached", "memcached")]) {
        follow(&["21211", "26400", "8080"], &[], EXISTING);
    }
}

/// The README's section on a server of the reader's own; `kind` is the word in bold that begins it.
fn section(kind: &str) -> &'static str {
    let (_, after) = README.split_once(&format!("\n**{kind}**")).expect("the README has it");
    after.split_once("\n**").or_else(|| after.split_once("\n## ")).expect("it is not the last").0
}

/// Executes a section of the README: a configuration, the node, and requests.
fn follow_readme(section: &'static str, ports: &[&str], own: &'static [&'static str]) {
    let admin = format!("127.0.0.1:{}", free_port());
    let mut instead = vec![
        ("target/release/sherwood serve".to_owned(), format!("sherwood serve --admin {admin}")),
        ("target/release/sherwood".to_owned(), "sherwood".to_owned()),
        ("127.0.0.1:8080".to_owned(), admin),
        ("'…'".to_owned(), "'of the test'".to_owned()),
    ];
    instead.extend(elsewhere(ports));
    let directory = tempfile::tempdir().unwrap();
    let mut reader = Reader::at(directory.path(), instead);
    for server in own {
        reader.follow(server, |_| Execution::Run);
    }
    let said = reader.follow(section, |block| match block.text.contains("sherwood serve ") {
        true => Execution::Background,
        false => Execution::Run,
    });
    let [checked, _node, answer] = &said[..] else { panic!("{said:?}") };
    assert!(checked.contains("ok"), "{checked}");
    assert!(answer.contains("\"status\":\"hit\""), "the second time: {answer}");
}

#[test]
fn readme_on_your_own_redis_works_as_written() {
    if can_type(&REDIS_PROGRAMS) {
        follow_readme(section("Redis"), &["6379", "6380"], &[OWN_REDIS, KEYS]);
    }
}

#[test]
fn readme_on_your_own_mysql_works_as_written() {
    if can_type(&MYSQL_PROGRAMS) {
        follow_readme(section("MySQL"), &["3306"], &[OWN_MYSQL, PRODUCTS]);
    }
}
