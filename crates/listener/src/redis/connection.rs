//! Redis commands about the client's connection.

use std::collections::HashSet;

use sherwood_wire::resp::{Args, Version, integer, reply};

use super::VERSION;
use super::clients::NAME_BYTES_MAX;
use super::failure::{Failure, NO_AUTH_HELLO, SYNTAX};
use super::session::{CommandResult, Replies, Session, arg, is};
use super::words;
use crate::output::Output;
use crate::tenants::TenantSlot;

/// Executes the Redis command `PING [message]`.
pub(super) fn ping(_: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    match (args.get(1), args.len()) {
        (None, _) => reply::simple(out, "PONG"),
        (Some(message), 2) => reply::bulk(out, message),
        _ => return Err(Failure::arity("ping")),
    }
    Ok(())
}

/// Executes the Redis command `ECHO message`.
pub(super) fn echo(_: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    reply::bulk(out, arg(args, 1));
    Ok(())
}

/// Executes the Redis command `QUIT`.
pub(super) fn quit(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    session.client.quit = true;
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `RESET`.
pub(super) fn reset(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    let replies = match session.client.replies {
        // A preceding `CLIENT REPLY SKIP` still applies to this command.
        Replies::SkipThis => Replies::SkipThis,
        _ => Replies::All,
    };
    session.client.log_out(replies);
    session.card.note_queued(None);
    session.card.note_version(Version::default());
    session.card.note_database(0);
    session.enter(TenantSlot::default());
    {
        let mut names = session.card.names();
        names.name.clear();
        names.user.clear();
    }
    reply::simple(out, "RESET");
    Ok(())
}

/// Executes the Redis command `AUTH [username] password`; the user is `default` if no name is
/// given.
pub(super) fn auth(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    match args.len() {
        2 if session.shared.service.passwords.is_none() => {
            return Err(Failure::text(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => session.log_in(b"default", arg(args, 1))?,
        3 => session.log_in(arg(args, 1), arg(args, 2))?,
        _ => return Err(SYNTAX),
    }
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `HELLO [protover [AUTH username password] [SETNAME clientname]]`.
pub(super) fn hello(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let version = match args.get(1).map(integer) {
        None => session.version(),
        Some(Some(2)) => Version::Resp2,
        Some(Some(3)) => Version::Resp3,
        Some(Some(_)) => return Err(Failure::text("NOPROTO unsupported protocol version")),
        Some(None) => return Err(Failure::text("ERR Protocol version is not an integer or out of range")),
    };
    let (mut index, mut login, mut name) = (2, None, None);
    while let Some(word) = args.get(index) {
        match (args.get(index + 1), args.get(index + 2)) {
            (Some(user), Some(password)) if is(word, "auth") => {
                login = Some((user, password));
                index += 3;
            }
            (Some(given), _) if is(word, "setname") => {
                name = Some(plain(given)?);
                index += 2;
            }
            _ => return Err(Failure::about("ERR Syntax error in HELLO option '", word, "'")),
        }
    }
    if let Some((user, password)) = login {
        session.log_in(user, password)?;
    }
    if session.is_outside() {
        return Err(session.turned_away(NO_AUTH_HELLO));
    }
    if let Some(name) = name {
        session.card.names().name = name;
    }
    session.client.version = version;
    session.card.note_version(version);
    reply::map(out, version, 7);
    let text = [("server", "redis"), ("version", VERSION)];
    for (name, value) in text {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    reply::bulk(out, b"proto");
    reply::integer(out, if version == Version::Resp2 { 2 } else { 3 });
    reply::bulk(out, b"id");
    reply::integer(out, session.card.id as i64);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    reply::bulk(out, b"modules");
    reply::array(out, 0);
    Ok(())
}

/// Checks that a client's or library's name has no spaces or line ends and at most
/// [`NAME_BYTES_MAX`] bytes.
fn plain(name: &[u8]) -> Result<String, Failure> {
    const REFUSED: Failure =
        Failure::text("ERR Client names cannot contain spaces, newlines or special characters.");
    let printable = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if !printable || name.len() > NAME_BYTES_MAX {
        return Err(REFUSED);
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Executes the Redis command `CLIENT ID`.
pub(super) fn client_id(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    reply::integer(out, session.card.id as i64);
    Ok(())
}

/// Executes the Redis command `CLIENT GETNAME`.
pub(super) fn client_getname(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    let names = session.card.names();
    match names.name.as_str() {
        "" => reply::null(out, session.version()),
        name => reply::bulk(out, name.as_bytes()),
    }
    Ok(())
}

/// Executes the Redis command `CLIENT SETNAME name`.
pub(super) fn client_setname(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    session.card.names().name = plain(arg(args, 2))?;
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `CLIENT SETINFO LIB-NAME name | LIB-VER version`, which clients send
/// since Redis 7.2.
pub(super) fn client_setinfo(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let value = plain(arg(args, 3))?;
    match arg(args, 2) {
        word if is(word, "lib-name") => session.card.names().library = value,
        word if is(word, "lib-ver") => session.card.names().library_version = value,
        word => return Err(Failure::about("ERR Unrecognized option '", word, "'")),
    }
    out.extend_from_slice(reply::OK);
    Ok(())
}

/// Executes the Redis command `CLIENT INFO`.
pub(super) fn client_info(session: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    session.card.note_last(session.last);
    let line = session.card.line(&session.view()) + "\n";
    reply::text(out, session.version(), &line);
    Ok(())
}

/// Work of writing a client's line of `CLIENT LIST`: half a microsecond.
const LINE_WORK: u64 = 2048;
/// Work of skipping a client that is not listed.
const CLIENT_WORK: u64 = 128;

/// Returns the work of a `CLIENT LIST`, which with `ID` shows at most as many clients as ids are
/// given.
pub(super) fn client_list_work(session: &Session<'_>, args: Args<'_>) -> u64 {
    let clients = session.hub.clients.len();
    let shown = if args.len() > 3 && is(arg(args, 2), "id") { clients.min(args.len() - 3) } else { clients };
    CLIENT_WORK * clients as u64 + LINE_WORK * shown as u64
}

/// Executes the Redis command `CLIENT LIST [TYPE normal | master | replica | pubsub] [ID id …]`.
pub(super) fn client_list(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let (slot, clients) = (session.client.slot, &session.hub.clients);
    session.card.note_last(session.last);
    let view = session.view();
    out.work.begin(client_list_work(session, args))?;
    let list = match args.get(2) {
        None => clients.list(&view, slot, |_| true)?,
        Some(word) if is(word, "id") && args.len() > 3 => {
            let ids: Result<HashSet<_>, _> =
                args.from(3).map(|id| integer(id).ok_or(Failure::text("ERR Invalid client ID"))).collect();
            let ids = ids?;
            clients.list(&view, slot, |id| ids.contains(&(id as i64)))?
        }
        Some(word) if is(word, "type") && args.len() == 4 => match arg(args, 3) {
            kind if is(kind, "normal") => clients.list(&view, slot, |_| true)?,
            kind if ["master", "replica", "slave", "pubsub"].iter().any(|one| is(kind, one)) => String::new(),
            kind => return Err(Failure::about("ERR Unknown client type '", kind, "'")),
        },
        Some(_) => return Err(SYNTAX),
    };
    reply::text(out, session.version(), &list);
    Ok(())
}

/// Executes the Redis command `CLIENT REPLY ON | OFF | SKIP`.
pub(super) fn client_reply(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    let replies = &mut session.client.replies;
    match arg(args, 2) {
        word if is(word, "on") => {
            *replies = Replies::All;
            out.extend_from_slice(reply::OK);
        }
        word if is(word, "off") => *replies = Replies::None,
        word if is(word, "skip") => {
            if *replies != Replies::None {
                *replies = Replies::SkipNext;
            }
        }
        _ => return Err(SYNTAX),
    }
    Ok(())
}

/// Executes the Redis command `CLIENT NO-EVICT ON | OFF`: accepted without effect, since clients
/// are never evicted; each client's buffers are bounded.
pub(super) fn client_no_evict(_: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    match arg(args, 2) {
        word if is(word, "on") || is(word, "off") => out.extend_from_slice(reply::OK),
        _ => return Err(SYNTAX),
    }
    Ok(())
}

/// Executes the Redis command `CLIENT HELP`.
pub(super) fn client_help(_: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    words::help(
        out,
        "CLIENT",
        &[
            ("GETNAME", "The name of this connection."),
            ("ID", "The number of this connection."),
            ("INFO", "What is known of this connection."),
            ("LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <id> ...]", "What is known of all, or of some."),
            ("NO-EVICT (ON|OFF)", "Accepted; connections are never evicted."),
            ("REPLY (ON|OFF|SKIP)", "Which answers this connection wants."),
            ("SETINFO (LIB-NAME|LIB-VER) <value>", "What the client's library is."),
            ("SETNAME <name>", "Name this connection."),
        ],
    );
    Ok(())
}
