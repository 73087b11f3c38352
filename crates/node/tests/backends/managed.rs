//! A node whose manager chooses how the duplicates of a replicated store of Redis servers are
//! asked.

use serde_json::Value;

use crate::client::Client;
use crate::replicas::{KEYS, all_are_read, name, read_all, servers};
use crate::replicated::node;
use crate::wait::eventually;

/// All duplicates are asked, and one suffices for an SLO that a server on the same machine meets.
const ALL_ASKED: &str = "dispatch = { copies = \"fixed\", factor = 2 }\n\
                         [slo]\nbound = \"500ms\"\npercentile = 99\nwindow = \"1s\"\nobserve = \"1s\"\n[stores]\n";

/// Reads keys that are not there, each once, so that all of them are asked for.
struct Reader {
    client: Client,
    next: u32,
}

impl Reader {
    fn store(&mut self) -> Value {
        self.client.ask("GET", "/v1/stores", "").json()[0].clone()
    }

    /// Reads some keys until the store is as expected, and returns it.
    fn read_until(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut store = Value::Null;
        eventually(what, || {
            for _ in 0..200 {
                self.next += 1;
                self.client.read([("a", vec![format!("key-{}", self.next)])]);
            }
            store = self.store();
            is_so(&store)
        });
        store
    }
}

#[test]
fn manager_asks_one_duplicate_where_that_meets_the_slo() {
    let servers = servers("redis", 4);
    let node = node("redis", &servers, &format!("{ALL_ASKED}manager = \"slo\"\n"));
    let mut client = Client::connect(node.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    let mut reader = Reader { client, next: 0 };
    let first = reader.store();
    assert_eq!((&first["asked"], &first["hedge_ms"]), (&2.into(), &Value::Null), "{first}");
    assert_eq!((&first["plan"], &first["correlation"]), (&Value::Null, &Value::Null), "{first}");
    let store = reader.read_until("one duplicate is asked", |store| store["asked"] == 1);
    let plan = store["plan"].as_str().expect("a decision");
    assert!(plan.contains("all asked") && plan.contains("accesses a second"), "{plan}");
    for level in ["predicted", "measured"] {
        assert!(store[level].as_f64().is_some_and(|level| (0.9..=1.0).contains(&level)), "{store}");
    }
    let stays = reader.read_until("the next window ends", |store| store["plan"] != plan);
    assert_eq!((&stays["partitions"], &stays["duplicates"]), (&2.into(), &2.into()), "{stays}");
    let metrics = reader.client.ask("GET", "/metrics", "").body;
    for sample in
        ["plan_service_level{backend=\"a\"} 0.99", "plan_predicted{backend=\"a\"} ", "plan_measured{"]
    {
        assert!(metrics.contains(&format!("sherwood_{sample}")), "{metrics}");
    }
    node.stop();
}

#[test]
fn manager_takes_a_duplicate_away_where_one_meets_the_slo_and_layouts_may_change() {
    let servers = servers("redis", 4);
    let node = node("redis", &servers, &format!("{ALL_ASKED}manager = \"slo\"\nlayouts = true\n"));
    let mut client = Client::connect(node.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    for key in 0..KEYS {
        assert_eq!(client.write("a", &name(key), "v").status, 204);
    }
    let mut reader = Reader { client, next: 0 };
    let store = reader.read_until("one duplicate is left", |store| store["duplicates"] == 1);
    assert_eq!((&store["partitions"], &store["asked"]), (&2.into(), &1.into()), "{store}");
    let plan = store["plan"].as_str().expect("a decision");
    assert!(
        plan.starts_with("2 partitions of 2 duplicates, all asked → 2 partitions of 1 node: at "),
        "{plan}"
    );
    reader.read_until("the others have left", |store| {
        store["settled"] == true && store["nodes"][1]["partition"] == 1
    });
    reader.read_until("the next window ends", |store| store["plan"] != plan);
    let present = read_all(&mut reader.client).into_values().flatten().count();
    assert_eq!(present, KEYS);
    node.stop();
}

#[test]
fn dry_run_says_the_change_and_leaves_the_store_as_configured() {
    let servers = servers("redis", 4);
    let options = format!("{ALL_ASKED}manager = \"slo\"\nlayouts = true\ndry_run = true\n");
    let node = node("redis", &servers, &options);
    let mut client = Client::connect(node.admin().expect("it has a gateway"));
    all_are_read(&mut client);
    let mut reader = Reader { client, next: 0 };
    let is_said = |store: &Value| store["plan"].as_str().is_some_and(|plan| plan.ends_with("a dry run"));
    let store = reader.read_until("the change is said", is_said);
    assert_eq!((&store["asked"], &store["hedge_ms"]), (&2.into(), &Value::Null), "{store}");
    assert_eq!((&store["partitions"], &store["duplicates"]), (&2.into(), &2.into()), "{store}");
    node.stop();
}
