//! Answers to the `HELP` subcommands of Redis commands.

use crate::output::Output;
use sherwood_wire::resp::reply;

/// Appends the answer to the `HELP` subcommand of `command`, in Redis's form.
pub(super) fn help(out: &mut Output, command: &str, subcommands: &[(&str, &str)]) {
    reply::array(out, 1 + 2 * subcommands.len() + 2);
    reply::simple(out, &format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (name, what) in subcommands.iter().chain(&[("HELP", "Print this help.")]) {
        reply::simple(out, name);
        reply::simple(out, &format!("    {what}"));
    }
}
