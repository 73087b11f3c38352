//! Simulated clients of a listener: their sending, their reading, and their end.

use std::time::Duration;

use crate::draw::Draw;
use crate::script::{Expected, Script};

/// The end of a simulated client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The client closes after the last answer.
    Leaves,
    /// The client ends its sending side after the last command, and reads to the end.
    HalfCloses,
    /// The client closes after it sent this many bytes.
    Closes(usize),
    /// The client resets the connection some time after it sent this many bytes.
    Resets(usize),
    /// The client sends all its commands and never reads.
    NeverReads,
    /// The client sends nothing after this many bytes, and stays connected.
    IsSilent(usize),
}

/// A simulated client of the listener.
pub(crate) struct Client {
    pub(crate) script: Script,
    pub(crate) fate: Fate,
    /// The number of the client's connection.
    pub(crate) link: usize,
    /// Number of bytes of the script that the client has sent.
    pub(crate) sent: usize,
    /// All bytes that the client has received.
    pub(crate) received: Vec<u8>,
    /// Number of expected bytes that the client has received.
    pub(crate) matched: usize,
    /// Most commands that the client sends before the first of them is answered.
    depth: usize,
    sends_max: usize,
    reads_max: usize,
    delay_micros_max: usize,
    pub(crate) writes_scheduled: bool,
    pub(crate) reads_scheduled: bool,
    /// True if the client received the error for connections over the limit.
    pub(crate) turned_away: bool,
    pub(crate) done: bool,
}

impl Client {
    pub(crate) fn draw(draw: &mut Draw, script: Script, link: usize) -> Self {
        let bytes = draw.below(script.bytes.len() + 1);
        let fate = match draw.below(12) {
            0..=3 => Fate::Leaves,
            4 | 5 => Fate::HalfCloses,
            6 | 7 => Fate::Closes(bytes),
            8 | 9 => Fate::Resets(bytes),
            10 => Fate::NeverReads,
            _ => Fate::IsSilent(bytes),
        };
        Self {
            script,
            fate,
            link,
            sent: 0,
            received: Vec::new(),
            matched: 0,
            depth: draw.one_of(&[1, 2, 16, usize::MAX, usize::MAX]),
            sends_max: draw.one_of(&[5, 300, 20_000, 1_000_000]),
            reads_max: draw.one_of(&[50, 1000, 1_000_000]),
            delay_micros_max: draw.one_of(&[10, 100, 500]),
            writes_scheduled: false,
            reads_scheduled: false,
            turned_away: false,
            done: false,
        }
    }

    pub(crate) fn delay(&self, draw: &mut Draw) -> Duration {
        Duration::from_micros(draw.up_to(self.delay_micros_max) as u64)
    }

    /// Returns true if the client ever reads.
    pub(crate) fn reads(&self) -> bool {
        self.fate != Fate::NeverReads
    }

    /// Draws the number of bytes that the client reads at once.
    pub(crate) fn read_size(&self, draw: &mut Draw) -> usize {
        draw.up_to(self.reads_max)
    }

    /// Returns the number of bytes of the script that the client ever sends.
    fn sends_all(&self) -> usize {
        match self.fate {
            Fate::Closes(bytes) | Fate::Resets(bytes) | Fate::IsSilent(bytes) => bytes,
            _ => self.script.bytes.len(),
        }
    }

    /// Returns true if the client has sent all the bytes that it ever sends.
    pub(crate) fn has_sent_all(&self) -> bool {
        self.sent == self.sends_all()
    }

    /// Draws the next bytes that the client sends, at most `room`.
    pub(crate) fn next_bytes(&mut self, draw: &mut Draw, room: usize) -> Vec<u8> {
        let ends = &self.script.ends;
        let answered = ends.partition_point(|&(_, answer)| answer <= self.matched);
        let allowed = match ends.get(answered.saturating_add(self.depth) - 1) {
            // A client that does not read does not wait for answers.
            Some(&(command, _)) if self.reads() => command,
            _ => self.script.bytes.len(),
        };
        let until = allowed.min(self.sends_all()).max(self.sent);
        let bytes = (until - self.sent).min(room).min(draw.up_to(self.sends_max));
        let next = self.script.bytes[self.sent..self.sent + bytes].to_vec();
        self.sent += bytes;
        next
    }

    /// Takes received bytes and checks that they are the next ones the script expects.
    pub(crate) fn take(&mut self, bytes: &[u8], too_many: Option<&[u8]>) {
        self.received.extend_from_slice(bytes);
        if !self.turned_away && self.takes_expected(bytes) {
            return;
        }
        self.turned_away = too_many.is_some_and(|too_many| too_many.starts_with(&self.received));
        let from = self.received.len().saturating_sub(bytes.len() + 80);
        assert!(
            self.turned_away,
            "client of link {} received {:?}, which is not the answer to its commands after {:?}",
            self.link,
            String::from_utf8_lossy(bytes),
            String::from_utf8_lossy(&self.received[from..self.received.len() - bytes.len()]),
        );
    }

    fn takes_expected(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| {
            if self.script.expected.get(self.matched) == Some(&Expected::Digits) {
                if byte.is_ascii_digit() {
                    return true;
                }
                self.matched += 1;
            }
            let expected = self.script.expected.get(self.matched);
            let is_expected = expected == Some(&Expected::Byte(byte)) || expected == Some(&Expected::Any);
            self.matched += usize::from(is_expected);
            is_expected
        })
    }

    /// Returns true if the client has received every answer of its script.
    pub(crate) fn is_answered(&self) -> bool {
        self.matched == self.script.expected.len()
    }
}
