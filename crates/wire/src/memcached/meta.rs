//! Meta commands: one verb for reading, one for storing, one for removing and one for counting, and
//! flags for all else.
//!
//! What the older commands say by their names and places these say by flags of one letter, some
//! with a token after it (`T30`), so a client asks for what it needs and gets nothing more. Flags
//! that ask are answered in their order. Hence a command keeps its flags as they were sent, checked
//! once: [`MetaFlags`] goes through them in order, and [`MetaFlags::options`] sums up those that
//! change what is done.
//!
//! Texts and corner cases are those of memcached 1.6.45. Differences: base 64 may hold no other
//! characters and end with nothing after its padding, a flag that is no letter or digit does not
//! make the value of an `ms` a command, and an opaque token that is too long is refused before
//! anything is done.

use super::line::{flags as flags_of, signed, split_word, unsigned};
use super::{Exptime, KEY_BYTES_MAX, base64};

/// Most words of a meta command, its name, key and length included.
const WORDS_MAX: usize = 20;
/// Longest opaque token, the `O` included.
const OPAQUE_BYTES_MAX: usize = 32;

/// A meta command but `mn`, borrowing from the buffer it was parsed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// What is to be done.
    pub verb: MetaVerb<'a>,
    /// With what.
    pub key: MetaKey<'a>,
    /// And how. None of `me`.
    pub flags: MetaFlags<'a>,
}

impl<'a> Meta<'a> {
    /// The `mg` with this key and these flags, as [`MetaKey::text`] and [`MetaFlags::text`] once
    /// gave them, so that one can be put aside and gone on with later.
    ///
    /// # Errors
    /// When they are of no `mg`.
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

    /// The same with the value of an `ms`.
    pub(super) fn with_value(self, value: &'a [u8]) -> Self {
        let verb = match self.verb {
            MetaVerb::Set { mode, .. } => MetaVerb::Set { mode, value },
            other => other,
        };
        Self { verb, ..self }
    }
}

/// What a meta command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaVerb<'a> {
    /// `mg`: read.
    Get,
    /// `ms`: store.
    Set {
        /// On which condition.
        mode: SetMode,
        /// The value, 0 bytes to the limit.
        value: &'a [u8],
    },
    /// An `ms` whose value is over the limit. It is answered with [`super::reply::TOO_LARGE`], and
    /// what was stored before is to be removed. The parser skips the value as it arrives.
    TooLarge,
    /// `md`: remove or invalidate.
    Delete,
    /// `ma`: count.
    Arithmetic(ArithmeticMode),
    /// `me`: tell about an item.
    Debug,
}

/// `M` of an `ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetMode {
    /// `S`: whatever was there.
    #[default]
    Set,
    /// `E`: if nothing is there.
    Add,
    /// `R`: if something is there.
    Replace,
    /// `A`: after the value that is there.
    Append,
    /// `P`: before the value that is there.
    Prepend,
}

/// `M` of an `ma`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArithmeticMode {
    /// `I` or `+`.
    #[default]
    Increase,
    /// `D` or `-`.
    Decrease,
}

/// The key of a meta command: 1 to 250 bytes as sent, perhaps in base 64.
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

    /// Whether it came in base 64, and is to be answered so.
    #[must_use]
    pub fn is_base64(self) -> bool {
        self.base64
    }

    /// The key itself: decoded into `room` if it came in base 64, else as sent.
    #[must_use]
    pub fn bytes<'b>(self, room: &'b mut [u8; KEY_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.base64 { base64::decode(self.sent, room) } else { self.sent }
    }
}

/// One flag of a meta command, with its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaFlag<'a> {
    /// `b`: the key is in base 64.
    Base64,
    /// `c`: return the CAS.
    ReturnCas,
    /// `C`: do it only if this is the item's CAS; for `mg`, send no value then.
    Cas(u64),
    /// `D`: count by this.
    Delta(u64),
    /// `E`: the CAS of what is stored.
    NewCas(u64),
    /// `f`: return the client's flags.
    ReturnFlags,
    /// `F`: the client's flags.
    ClientFlags(u32),
    /// `h`: return whether it was read before.
    ReturnHit,
    /// `I`: mark as stale (`md`), or store as stale over what is newer (`ms`).
    Invalidate,
    /// `J`: count from this where nothing was.
    Initial(u64),
    /// `k`: return the key.
    ReturnKey,
    /// `l`: return the seconds since it was last used.
    ReturnIdle,
    /// `M`: the mode, which the verb tells.
    Mode,
    /// `N`: make an item that lives so long where there is none.
    Vivify(Exptime),
    /// `O`: return this, which includes the `O`; at most 32 bytes.
    Opaque(&'a [u8]),
    /// `q`: say nothing about what is as usual.
    Quiet,
    /// `R`: give the right to recache to one client when less than this is left to live.
    Recache(Exptime),
    /// `s`: return the size of the value.
    ReturnSize,
    /// `t`: return the seconds left to live.
    ReturnTtl,
    /// `T`: how long it is to live.
    Ttl(Exptime),
    /// `u`: do not count as a use.
    KeepRecency,
    /// `v`: return the value.
    Value,
    /// `x`: remove the value and leave the item.
    RemoveValue,
    /// `L` or `P`: for a proxy on the way, of no meaning here.
    Hint,
}

