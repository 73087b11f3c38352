//! The table of Redis commands, used to find, check and describe them.

mod commands;
mod rows;

use crate::output::Output;
use sherwood_model::nearest;
use sherwood_wire::resp::Args;

use super::calls::COMMANDS_MAX;
use super::failure::Failure;
use super::session::{CommandResult, Session};

pub(super) use self::commands::COMMANDS;

/// A function that executes a command and appends its answer.
type Run = fn(&mut Session<'_>, Args<'_>, &mut Output) -> CommandResult;

/// A row of the command table: a command, or a subcommand of one.
pub(super) struct Command {
    /// The command's name in lower case; a subcommand's is `command|subcommand`.
    pub(super) name: &'static str,
    /// Number of the command's arguments, names included; a negative number is a minimum.
    pub(super) arity: i64,
    pub(super) flags: &'static [&'static str],
    /// Positions of keys among the arguments: index of the first, index of the last (negative from
    /// the end), and step between keys; zeros if there are none.
    pub(super) keys: [i64; 3],
    pub(super) group: &'static str,
    /// Redis version that introduced the command.
    pub(super) since: &'static str,
    pub(super) summary: &'static str,
    pub(super) run: Run,
    pub(super) subcommands: &'static [Command],
}

impl Command {
    /// Adds subcommands to a row of the table.
    const fn with(self, subcommands: &'static [Self]) -> Self {
        Self { subcommands, ..self }
    }

    /// Returns the command or subcommand of a request, if there is one with this name.
    pub(super) fn of(args: Args<'_>) -> Option<&'static Self> {
        let command = find(args.get(0)?)?;
        match (command.subcommands, args.get(1)) {
            ([], _) | (_, None) => Some(command),
            (subcommands, Some(sub)) => subcommand(subcommands, sub),
        }
    }

    /// Returns the keys among the arguments of the command.
    pub(super) fn keys_of<'a>(&self, args: Args<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.positions_of(args).filter_map(move |at| args.get(at))
    }

    /// Returns the positions of the keys among the arguments of the command, in ascending order.
    pub(super) fn positions_of(&self, args: Args<'_>) -> impl Iterator<Item = usize> + use<> {
        let [first, last, step] = self.keys;
        let last = if last < 0 { args.len() as i64 + last } else { last };
        let last = if first == 0 { -1 } else { last };
        (first..=last).step_by(step.max(1) as usize).map(|at| at as usize)
    }

    /// Returns true if the command removes all keys.
    pub(super) fn flushes(&self) -> bool {
        matches!(self.name, "flushall" | "flushdb")
    }

    /// Returns true if the command, given many keys, is executed in portions over several
    /// scheduling turns.
    pub(super) fn takes_portions(&self) -> bool {
        matches!(self.name, "mget" | "mset" | "del" | "unlink" | "exists" | "touch")
    }

    /// Returns true if the command's misses are fetched by a read-through listener.
    pub(super) fn reads_through(&self) -> bool {
        matches!(self.name, "get" | "mget")
    }

    /// Returns true if the command is executed at once although a transaction was begun.
    pub(super) fn ends_or_begins_transactions(&self) -> bool {
        matches!(self.name, "multi" | "exec" | "discard" | "watch" | "quit" | "reset")
    }

    /// Returns the command's name; for a subcommand its name without that of its command.
    fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// Returns the Redis ACL categories of the command, derived from its flags and group.
    pub(super) fn categories(&self) -> Vec<&'static str> {
        let has = |flag| self.flags.contains(&flag);
        let group = match self.group {
            "generic" => "@keyspace",
            "connection" => "@connection",
            "string" => "@string",
            "bitmap" => "@bitmap",
            "transactions" => "@transaction",
            _ => "@server",
        };
        let all = [
            (has("write"), "@write"),
            (has("readonly"), "@read"),
            (has("admin"), "@admin"),
            (has("admin"), "@dangerous"),
            (has("fast"), "@fast"),
            (!has("fast"), "@slow"),
            (group != "@server", group),
        ];
        all.into_iter().filter_map(|(applies, category)| applies.then_some(category)).collect()
    }
}

/// Finds a command in the table by its name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Command> {
    position(name).map(|at| &COMMANDS[at])
}

/// Returns the command at a position in the table.
pub(super) fn at(position: usize) -> &'static Command {
    &COMMANDS[position]
}

