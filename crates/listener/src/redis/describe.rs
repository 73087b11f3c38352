//! The Redis command `COMMAND`: descriptions of the supported commands.

use sherwood_model::nearest;
use sherwood_wire::resp::{Args, Version, reply};

use super::session::{CommandResult, Session};
use super::table::{self, Command};
use super::words;
use crate::output::Output;

/// Work of describing a command with its subcommands: two microseconds and up to 4 KiB. So a
/// request that names more than about a thousand commands is refused.
const DESCRIPTION_WORK: u64 = 16 << 10;

/// Returns the work of `COMMAND`, or of a subcommand such as `COMMAND INFO` with the names of
/// commands.
pub(super) fn work(args: Args<'_>) -> u64 {
    let named = args.len().saturating_sub(2);
    DESCRIPTION_WORK * if named == 0 { table::COMMANDS.len() } else { named } as u64
}

/// Executes the Redis command `COMMAND`.
pub(super) fn all(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    out.work.begin(work(args))?;
    let version = session.version();
    reply::array(out, table::COMMANDS.len());
    table::COMMANDS.iter().for_each(|command| description(out, version, command));
    Ok(())
}

/// Executes the Redis command `COMMAND COUNT`.
pub(super) fn count(_: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    reply::integer(out, table::COMMANDS.len() as i64);
    Ok(())
}

/// Executes the Redis command `COMMAND INFO [name …]`.
pub(super) fn info(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    if args.len() == 2 {
        return all(session, args, out);
    }
    out.work.begin(work(args))?;
    let version = session.version();
    reply::array(out, args.len() - 2);
    for name in args.from(2) {
        match named(name) {
            Some(command) => description(out, version, command),
            None => reply::null(out, version),
        }
    }
    Ok(())
}

/// Executes the Redis command `COMMAND DOCS [name …]`.
pub(super) fn docs(session: &mut Session<'_>, args: Args<'_>, out: &mut Output) -> CommandResult {
    out.work.begin(work(args))?;
    let commands: Vec<&Command> = match args.len() {
        2 => table::COMMANDS.iter().collect(),
        _ => args.from(2).filter_map(named).collect(),
    };
    let version = session.version();
    reply::map(out, version, commands.len());
    for command in commands {
        reply::bulk(out, command.name.as_bytes());
        documentation(out, version, command);
    }
    Ok(())
}

/// Executes the Redis command `COMMAND HELP`.
pub(super) fn help(_: &mut Session<'_>, _: Args<'_>, out: &mut Output) -> CommandResult {
    words::help(
        out,
        "COMMAND",
        &[
            ("(no subcommand)", "What is known of all commands."),
            ("COUNT", "How many commands there are."),
            ("DOCS [<command-name> ...]", "What commands are for."),
            ("INFO [<command-name> ...]", "What is known of some commands."),
        ],
    );
    Ok(())
}

/// Returns what an error about an unknown command ends with: the command that was probably meant,
/// and the page about the supported ones.
pub(super) fn remedy(name: &[u8]) -> String {
    let name = &name[..name.len().min(table::NAME_BYTES_MAX)];
    let typed = String::from_utf8_lossy(name).to_ascii_lowercase();
    // Similar names with another first letter are usually other commands of Redis.
    let meant = nearest(&typed, &table::alike(name));
    let meant = meant.map_or(String::new(), |meant| format!("did you mean '{}'? ", meant.to_uppercase()));
    format!("({meant}commands: {})", page(env!("CARGO_PKG_REPOSITORY"), env!("CARGO_PKG_VERSION")))
}

/// Returns the place of the page about Redis: on the web, if the package names its repository.
fn page(repository: &str, version: &str) -> String {
    match repository {
        "" => format!("docs/src/redis.md of Sherwood {version}"),
        repository => format!("{repository}/blob/v{version}/docs/src/redis.md"),
    }
}

/// Finds a command by its name, or a subcommand by a name of the form `command|subcommand`.
fn named(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|&byte| byte == b'|') {
        None => table::find(name),
        Some(bar) => table::subcommand(table::find(&name[..bar])?.subcommands, &name[bar + 1..]),
    }
}

/// Appends the ten fields with which Redis 7's `COMMAND` describes a command. Hints and key
/// specifications are empty: the earlier fields give the positions of the keys.
fn description(out: &mut Output, version: Version, command: &Command) {
    reply::array(out, 10);
    reply::bulk(out, command.name.as_bytes());
    reply::integer(out, command.arity);
    reply::set(out, version, command.flags.len());
    command.flags.iter().for_each(|flag| reply::simple(out, flag));
    command.keys.iter().for_each(|&at| reply::integer(out, at));
    let categories = command.categories();
    reply::set(out, version, categories.len());
    categories.iter().for_each(|category| reply::simple(out, category));
    reply::set(out, version, 0);
    reply::set(out, version, 0);
    match command.subcommands {
        [] => reply::set(out, version, 0),
        subcommands => reply::array(out, subcommands.len()),
    }
    command.subcommands.iter().for_each(|subcommand| description(out, version, subcommand));
}

fn documentation(out: &mut Output, version: Version, command: &Command) {
    let Command { summary, since, group, subcommands, .. } = *command;
    reply::map(out, version, 3 + usize::from(!subcommands.is_empty()));
    for (name, value) in [("summary", summary), ("since", since), ("group", group)] {
        reply::bulk(out, name.as_bytes());
        reply::bulk(out, value.as_bytes());
    }
    if !subcommands.is_empty() {
        reply::bulk(out, b"subcommands");
        reply::map(out, version, subcommands.len());
        for subcommand in subcommands {
            reply::bulk(out, subcommand.name.as_bytes());
            documentation(out, version, subcommand);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_about_an_unknown_command_names_the_nearest_one_and_the_page_of_this_version() {
        assert!(remedy(b"GTE").starts_with("(did you mean 'GET'? commands: "), "{}", remedy(b"GTE"));
        for name in [&b"LPUSH"[..], b"", b"\xff", b"a name longer than sixteen"] {
            assert!(remedy(name).starts_with("(commands: "), "{}", remedy(name));
        }
        assert_eq!(page("", "1.2.3"), "docs/src/redis.md of Sherwood 1.2.3");
        assert_eq!(page("https://host/a/b", "1.2.3"), "https://host/a/b/blob/v1.2.3/docs/src/redis.md");
    }
}