/// The flags of a meta command in the order they were sent, none twice: an iterator over slices of
/// the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaFlags<'a> {
    words: &'a [u8],
    /// Which letters there are.
    seen: u64,
}

/// What the flags of a meta command change about what is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaOptions {
    /// `C`
    pub cas: Option<u64>,
    /// `E`
    pub new_cas: Option<u64>,
    /// `T`
    pub ttl: Option<Exptime>,
    /// `N`
    pub vivify: Option<Exptime>,
    /// `R`
    pub recache: Option<Exptime>,
    /// `F`, 0 without
    pub client_flags: u32,
    /// `D`, 1 without
    pub delta: u64,
    /// `J`, 0 without
    pub initial: u64,
}

impl<'a> MetaFlags<'a> {
    /// Those that have not been taken yet, as they were sent.
    #[must_use]
    pub fn text(self) -> &'a [u8] {
        self.words
    }

    /// Whether the flag `letter` is among them.
    #[must_use]
    pub fn has(self, letter: u8) -> bool {
        bit(letter).is_some_and(|bit| self.seen & bit != 0)
    }

    /// What they change.
    #[must_use]
    pub fn options(self) -> MetaOptions {
        let mut options = MetaOptions {
            cas: None,
            new_cas: None,
            ttl: None,
            vivify: None,
            recache: None,
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
        // They were checked when they were parsed.
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
            b'u' => Self::KeepRecency,
            b'v' => Self::Value,
            b'x' => Self::RemoveValue,
            b'L' | b'P' => Self::Hint,
            _ => return Err(MetaRefusal::InvalidFlag),
        })
    }
}

/// An expiry time of at most 32 bits.
fn exptime(token: &[u8]) -> Option<Exptime> {
    let secs: i32 = signed(token)?.try_into().ok()?;
    Some(Exptime(secs.into()))
}

/// The place of a letter in a set of letters.
fn bit(letter: u8) -> Option<u64> {
    letter.checked_sub(b'A').filter(|&place| place < 64).map(|place| 1 << place)
}

/// Why a line is no meta command, with the text memcached answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaRefusal {
    /// No key, a key over 250 bytes or with a zero byte in it, a length that is none, a flag that
    /// is neither letter nor digit, or an `F` that is not a number of 32 bits.
    BadFormat,
    /// More than 20 words.
    TooManyFlags,
    /// A flag there is not.
    InvalidFlag,
    /// A flag twice.
    DuplicateFlag,
    /// A token that is no number or does not fit.
    BadToken,
    /// A key that should be base 64 and is not.
    BadKey,
    /// A `J` that is not a number of 64 bits.
    BadInitial,
    /// A `D` that is not a number of 64 bits.
    BadDelta,
    /// An `O` with more than 31 bytes after it.
    OpaqueTooLong,
    /// Anything wrong with the key or flags of an `ma` but their first letters, mode and opaque
    /// token.
    BadArithmetic,
    /// An `ms` in a mode there is not.
    BadSetMode,
    /// An `ma` in a mode there is not.
    BadArithmeticMode,
}

impl MetaRefusal {
    /// The line to answer, with its line end.
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
    /// The command a line starts with, and what follows its name.
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

    /// Words of the command before its flags.
    fn words(self) -> usize {
        if self == Self::Set { 3 } else { 2 }
    }

    /// The command with the key `key` and what follows it (after the length, for `ms`). An `ms` has
    /// an empty value yet.
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

/// Words that could be flags.
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

/// Flags that are right, and of two what the others do not tell.
struct Flags<'a> {
    flags: MetaFlags<'a>,
    /// What follows the `M`, if there is one.
    mode: Option<&'a [u8]>,
    opaque_bytes: usize,
}

impl<'a> Flags<'a> {
    /// As memcached does, tells of the last token that is wrong, but of the first flag that is none
    /// or there already.
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
                Ok(MetaFlag::Base64) if base64::decoded_bytes(key).is_none() => {
                    wrong = Some(MetaRefusal::BadKey);
                }
                Ok(MetaFlag::Mode) => flags.mode = Some(&word[1..]),
                Ok(MetaFlag::Opaque(opaque)) => flags.opaque_bytes = opaque.len(),
                Ok(_) => {}
                Err(MetaRefusal::InvalidFlag) => return Err(MetaRefusal::InvalidFlag),
                // Of a wrong `F` alone memcached tells nothing, and what it would have told before
                // stays.
                Err(MetaRefusal::BadFormat) => wrong = wrong.or(Some(MetaRefusal::BadFormat)),
                Err(refusal) => wrong = Some(refusal),
            }
        }
        wrong.map_or(Ok(flags), Err)
    }
}

/// Only the first byte of a mode counts.
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

/// `me`, whose only flag is `b`.
fn debug<'a>(key: &'a [u8], words: &'a [u8]) -> Result<Meta<'a>, MetaRefusal> {
    let base64 = split_word(words).is_some_and(|(first, _)| first == b"b");
    if key.len() > KEY_BYTES_MAX || base64 && base64::decoded_bytes(key).is_none() {
        return Err(MetaRefusal::BadFormat);
    }
    let flags = MetaFlags::default();
    Ok(Meta { verb: MetaVerb::Debug, key: MetaKey { sent: key, base64 }, flags })
}
