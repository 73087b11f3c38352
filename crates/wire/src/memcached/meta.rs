//! memcached's meta commands: one verb each for reading, storing, removing and counting, and flags
//! for everything else.
//!
//! A flag is one letter, with a token after it for some (`T30`). Flags that request a value are
//! answered in the order they were sent. Hence a command keeps its flags as they were sent, checked
//! once: [`MetaFlags`] iterates over them in order, and [`MetaFlags::options`] collects those that
//! change the operation.
//!
//! Texts and corner cases are those of memcached 1.6.45. Differences: flags `U` and `d`, which
//! memcached refuses as unknown, are about deadlines; base64 is checked strictly
//! (no other characters, nothing after the padding), the value of an `ms` with a flag that is
//! neither letter nor digit is not read as a command, and an opaque token that is too long is
//! refused before the command is executed.

use std::time::Duration;

use super::line::{flags as flags_of, signed, split_word, unsigned};
use super::{Exptime, KEY_BYTES_MAX, base64};

/// Most words of a meta command, including its name, key and length.
const WORDS_MAX: usize = 20;
/// Longest opaque token (flag `O`) in bytes, the `O` included.
const OPAQUE_BYTES_MAX: usize = 32;
/// Largest deadline (flag `U`) in milliseconds: 24 hours.
const DEADLINE_MS_MAX: u64 = 24 * 3600 * 1000;

/// A meta command other than `mn`, borrowing from the buffer it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The operation of the command.
    pub verb: MetaVerb<'a>,
    /// The key of the command.
    pub key: MetaKey<'a>,
    /// The flags of the command; `me` has none.
    pub flags: MetaFlags<'a>,
}

impl<'a> Meta<'a> {
    /// Restores an `mg` from copies of [`MetaKey::text`] and [`MetaFlags::text`], so that it can be
    /// set aside and continued later.
    ///
    /// # Errors
    /// When they are not those of an `mg`.
    ///
    /// ```
    /// use sherwood_wire::memcached::{Meta, MetaFlag, MetaRefusal};
    /// let meta = Meta::get(b"a", b"v k")?;
    /// assert_eq!((meta.key.text(), meta.flags.text()), (&b"a"[..], &b"v k"[..]));
    /// assert!(meta.flags.eq([MetaFlag::Value, MetaFlag::ReturnKey]));
    /// assert_eq!(Meta::get(b"a", b"v v"), Err(MetaRefusal::DuplicateFlag));
    /// # Ok::<(), MetaRefusal>(())
    /// ```
    pub fn get(key: &'a [u8], flags: &'a [u8]) -> Result<Self, MetaRefusal> {
        Name::Get.meta(key, flags)
    }

    /// Sets the value of an `ms`, which was parsed without it.
    pub(super) fn with_value(self, value: &'a [u8]) -> Self {
        let verb = match self.verb {
            MetaVerb::Set { mode, .. } => MetaVerb::Set { mode, value },
            other => other,
        };
        Self { verb, ..self }
    }
}

/// The operation of a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb<'a> {
    /// `mg`: read an item.
    Get,
    /// `ms`: store an item.
    Set {
        /// The condition under which the value is stored.
        mode: SetMode,
        /// The value, 0 bytes to the limit.
        value: &'a [u8],
    },
    /// An `ms` whose value is over the limit. It is answered with [`super::reply::TOO_LARGE`], and
    /// the value stored before is to be removed. The parser skips the value as it arrives.
    TooLarge,
    /// `md`: remove an item or mark it stale.
    Delete,
    /// `ma`: increment or decrement a number.
    Arithmetic(ArithmeticMode),
    /// `me`: return an item's properties.
    Debug,
}

/// The mode of an `ms`, given by its flag `M`: the condition of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetMode {
    /// `S`: store unconditionally.
    #[default]
    Set,
    /// `E`: store if the key does not exist.
    Add,
    /// `R`: store if the key exists.
    Replace,
    /// `A`: append to the existing value.
    Append,
    /// `P`: prepend to the existing value.
    Prepend,
}

/// The mode of an `ma`, given by its flag `M`: the direction of the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArithmeticMode {
    /// `I` or `+`: increment.
    #[default]
    Increase,
    /// `D` or `-`: decrement.
    Decrease,
}

