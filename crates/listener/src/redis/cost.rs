//! The work of a command, known before it is done.

use sherwood_wire::resp::Args;

use super::session::{CommandResult, Session};
use super::table::Command;
use crate::output::Output;
use crate::work::{ARGUMENT, CHANGE, KEY};

/// Returns the work of a command that its arguments alone tell.
fn of_arguments(command: &Command, args: Args<'_>) -> u64 {
    let key = if command.flags.contains(&"write") { CHANGE } else { KEY };
    ARGUMENT * args.len() as u64 + key * command.keys_of(args).count() as u64
}

impl Session<'_> {
    /// Counts the arguments of a command with many of them, unless it counts its keys itself, in
    /// portions.
    pub(super) fn begin_long(&self, command: &Command, args: Args<'_>, out: &mut Output) -> CommandResult {
        let in_portions = command.takes_portions() && !self.routing().writes_through();
        if !in_portions {
            out.work.begin(of_arguments(command, args))?;
        }
        Ok(())
    }
}
