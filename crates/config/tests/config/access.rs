//! Tests of the configuration's access restrictions.

use super::*;

#[test]
fn addresses_beyond_loopback_with_authentication_are_accepted() {
    let config = config(
        "[admin]\nbind = \"0.0.0.0:8080\"\ntls = { cert = \"c\", key = \"k\", client_ca = \"a\" }\n\
         token_file = \"t\"\nread_token_file = \"r\"\n\
         [[listener]]\nbind = \"192.0.2.1:11211\"\nauth_file = \"p\"\nnetwork = \"trusted\"\n\
         [[listener]]\nbind = \"unix:/run/s.sock\"\nauth_file = \"p\"\n\
         [[listener]]\nbind = \"192.0.2.1:6379\"\nprotocol = \"redis\"\n\
         tls = { cert = \"c\", key = \"k\", client_ca = \"a\" }",
    );
    let tls = TlsFiles { cert: "c".into(), key: "k".into(), client_ca: Some("a".into()) };
    let access =
        AccessSetup { tls: Some(tls), token_file: Some("t".into()), read_token_file: Some("r".into()) };
    assert_eq!(config.access, access);
    assert_eq!(config.admin.map(|admin| admin.to_string()).as_deref(), Some("0.0.0.0:8080"));
    let files = config.listeners.iter().map(|listener| listener.auth_file.clone());
    assert_eq!(files.collect::<Vec<_>>(), [Some("p".into()), Some("p".into()), None]);
    assert_eq!(config.listeners[2].tls, config.access.tls);
    assert!(config.buffers_line().contains("290.0MiB for 1024 HTTP connections"), "TLS has its own");
}

#[test]
fn addresses_beyond_loopback_without_authentication_are_refused() {
    assert_refused(&[
        (
            "[admin]\nbind = \"0.0.0.0:8080\"",
            "a.toml:2:8: [admin] bind is 0.0.0.0:8080, which other machines may reach; beyond loopback the HTTP port \
             must have TLS and ask for a token: set tls = { cert = \"cert.pem\", key = \"key.pem\" } and token_file = \
             \"tokens\" in [admin], or set bind = \"127.0.0.1:8080\"",
        ),
        (
            "[admin]\nbind = \"[::]:8080\"\ntls = { cert = \"c\", key = \"k\" }",
            "a.toml:2:8: [admin] bind is [::]:8080, which other machines may reach; beyond loopback the HTTP port \
             must have TLS and ask for a token: set token_file = \"tokens\" in [admin], or set bind = \
             \"127.0.0.1:8080\"",
        ),
        (
            "[[listener]]\nbind = \"0.0.0.0:11211\"\nauth_file = \"a\"",
            "a.toml:2:8: [[listener]] bind is 0.0.0.0:11211, which other machines may reach; beyond loopback a \
             listener must ask for a password, and have TLS or a network that is said to be trusted: set tls = { cert = \
             \"cert.pem\", key = \"key.pem\" } or network = \"trusted\" in [[listener]], or set bind = \"127.0.0.1:11211\"",
        ),
        (
            "[[listener]]\nbind = \"0.0.0.0:11211\"\nnetwork = \"trusted\"",
            "a.toml:2:8: [[listener]] bind is 0.0.0.0:11211, which other machines may reach; beyond loopback a \
             listener must ask for a password, and have TLS or a network that is said to be trusted: set auth_file = \"passwords\" in [[listener]], or set bind = \"127.0.0.1:11211\"",
        ),
        (
            "[[listener]]\nbind = \"0.0.0.0:11211\"\ntls = { cert = \"c\", key = \"k\" }",
            "a.toml:2:8: [[listener]] bind is 0.0.0.0:11211, which other machines may reach; beyond loopback a \
             listener must ask for a password, and have TLS or a network that is said to be trusted: set auth_file \
             = \"passwords\" in [[listener]], or set bind = \"127.0.0.1:11211\"",
        ),
        (
            "[[listener]]\nbind = \"unix:/run/s.sock\"\ntls = { cert = \"c\", key = \"k\" }",
            "a.toml:3:7: [[listener]] tls is that of an address, and bind is a UNIX socket: remove it",
        ),
        (
            "[[listener]]\nbind = \"unix:/run/s.sock\"\nnetwork = \"trusted\"",
            "a.toml:3:11: [[listener]] network is that of an address, and bind is a UNIX socket: remove it",
        ),
        (
            "[[listener]]\nbind = \"127.0.0.1:1\"\nnetwork = \"safe\"",
            "a.toml:3:11: [[listener]] network is \"safe\"; it must be \"loopback\" or \"trusted\": set network = \
             \"trusted\"",
        ),
    ]);
}

#[test]
fn incomplete_tls_and_token_files_are_refused() {
    assert_refused(&[
        (
            "[admin]\nbind = \"0.0.0.0:8080\"\ntls = { cert = \"c\" }\ntoken_file = \"t\"",
            "a.toml:3:7: [admin] tls has no cert or no key; it must have both: set tls = { cert = \"cert.pem\", key = \
             \"key.pem\" }",
        ),
        (
            "[admin]\ntls = { cert = \"c\" }",
            "a.toml:2:7: [admin] tls has no cert or no key; it must have both: set tls = { cert = \"cert.pem\", key = \
             \"key.pem\" }",
        ),
        (
            "[admin]\ntoken_file = \"\"",
            "a.toml:2:14: [admin] token_file names no file; it must have a path: set token_file = \"tokens\"",
        ),
        (
            "[admin]\nread_token_file = \"r\"",
            "a.toml:2:19: [admin] read_token_file is of no use without token_file: everything is open to everybody; set \
             token_file = \"tokens\", too",
        ),
        (
            "[admin]\ntoken_file = \"t\"\nread_token_file = \"t\"",
            "a.toml:3:19: [admin] read_token_file is token_file, whose tokens may do everything; name another file",
        ),
        (
            "[[listener]]\nbind = \"127.0.0.1:1\"\nauth_file = \"\"",
            "a.toml:3:13: [[listener]] auth_file names no file; it must have a path: set auth_file = \"passwords\"",
        ),
    ]);
}