/// The key of a meta command: 1 to 250 bytes as sent, in base64 with the flag `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaKey<'a> {
    sent: &'a [u8],
    base64: bool,
}

impl<'a> MetaKey<'a> {
    /// The key as it was sent.
    #[must_use]
    pub fn text(self) -> &'a [u8] {
        self.sent
    }

    /// True if the key was sent in base64, so that answers have it in base64, too.
    #[must_use]
    pub fn is_base64(self) -> bool {
        self.base64
    }

    /// The bytes of the key: decoded into `room` if it was sent in base64, else as sent.
    #[must_use]
    pub fn bytes<'b>(self, room: &'b mut [u8; KEY_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.base64 { base64::decode(self.sent, room).unwrap_or_default() } else { self.sent }
    }
}

/// A flag of a meta command, with the token (argument) that follows its letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaFlag<'a> {
    /// `b`: the key is in base64.
    Base64,
    /// `c`: return the unique number (CAS).
    ReturnCas,
    /// `C`: execute the command only if the item has this CAS; for `mg`, omit the value if it does.
    Cas(u64),
    /// `d`, of our own: the value is stored after a miss for which its reader has waited past its
    /// deadline.
    DeadlineMissed,
    /// `D`: the amount by which to change the number.
    Delta(u64),
    /// `E`: the CAS that the stored item gets.
    NewCas(u64),
    /// `f`: return the client's flags.
    ReturnFlags,
    /// `F`: the client's flags of the stored item.
    ClientFlags(u32),
    /// `h`: return 1 if the item was read before, else 0.
    ReturnHit,
    /// `I`: mark the item stale (`md`), or store as stale over a newer item (`ms`).
    Invalidate,
    /// `J`: the initial number of an item that `ma` creates.
    Initial(u64),
    /// `k`: return the key.
    ReturnKey,
    /// `l`: return the seconds since the item's last use.
    ReturnIdle,
    /// `M`: the mode, which is parsed into the verb.
    Mode,
    /// `N`: create an item with this time to live if there is none.
    Vivify(Exptime),
    /// `O`: return this opaque token, which includes the `O`; at most 32 bytes.
    Opaque(&'a [u8]),
    /// `q`: suppress the expected reply (quiet mode).
    Quiet,
    /// `R`: tell one client to recache the item (to fetch its value anew) when its time to live is
    /// less than this.
    Recache(Exptime),
    /// `s`: return the size of the value.
    ReturnSize,
    /// `t`: return the item's remaining seconds to live.
    ReturnTtl,
    /// `T`: the item's new time to live.
    Ttl(Exptime),
    /// `U`, of our own: the time by which the client wants the value, from now on; of an `ms`, that
    /// of the reads of the item.
    Within(Duration),
    /// `u`: do not count the command as a use of the item.
    KeepRecency,
    /// `v`: return the value.
    Value,
    /// `x`: remove the value and keep the item.
    RemoveValue,
    /// `L` or `P`: for a proxy, ignored here.
    Hint,
}

/// The flags of a meta command in the order they were sent, each at most once: an iterator over
/// slices of the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    words: &'a [u8],
    /// The flags present: one bit for each letter.
    seen: u64,
}

/// The flags of a meta command that change the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaOptions {
    /// `C`: the CAS that the item has to have.
    pub cas: Option<u64>,
    /// `E`: the CAS that the stored item gets.
    pub new_cas: Option<u64>,
    /// `T`: the item's new time to live.
    pub ttl: Option<Exptime>,
    /// `N`: the time to live of an item that is created if there is none.
    pub vivify: Option<Exptime>,
    /// `R`: the time to live below which one client is told to recache the item.
    pub recache: Option<Exptime>,
    /// `U`: the time by which the client wants the value, above 0 and at most 24 hours.
    pub within: Option<Duration>,
    /// `F`: the client's flags of the stored item; 0 by default.
    pub client_flags: u32,
    /// `D`: the amount by which to change the number; 1 by default.
    pub delta: u64,
    /// `J`: the initial number of a new item; 0 by default.
    pub initial: u64,
}

