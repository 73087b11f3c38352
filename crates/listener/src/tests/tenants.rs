//! Clients of several tenants at one memcached listener: none sees or changes the items of another.

use sherwood_model::SplitMix64;

use super::*;

/// Users `alice` and `bob` of tenants 1 and 2.
struct Users;

impl Passwords for Users {
    fn know(&self, user: &[u8], password: &[u8]) -> Option<TenantId> {
        let tenant = match user {
            b"alice" => 1,
            b"bob" => 2,
            _ => return None,
        };
        (password == b"12345678").then_some(TenantId(tenant))
    }
}

fn service_of_two() -> Service {
    let routes = |tenant: u16| {
        let target = |backend| Target { tenant: TenantId(tenant), ..target(2 * (tenant - 1) + backend) };
        let prefixes = [(String::new(), target(0)), ("b/".to_owned(), target(1))];
        Routing::by_prefix(TenantId(tenant), prefixes).unwrap()
    };
    Service {
        passwords: Some(Arc::new(Users)),
        users: UserRoutes::new([routes(1), routes(2)]),
        ..service(cache(4), Routing::by_prefix(TenantId(9), []).unwrap(), None)
    }
}

fn logged_in(service: &Service, user: &str) -> Client {
    let mut client = Client::new(service.clone());
    let login = format!("{user} 12345678");
    assert_eq!(client.send(format!("set a 0 0 {}\r\n{login}\r\n", login.len()).as_bytes()), "STORED\r\n");
    client
}

#[test]
fn commands_pipelined_with_a_login_are_those_of_its_tenant() {
    let service = service_of_two();
    let mut alice = logged_in(&service, "alice");
    alice.check(&[("set k 0 0 4\r\nmine\r\n", "STORED\r\n")]);
    let mut bob = Client::new(service.clone());
    let guess = "set a 0 0 12\r\nbob 12345679\r\n";
    bob.check(&[(
        &format!("get k\r\n{guess}set a 0 0 12\r\nbob 12345678\r\nget k\r\nset k 0 0 5\r\nother\r\nflush_all\r\n"),
        "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\nSTORED\r\nEND\r\nSTORED\r\nOK\r\n",
    )]);
    alice.check(&[("get k b/k\r\n", "VALUE k 0 4\r\nmine\r\nEND\r\n")]);
}

fn command(draw: &mut SplitMix64, mark: &str) -> String {
    let mut below = |n: u64| draw.next_u64() % n;
    let key = format!("{}k{}", ["", "b/", "bob/"][below(3) as usize], below(4));
    let value = format!("{mark}{:02}", below(100));
    let length = value.len();
    match below(16) {
        0..=3 => format!("set {key} 0 0 {length}\r\n{value}\r\n"),
        4 => format!("add {key} 0 0 {length}\r\n{value}\r\n"),
        5 => format!("append {key} 0 0 {length}\r\n{value}\r\n"),
        6..=8 => format!("get {key} k0 b/k0\r\n"),
        9 => format!("gat 100 {key}\r\n"),
        10 => format!("delete {key}\r\n"),
        11 => format!("mg {key} s v k\r\n"),
        12 => format!("ms {key} {length}\r\n{value}\r\n"),
        13 => format!("md {key}\r\n"),
        14 => format!("touch {key} 100\r\n"),
        _ => "flush_all\r\n".to_owned(),
    }
}

/// Checks from many seeds that the answers to a tenant are the same whatever another does, and that
/// none has another's value.
#[test]
fn answers_to_a_tenant_do_not_depend_on_the_commands_of_another() {
    for seed in 0..300 {
        let mut draw = SplitMix64::new(seed);
        let (alone, shared) = (service_of_two(), service_of_two());
        let (mut reference, mut watched) = (logged_in(&alone, "alice"), logged_in(&shared, "alice"));
        let mut other = logged_in(&shared, "bob");
        for step in 0..60 {
            if draw.next_u64().is_multiple_of(2) {
                let line = command(&mut draw, "theirs");
                let answer = other.send(line.as_bytes());
                assert!(!answer.contains("mine"), "seed {seed}, step {step}: {line} got {answer}");
            } else {
                let line = command(&mut draw, "mine");
                let answer = watched.send(line.as_bytes());
                let expected = reference.send(line.as_bytes());
                assert_eq!(answer, expected, "seed {seed}, step {step}: {line}");
            }
        }
    }
}

#[test]
fn item_of_another_tenant_cannot_be_compared_counted_or_described() {
    let service = service_of_two();
    let (mut alice, mut bob) = (logged_in(&service, "alice"), logged_in(&service, "bob"));
    alice.check(&[("set n 0 0 1\r\n7\r\n", "STORED\r\n")]);
    bob.check(&[
        ("cas n 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
        ("incr n 1\r\n", "NOT_FOUND\r\n"),
        ("me n\r\n", "EN\r\n"),
        ("mg n v q\r\nmn\r\n", "MN\r\n"),
        ("stats reset\r\n", "RESET\r\n"),
    ]);
    let stats = bob.send(b"stats\r\n");
    assert!(stats.contains("STAT curr_items 0\r\n") && stats.contains("STAT cmd_set 0\r\n"), "{stats}");
    assert!(alice.send(b"stats\r\n").contains("STAT curr_items 1\r\n"));
}
