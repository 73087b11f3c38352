//! Tests of commands and scripts by which clients take, extend and release locks.

use super::*;

const PHPREDIS: &str =
    "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end";
const REDIS_PY_EXTEND: &str = "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        local expiration = redis.call('pttl', KEYS[1])
        if not expiration then
            expiration = 0
        end
        if expiration < 0 then
            return 0
        end

        local newttl = ARGV[2]
        if ARGV[3] == \"0\" then
            newttl = ARGV[2] + expiration
        end
        redis.call('pexpire', KEYS[1], newttl)
        return 1
    ";
const LARAVEL_ADD: &str =
    "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])";

/// Sends a request and returns the answer with its line ends replaced by spaces.
fn ask(listener: &Listener, client: &mut InMemoryClient, args: &[&str]) -> String {
    let args: Vec<_> = args.iter().map(|arg| arg.as_bytes()).collect();
    let mut request = Vec::new();
    client::request(&mut request, &args);
    String::from_utf8_lossy(&listener.send(client, &request)).replace("\r\n", " ").trim_end().to_owned()
}

#[test]
fn delifeq_delex_and_set_with_ifeq_or_ifne_act_only_if_the_comparison_holds() {
    let listener = Listener::plain();
    listener.check(
        &mut listener.client(),
        &[
            ("SET k a", "+OK"),
            ("DELIFEQ k b", ":0"),
            ("DELIFEQ none a", ":0"),
            ("DELEX k IFEQ b", ":0"),
            ("DELEX k IFNE a", ":0"),
            ("SET k b IFEQ x", "$-1"),
            ("SET none b IFEQ x", "$-1"),
            ("GET k", "$1 a"),
            ("SET k b IFEQ a GET", "$1 a"),
            ("SET k c IFNE b", "$-1"),
            ("SET new c IFNE b", "+OK"),
            ("SET k c ifeq b PX 1000", "+OK"),
            ("PTTL k", ":1000"),
            ("SET k d IFEQ c KEEPTTL", "+OK"),
            ("PTTL k", ":1000"),
            ("DELIFEQ k d", ":1"),
            ("GET k", "$-1"),
            ("DELEX new", ":1"),
            ("DELEX new", ":0"),
            ("SET k a", "+OK"),
            ("DELEX k ifne b", ":1"),
            ("DELEX k IFEQ", "-ERR syntax error"),
            ("DELEX k IF a", "-ERR syntax error"),
            ("SET k a IFEQ", "-ERR syntax error"),
            ("SET k a IFEQ a NX", "-ERR syntax error"),
            ("SET k a XX IFNE a", "-ERR syntax error"),
            ("SET k a IFEQ a IFEQ b", "-ERR syntax error"),
        ],
    );
}

#[test]
fn lock_scripts_have_the_effect_of_the_equivalent_commands() {
    let listener = Listener::plain();
    let mut client = listener.client();
    let mut check = |args: &[&str], expected: &str| {
        assert_eq!(ask(&listener, &mut client, args), expected, "{args:?}");
    };
    let unknown = "-NOSCRIPT No matching script. Please use EVAL.";
    let digest = "b70c2384248f88e6b75b9f89241a180f856ad852";
    check(&["SET", "lock", "a", "NX", "PX", "5000"], "+OK");
    check(&["EVALSHA", digest, "1", "lock", "a"], unknown);
    check(&["EVAL", PHPREDIS, "1", "lock", "b"], ":0");
    check(&["EVALSHA", &digest.to_uppercase(), "1", "lock", "a"], ":1");
    check(&["GET", "lock"], "$-1");
    check(&["SCRIPT", "EXISTS", digest, "other"], "*2 :1 :0");
    check(&["SCRIPT", "LOAD", PHPREDIS], &format!("$40 {digest}"));
    check(&["SET", "lock", "a", "PX", "5000"], "+OK");
    check(&["EVAL", REDIS_PY_EXTEND, "1", "lock", "a", "1000", "0"], ":1");
    check(&["PTTL", "lock"], ":6000");
    check(&["EVAL", REDIS_PY_EXTEND, "1", "lock", "a", "1000", "1"], ":1");
    check(&["PTTL", "lock"], ":1000");
    check(&["EVAL", REDIS_PY_EXTEND, "1", "lock", "b", "1000", "1"], ":0");
    check(&["PERSIST", "lock"], ":1");
    check(&["EVAL", REDIS_PY_EXTEND, "1", "lock", "a", "1000", "0"], ":0");
    check(&["EVAL", REDIS_PY_EXTEND, "1", "lock", "a", "1000", "1"], ":0");
    check(&["TTL", "lock"], ":-1");
    check(&["EVAL", LARAVEL_ADD, "1", "lock", "c", "9"], "$-1");
    check(&["EVAL", LARAVEL_ADD, "1", "new", "c", "9"], "+OK");
    check(&["TTL", "new"], ":9");
    check(&["EVAL", LARAVEL_ADD, "1", "other", "c", "0"], "-ERR invalid expire time in 'setex' command");
    check(&["SCRIPT", "FLUSH"], "+OK");
    check(&["EVALSHA", digest, "1", "lock", "a"], unknown);
    for args in
        [&["EVAL", PHPREDIS, "0"][..], &["EVAL", PHPREDIS, "2", "a", "b", "c"], &["EVAL", PHPREDIS, "1", "a"]]
    {
        let answer = ask(&listener, &mut client, args);
        assert!(answer.starts_with("-ERR this script takes one key"), "{answer}");
    }
}

#[test]
fn setting_and_removing_an_expiry_counts_as_a_change_of_a_watched_key() {
    let listener = Listener::plain();
    let (mut watcher, mut other) = (listener.client(), listener.client());
    for change in [&["EXPIRE k 100", "PERSIST k"][..], &["GETEX k EX 100", "GETEX k PERSIST"]] {
        listener.check(&mut watcher, &[("SET k v", "+OK"), ("WATCH k", "+OK")]);
        change.iter().for_each(|line| _ = listener.ask(&mut other, line));
        listener.check(&mut watcher, &[("MULTI", "+OK"), ("GET k", "+QUEUED"), ("EXEC", "*-1")]);
    }
    listener.check(
        &mut watcher,
        &[("WATCH k", "+OK"), ("MULTI", "+OK"), ("GET k", "+QUEUED"), ("EXEC", "*1 $1 v")],
    );
}