impl<'a> MetaFlags<'a> {
    /// The flags that the iterator has not returned yet, as they were sent.
    #[must_use]
    pub fn text(self) -> &'a [u8] {
        self.words
    }

    /// True if the flag `letter` was sent.
    #[must_use]
    pub fn has(self, letter: u8) -> bool {
        bit(letter).is_some_and(|bit| self.seen & bit != 0)
    }

    /// Collects the flags that change the operation.
    #[must_use]
    pub fn options(self) -> MetaOptions {
        let mut options = MetaOptions {
            cas: None,
            new_cas: None,
            ttl: None,
            vivify: None,
            recache: None,
            within: None,
            client_flags: 0,
            delta: 1,
            initial: 0,
        };
        for flag in self {
            match flag {
                MetaFlag::Cas(cas) => options.cas = Some(cas),
                MetaFlag::NewCas(cas) => options.new_cas = Some(cas),
                MetaFlag::Ttl(ttl) => options.ttl = Some(ttl),
                MetaFlag::Vivify(ttl) => options.vivify = Some(ttl),
                MetaFlag::Recache(ttl) => options.recache = Some(ttl),
                MetaFlag::Within(within) => options.within = Some(within),
                MetaFlag::ClientFlags(flags) => options.client_flags = flags,
                MetaFlag::Delta(delta) => options.delta = delta,
                MetaFlag::Initial(initial) => options.initial = initial,
                _ => {}
            }
        }
        options
    }
}

impl<'a> Iterator for MetaFlags<'a> {
    type Item = MetaFlag<'a>;

    fn next(&mut self) -> Option<MetaFlag<'a>> {
        let (word, rest) = split_word(self.words)?;
        self.words = rest;
        // The flags were checked when they were parsed.
        MetaFlag::of(word).ok()
    }
}

impl<'a> MetaFlag<'a> {
    fn of(word: &'a [u8]) -> Result<Self, MetaRefusal> {
        let (&letter, token) = word.split_first().ok_or(MetaRefusal::InvalidFlag)?;
        let number = || unsigned(token).ok_or(MetaRefusal::BadToken);
        let time = || exptime(token).ok_or(MetaRefusal::BadToken);
        Ok(match letter {
            b'b' => Self::Base64,
            b'c' => Self::ReturnCas,
            b'C' => Self::Cas(number()?),
            b'd' => Self::DeadlineMissed,
            b'D' => Self::Delta(unsigned(token).ok_or(MetaRefusal::BadDelta)?),
            b'E' => Self::NewCas(number()?),
            b'f' => Self::ReturnFlags,
            b'F' => Self::ClientFlags(flags_of(token).ok_or(MetaRefusal::BadFormat)?),
            b'h' => Self::ReturnHit,
            b'I' => Self::Invalidate,
            b'J' => Self::Initial(unsigned(token).ok_or(MetaRefusal::BadInitial)?),
            b'k' => Self::ReturnKey,
            b'l' => Self::ReturnIdle,
            b'M' => Self::Mode,
            b'N' => Self::Vivify(time()?),
            b'O' => Self::Opaque(word),
            b'q' => Self::Quiet,
            b'R' => Self::Recache(time()?),
            b's' => Self::ReturnSize,
            b't' => Self::ReturnTtl,
            b'T' => Self::Ttl(time()?),
            b'U' => Self::Within(within(token).ok_or(MetaRefusal::BadDeadline)?),
            b'u' => Self::KeepRecency,
            b'v' => Self::Value,
            b'x' => Self::RemoveValue,
            b'L' | b'P' => Self::Hint,
            _ => return Err(MetaRefusal::InvalidFlag),
        })
    }
}

/// Parses a deadline: whole milliseconds.
fn within(token: &[u8]) -> Option<Duration> {
    let ms = unsigned(token)?;
    (1..=DEADLINE_MS_MAX).contains(&ms).then(|| Duration::from_millis(ms))
}

/// Parses an expiry time of at most 32 bits.
fn exptime(token: &[u8]) -> Option<Exptime> {
    let secs: i32 = signed(token)?.try_into().ok()?;
    Some(Exptime(secs.into()))
}

/// The bit that stands for a letter in a set of letters; none if it is not a letter.
fn bit(letter: u8) -> Option<u64> {
    letter.checked_sub(b'A').filter(|&place| place < 64).map(|place| 1 << place)
}