/// Returns the position in the table of the command with this name, in any case. It is compared
/// only with the few names that have the same initial letter.
pub(super) fn position(name: &[u8]) -> Option<usize> {
    let letter = lower(*name.first()?).wrapping_sub(b'a');
    let (start, end) = *LETTERS.get(usize::from(letter))?;
    let number = packed(name)?;
    let at = PACKED[start..end].iter().position(|packed| *packed == number)?;
    Some(start + at)
}

/// Returns what an error about an unknown command ends with: the command that was probably meant,
/// and the page about the supported ones.
pub(super) fn remedy(name: &[u8]) -> String {
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    let typed = String::from_utf8_lossy(name).to_ascii_lowercase();
    // Similar names with another first letter are usually other commands of Redis.
    let meant = nearest(&typed, &alike(name));
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

/// Returns the names of the commands that begin with the same letter as `name`.
fn alike(name: &[u8]) -> Vec<&'static str> {
    let letter = name.first().map_or(0, |&byte| usize::from(lower(byte).wrapping_sub(b'a')));
    let (start, end) = LETTERS.get(letter).copied().unwrap_or_default();
    COMMANDS[start..end].iter().map(|command| command.name).collect()
}

/// Finds a subcommand by its name, in any case.
pub(super) fn subcommand(subcommands: &'static [Command], name: &[u8]) -> Option<&'static Command> {
    subcommands.iter().find(|command| name.eq_ignore_ascii_case(command.own_name().as_bytes()))
}

/// The function of a command that needs a subcommand and was given none, which is refused.
fn container(_: &mut Session<'_>, args: Args<'_>, _: &mut Output) -> CommandResult {
    let name = args.get(0).and_then(find).map_or("", |command| command.name);
    Err(Failure::arity(name))
}

const _: () = assert!(COMMANDS.len() <= COMMANDS_MAX, "each command has a count of its calls");

/// Maximum length of a command's name, in bytes.
const NAME_BYTES_MAX: usize = 16;

/// Names of the commands packed into numbers, in ascending order.
static PACKED: [u128; COMMANDS.len()] = {
    let mut all = [0; COMMANDS.len()];
    let mut at = 0;
    while at < all.len() {
        match packed(COMMANDS[at].name.as_bytes()) {
            Some(number) => all[at] = number,
            None => panic!("names are short"),
        }
        assert!(at == 0 || all[at - 1] < all[at], "commands are in the order of their names");
        let mut letters = COMMANDS[at].name.as_bytes();
        while let [letter, rest @ ..] = letters {
            assert!(letter.is_ascii_lowercase(), "names are of letters");
            letters = rest;
        }
        at += 1;
    }
    all
};

/// For each letter, the range of positions of the commands whose names begin with it: the first,
/// and the one after the last.
static LETTERS: [(usize, usize); 26] = {
    let mut all = [(0, 0); 26];
    let mut at = 0;
    while at < COMMANDS.len() {
        let letter = &mut all[(COMMANDS[at].name.as_bytes()[0] - b'a') as usize];
        *letter = (if letter.1 == 0 { at } else { letter.0 }, at + 1);
        at += 1;
    }
    all
};

/// Returns a letter in lower case; any other byte is mapped to a byte that is not a letter.
const fn lower(byte: u8) -> u8 {
    byte | b' '
}

/// Packs a command's name in lower case into a number; numbers are ordered like names. None for
/// text that cannot be a name.
const fn packed(name: &[u8]) -> Option<u128> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let (mut number, mut at) = (0, 0);
    while at < name.len() {
        number = number << 8 | lower(name[at]) as u128;
        at += 1;
    }
    Some(number << (8 * (NAME_BYTES_MAX - name.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_redis_command_is_found_by_its_name_in_any_case() {
        for command in &COMMANDS {
            for name in [command.name.to_owned(), command.name.to_uppercase()] {
                assert_eq!(find(name.as_bytes()).map(|found| found.name), Some(command.name));
            }
            for sub in command.subcommands {
                let found = subcommand(command.subcommands, sub.own_name().to_uppercase().as_bytes());
                assert_eq!(found.map(|found| found.name), Some(sub.name));
            }
        }
        for name in ["", "ge", "gett", "get\0", "a name longer than sixteen"] {
            assert!(find(name.as_bytes()).is_none(), "{name:?}");
        }
    }

    #[test]
    fn acl_categories_of_a_command_follow_from_its_flags_and_group() {
        let get = find(b"get").map(Command::categories);
        assert_eq!(get, Some(vec!["@read", "@fast", "@string"]));
    }

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
