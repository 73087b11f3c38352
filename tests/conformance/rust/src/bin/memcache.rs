//! Runs the operations of the crate `memcache` against the memcached server at HOST PORT, over its
//! text protocol.

use std::collections::HashMap;
use std::process::ExitCode;

use memcache::{Client, MemcacheError};
use sherwood_conformance::{check, end, refused};

/// The listener's limit.
const VALUE_BYTES_MAX: usize = 1 << 20;

fn storage(client: &Client) -> Result<(), MemcacheError> {
    client.set("a", "1", 0)?;
    check("get", client.get::<String>("a")?, Some("1".to_owned()));
    check("get of nothing", client.get::<String>("none")?, None::<String>);
    // The library does not report that nothing was stored.
    client.add("a", "2", 0)?;
    check("add over something", client.get::<String>("a")?, Some("1".to_owned()));
    client.add("b", "2", 0)?;
    client.replace("b", "3", 0)?;
    client.append("b", "+")?;
    client.prepend("b", "-")?;
    check("get of both", client.get::<String>("b")?, Some("-3+".to_owned()));
    let bytes: Vec<u8> = (0..=255).collect();
    client.set("bin", &bytes[..], 0)?;
    check("any bytes", client.get::<Vec<u8>>("bin")?, Some(bytes));
    check("delete", (client.delete("b")?, client.delete("b")?), (true, false));
    check("touch", (client.touch("a", 100)?, client.touch("none", 100)?), (true, false));
    Ok(())
}

fn many(client: &Client) -> Result<(), MemcacheError> {
    let keys: Vec<String> = (0..1000).map(|number| format!("many-{number}")).collect();
    for key in &keys {
        client.set(key, key.as_str(), 0)?;
    }
    let names: Vec<&str> = keys.iter().map(String::as_str).chain(["none"]).collect();
    let found: HashMap<String, String> = client.gets(&names)?;
    check("a thousand keys", found.len(), 1000);
    check("their values", found.iter().all(|(key, value)| key == value), true);
    Ok(())
}

fn cas(client: &Client) -> Result<(), MemcacheError> {
    client.set("c", "1", 0)?;
    let found: HashMap<String, (Vec<u8>, u32, Option<u64>)> = client.gets(&["c"])?;
    let unique = found["c"].2.expect("gets tells it");
    check("cas", client.cas("c", "2", 0, unique)?, true);
    check("cas of what was changed", client.cas("c", "3", 0, unique)?, false);
    Ok(())
}

fn numbers(client: &Client) -> Result<(), MemcacheError> {
    client.set("n", 9, 0)?;
    check("incr", client.increment("n", 2)?, 11);
    check("decr", client.decrement("n", 20)?, 0);
    client.set("n", "x", 0)?;
    refused("incr of text", client.increment("n", 1), "non-numeric");
    Ok(())
}

fn limits(client: &Client) -> Result<(), MemcacheError> {
    let mut value = vec![b'x'; VALUE_BYTES_MAX];
    client.set("l", &value[..], 0)?;
    check("the largest value", client.get::<Vec<u8>>("l")?.map(|value| value.len()), Some(VALUE_BYTES_MAX));
    value.push(b'x');
    refused("one byte more", client.set("l", &value[..], 0), "too large");
    check("the connection still works", client.get::<String>("a")?, Some("1".to_owned()));
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let url = format!("memcache://{}:{}?timeout=60&protocol=ascii", args[1], args[2]);
    let client = Client::connect(url).expect("a server at HOST PORT");
    client.flush().expect("an empty cache");
    for part in [storage, many, cas, numbers, limits] {
        if let Err(error) = part(&client) {
            check("no unexpected error", error.to_string(), "");
        }
    }
    let version = client.version().expect("a version");
    check("version", version.iter().all(|(_, version)| version.starts_with("1.6")), true);
    client.flush().expect("an empty cache");
    check("flushed", client.get::<String>("a").ok(), Some(None::<String>));
    end()
}