/// The reason why a line is not a meta command, with memcached's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaRefusal {
    /// The command has no key, a key over 250 bytes or with a zero byte in it, an invalid length, a
    /// flag that is neither letter nor digit, or an `F` that is not a 32-bit number.
    BadFormat,
    /// The command has more than 20 words.
    TooManyFlags,
    /// The command has an unknown flag.
    InvalidFlag,
    /// The command has the same flag twice.
    DuplicateFlag,
    /// The token of a flag is not a number or is out of range.
    BadToken,
    /// The key is not base64, despite the flag `b`.
    BadKey,
    /// The initial number in flag `J` is not a 64-bit number.
    BadInitial,
    /// The amount in flag `D` is not a 64-bit number.
    BadDelta,
    /// The deadline in flag `U` is not a number of milliseconds of at most 24 hours.
    BadDeadline,
    /// The opaque token in flag `O` has more than 31 bytes after the letter.
    OpaqueTooLong,
    /// An `ma` has an invalid key or invalid flags, other than the mode, the opaque token and a
    /// first character that is neither letter nor digit.
    BadArithmetic,
    /// An `ms` has an unknown mode.
    BadSetMode,
    /// An `ma` has an unknown mode.
    BadArithmeticMode,
}

impl MetaRefusal {
    /// The line to answer, including its line end.
    #[must_use]
    pub const fn line(self) -> &'static [u8] {
        match self {
            Self::BadFormat => b"CLIENT_ERROR bad command line format\r\n",
            Self::TooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Self::InvalidFlag => b"CLIENT_ERROR invalid flag\r\n",
            Self::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Self::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Self::BadKey => b"CLIENT_ERROR error decoding key\r\n",
            Self::BadInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Self::BadDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Self::BadDeadline => b"CLIENT_ERROR deadline of U must be 1 to 86400000 ms\r\n",
            Self::OpaqueTooLong => b"CLIENT_ERROR opaque token too long\r\n",
            Self::BadArithmetic => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Self::BadSetMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::BadArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
        }
    }
}

/// The name of a meta command that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Get,
    Set,
    Delete,
    Arithmetic,
    Debug,
}

impl Name {
    /// Splits a line into the name of a meta command and the text after the name; none for other
    /// commands.
    pub(super) fn of(line: &[u8]) -> Option<(Self, &[u8])> {
        let (name, rest) = split_word(line)?;
        let name = match name {
            b"mg" => Self::Get,
            b"ms" => Self::Set,
            b"md" => Self::Delete,
            b"ma" => Self::Arithmetic,
            b"me" => Self::Debug,
            _ => return None,
        };
        Some((name, rest))
    }

    /// The number of words before the command's flags.
    fn words(self) -> usize {
        if self == Self::Set { 3 } else { 2 }
    }

    /// Makes the command from its `key` and the words after the key (after the length, for `ms`).
    /// The value of an `ms` is still empty.
    pub(super) fn meta<'a>(self, key: &'a [u8], words: &'a [u8]) -> Result<Meta<'a>, MetaRefusal> {
        let checked = Checked::of(words, self.words())?;
        if self == Self::Debug {
            return debug(key, words);
        }
        let meta = checked.meta(self, key, words);
        match self {
            Self::Arithmetic => meta.map_err(|refusal| match refusal {
                MetaRefusal::OpaqueTooLong | MetaRefusal::BadArithmeticMode => refusal,
                _ => MetaRefusal::BadArithmetic,
            }),
            _ => meta,
        }
    }
}

/// The words after the key of a meta command, each of which starts like a flag.
struct Checked {
    too_many: bool,
}

impl Checked {
    fn of(words: &[u8], before: usize) -> Result<Self, MetaRefusal> {
        let (mut rest, mut count) = (words, before);
        while let Some((word, after)) = split_word(rest) {
            if !word[0].is_ascii_digit() && !(b'A'..=b'z').contains(&word[0]) {
                return Err(MetaRefusal::BadFormat);
            }
            rest = after;
            count += 1;
        }
        Ok(Self { too_many: count > WORDS_MAX })
    }

