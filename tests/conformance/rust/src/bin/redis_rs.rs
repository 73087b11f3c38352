//! Runs the cache operations of redis-rs against the Redis server at HOST PORT, in both versions of
//! RESP.

use std::collections::{BTreeSet, HashMap};
use std::process::ExitCode;

use redis::{AsyncCommands, Commands, Connection, RedisError, RedisResult};
use sherwood_conformance::{check, end, refused};

/// The listener's limit.
const VALUE_BYTES_MAX: usize = 1 << 20;

fn strings(client: &mut Connection) -> RedisResult<()> {
    let _: () = client.set("a", "1")?;
    check("get", client.get::<_, Option<String>>("a")?, Some("1".to_owned()));
    check("get of nothing", client.get::<_, Option<String>>("none")?, None::<String>);
    check("set nx over something", client.set_nx::<_, _, bool>("a", "2")?, false);
    check("getdel", client.get_del::<_, Option<String>>("a")?, Some("1".to_owned()));
    check("append", client.append::<_, _, i64>("b", "abc")?, 3);
    check("getrange", client.getrange::<_, String>("b", 1, -1)?, "bc");
    let bytes: Vec<u8> = (0..250).collect();
    let _: () = client.set(&bytes, &bytes)?;
    check("any bytes as key and value", client.get::<_, Vec<u8>>(&bytes)?, bytes);
    Ok(())
}

fn limits(client: &mut Connection) -> RedisResult<()> {
    let mut value = vec![b'x'; VALUE_BYTES_MAX];
    let _: () = client.set("l", &value)?;
    check("the largest value", client.get::<_, Vec<u8>>("l")?.len(), VALUE_BYTES_MAX);
    value.push(b'x');
    refused("one byte more", client.set::<_, _, ()>("l", &value), "string exceeds maximum");
    check("nobody reads the value it was to replace", client.get::<_, Option<String>>("l")?, None::<String>);
    Ok(())
}

fn many(client: &mut Connection) -> RedisResult<()> {
    let keys: Vec<String> = (0..10_000).map(|number| format!("many:{number}")).collect();
    let pairs: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), key.as_str())).collect();
    let _: () = client.mset(&pairs)?;
    check("mget of 10,000", client.mget::<_, Vec<String>>(&keys)? == keys, true);
    let seen: RedisResult<BTreeSet<String>> = client.scan_match("many:*")?.collect();
    check("a scan through all keys", seen?, keys.iter().cloned().collect::<BTreeSet<_>>());
    check("unlink of 10,000", client.unlink::<_, i64>(&keys)?, 10_000);
    let mut pipeline = redis::pipe();
    for key in &keys[..1000] {
        pipeline.set(key, 1).ignore();
    }
    let found: Vec<i64> = pipeline.mget(&keys[..1000]).query::<(Vec<i64>,)>(client)?.0;
    check("a pipeline of 1,001", found, vec![1; 1000]);
    Ok(())
}

fn numbers_and_times(client: &mut Connection) -> RedisResult<()> {
    check("incr", client.incr::<_, _, i64>("n", 5)?, 5);
    check("incrbyfloat", client.incr::<_, _, f64>("n", 0.5)?, 5.5);
    refused("incr of a fraction", client.incr::<_, _, i64>("n", 1), "not an integer");
    check("expire", client.expire::<_, bool>("n", 100)?, true);
    check("ttl", (1..=100).contains(&client.ttl::<_, i64>("n")?), true);
    check("persist", client.persist::<_, bool>("n")?, true);
    check("ttl of what stays", client.ttl::<_, i64>("n")?, -1);
    refused("lists", client.lpush::<_, _, i64>("l", 1), "unknown command");
    check("the connection still works", client.exists::<_, bool>("n")?, true);
    Ok(())
}

fn about(client: &mut Connection) -> RedisResult<()> {
    let info: redis::InfoDict = redis::cmd("INFO").query(client)?;
    check("info", info.get::<String>("redis_mode"), Some("standalone".to_owned()));
    let config: HashMap<String, String> =
        redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").query(client)?;
    check("config get", config["maxmemory-policy"].as_str(), "allkeys-lru");
    let _: () = redis::cmd("FLUSHDB").query(client)?;
    check("dbsize", redis::cmd("DBSIZE").query::<i64>(client)?, 0);
    Ok(())
}

/// Runs many tasks over one connection, which is re-established after the server closed it.
async fn asynchronous(client: &redis::Client) -> Result<(), RedisError> {
    let mut manager = client.get_connection_manager().await?;
    let _: () = manager.set("async", 1).await?;
    let tasks = (0..100).map(|_| {
        let mut manager = manager.clone();
        tokio::spawn(async move { manager.get::<_, i64>("async").await })
    });
    let mut answers = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        answers.push(task.await.expect("it does not panic")?);
    }
    check("a hundred tasks", answers, vec![1; 100]);
    let _: Result<String, _> = redis::cmd("QUIT").query_async(&mut manager).await;
    // The first command may be the one that detects the closed connection.
    let _: Result<i64, _> = manager.get("async").await;
    check("a client connects again", manager.get::<_, i64>("async").await.ok(), Some(1));
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://{}:{}/?protocol={protocol}", args[1], args[2]);
        let client = redis::Client::open(url).expect("an address");
        let mut connection = client.get_connection().expect("a server at HOST PORT");
        let _: () = redis::cmd("FLUSHALL").query(&mut connection).expect("an empty cache");
        for part in [strings, limits, many, numbers_and_times, about] {
            if let Err(error) = part(&mut connection) {
                check("no unexpected error", error.to_string(), "");
            }
        }
        if let Err(error) = runtime.block_on(asynchronous(&client)) {
            check("no unexpected error", error.to_string(), "");
        }
    }
    end()
}
