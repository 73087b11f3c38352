//! The Redis command `COMMAND`: descriptions of the supported commands.

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