    fn meta<'a>(&self, name: Name, key: &'a [u8], words: &'a [u8]) -> Result<Meta<'a>, MetaRefusal> {
        if key.len() > KEY_BYTES_MAX {
            return Err(MetaRefusal::BadFormat);
        }
        if self.too_many {
            return Err(MetaRefusal::TooManyFlags);
        }
        let Flags { flags, mode, opaque_bytes } = Flags::of(words, key)?;
        let verb = match name {
            Name::Get => MetaVerb::Get,
            Name::Set => MetaVerb::Set { mode: set_mode(mode)?, value: b"" },
            Name::Delete => MetaVerb::Delete,
            Name::Arithmetic => MetaVerb::Arithmetic(arithmetic_mode(mode)?),
            Name::Debug => MetaVerb::Debug,
        };
        if opaque_bytes > OPAQUE_BYTES_MAX {
            return Err(MetaRefusal::OpaqueTooLong);
        }
        Ok(Meta { verb, key: MetaKey { sent: key, base64: flags.has(b'b') }, flags })
    }
}

/// The valid flags of a meta command, with the mode and the length of the opaque token.
struct Flags<'a> {
    flags: MetaFlags<'a>,
    /// The text after the letter of flag `M`, if that flag is present.
    mode: Option<&'a [u8]>,
    opaque_bytes: usize,
}

impl<'a> Flags<'a> {
    /// Parses the flags of a meta command. Like memcached, it reports an unknown or repeated flag
    /// at once, and of several invalid tokens the last one.
    fn of(words: &'a [u8], key: &[u8]) -> Result<Self, MetaRefusal> {
        let mut flags = Self { flags: MetaFlags { words, seen: 0 }, mode: None, opaque_bytes: 0 };
        let mut wrong = None;
        let mut rest = words;
        while let Some((word, after)) = split_word(rest) {
            rest = after;
            let bit = bit(word[0]).ok_or(MetaRefusal::InvalidFlag)?;
            if flags.flags.seen & bit != 0 {
                return Err(MetaRefusal::DuplicateFlag);
            }
            flags.flags.seen |= bit;
            match MetaFlag::of(word) {
                Ok(MetaFlag::Base64) if !base64::is_valid(key) => {
                    wrong = Some(MetaRefusal::BadKey);
                }
                Ok(MetaFlag::Mode) => flags.mode = Some(&word[1..]),
                Ok(MetaFlag::Opaque(opaque)) => flags.opaque_bytes = opaque.len(),
                Ok(_) => {}
                Err(MetaRefusal::InvalidFlag) => return Err(MetaRefusal::InvalidFlag),
                // memcached sets no error of its own for an invalid `F`, so an earlier error is
                // kept.
                Err(MetaRefusal::BadFormat) => wrong = wrong.or(Some(MetaRefusal::BadFormat)),
                Err(refusal) => wrong = Some(refusal),
            }
        }
        wrong.map_or(Ok(flags), Err)
    }
}

/// Parses the mode of an `ms`; only its first byte counts.
fn set_mode(mode: Option<&[u8]>) -> Result<SetMode, MetaRefusal> {
    let Some(mode) = mode else { return Ok(SetMode::default()) };
    match mode.first() {
        Some(b'S') => Ok(SetMode::Set),
        Some(b'E') => Ok(SetMode::Add),
        Some(b'R') => Ok(SetMode::Replace),
        Some(b'A') => Ok(SetMode::Append),
        Some(b'P') => Ok(SetMode::Prepend),
        _ => Err(MetaRefusal::BadSetMode),
    }
}

fn arithmetic_mode(mode: Option<&[u8]>) -> Result<ArithmeticMode, MetaRefusal> {
    let Some(mode) = mode else { return Ok(ArithmeticMode::default()) };
    match mode.first() {
        Some(b'I' | b'+') => Ok(ArithmeticMode::Increase),
        Some(b'D' | b'-') => Ok(ArithmeticMode::Decrease),
        _ => Err(MetaRefusal::BadArithmeticMode),
    }
}

/// Makes the command `me`, whose only flag is `b`.
fn debug<'a>(key: &'a [u8], words: &'a [u8]) -> Result<Meta<'a>, MetaRefusal> {
    let base64 = split_word(words).is_some_and(|(first, _)| first == b"b");
    if key.len() > KEY_BYTES_MAX || base64 && !base64::is_valid(key) {
        return Err(MetaRefusal::BadFormat);
    }
    let flags = MetaFlags::default();
    Ok(Meta { verb: MetaVerb::Debug, key: MetaKey { sent: key, base64 }, flags })
}
