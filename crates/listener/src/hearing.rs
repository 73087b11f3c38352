//! What several clients have said, before any of them is answered.
//!
//! A short command waits for memory longer than it computes. So clients that are ready at the same
//! time are read first, as many as there is room for, and then answered one after the other, while
//! what the others ask for is on its way from memory. Nobody waits long for it: a read takes half a
//! microsecond, and a client who is alone is answered at once.

use super::ahead::prefetch;
use super::connection::INPUT_BYTES;
use super::conversation::Conversation;
use super::shared::Service;
use super::slots::Token;

/// Most clients that are read before the first is answered: each is a key to prefetch.
const CLIENTS_MAX: usize = 32;
/// What they say lies side by side, with room for one read more until they are answered.
pub(super) const ROOM_BYTES: usize = 2 * INPUT_BYTES;

/// What was read and is to be answered.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    room: Box<[u8]>,
    /// Who has spoken, in order, and where in the room that ends.
    heard: Vec<(Token, usize)>,
}

impl Hearing {
    pub(super) fn new() -> Self {
        Self { room: vec![0; ROOM_BYTES].into(), heard: Vec::with_capacity(CLIENTS_MAX) }
    }

    /// Where to read the next client; [`INPUT_BYTES`] while it is not [full](Self::is_full).
    pub(super) fn room(&mut self) -> &mut [u8] {
        let end = self.end();
        &mut self.room[end..end + INPUT_BYTES]
    }

    /// Notes that a client's `bytes` were read.
    pub(super) fn note(&mut self, token: Token, bytes: usize) {
        let end = self.end() + bytes;
        self.heard.push((token, end));
    }

    /// Whether those who have spoken have to be answered before anybody else is read.
    pub(super) fn is_full(&self) -> bool {
        self.heard.len() == CLIENTS_MAX || self.room.len() - self.end() < INPUT_BYTES
    }

    /// Who has said what, in order.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (Token, &[u8])> {
        let starts = std::iter::once(0).chain(self.heard.iter().map(|&(_, end)| end));
        starts.zip(&self.heard).map(|(start, &(token, end))| (token, &self.room[start..end]))
    }

    /// Prefetches each client's first key; its conversation knows about the others.
    pub(super) fn prefetch<C: Conversation>(&self, service: &Service) {
        prefetch(service, &mut self.inputs().filter_map(|(_, input)| C::keys_ahead(input).next()));
    }

    /// Forgets it all.
    pub(super) fn clear(&mut self) {
        self.heard.clear();
    }

    fn end(&self) -> usize {
        self.heard.last().map_or(0, |&(_, end)| end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(hearing: &mut Hearing, number: u64, text: &[u8]) {
        hearing.room()[..text.len()].copy_from_slice(text);
        hearing.note(Token::from_number(number), text.len());
    }

    #[test]
    fn everybody_is_heard_in_order_and_forgotten() {
        let mut hearing = Hearing::new();
        assert_eq!(hearing.room().len(), INPUT_BYTES);
        for (number, text) in [(3, &b"get a"[..]), (1, b"x"), (2, b"quit")] {
            say(&mut hearing, number, text);
        }
        let heard: Vec<_> = hearing.inputs().map(|(token, input)| (token.number(), input)).collect();
        assert_eq!(heard, [(3, &b"get a"[..]), (1, b"x"), (2, b"quit")]);
        hearing.clear();
        assert_eq!(hearing.inputs().count(), 0);
        say(&mut hearing, 9, b"stats");
        assert!(hearing.inputs().eq([(Token::from_number(9), &b"stats"[..])]));
    }

    #[test]
    fn there_is_room_until_it_is_full() {
        let mut short = Hearing::new();
        let clients = (0..).take_while(|&number| {
            say(&mut short, number, b"get a\r\n");
            !short.is_full()
        });
        assert_eq!(clients.count() + 1, CLIENTS_MAX);
        let mut long = Hearing::new();
        say(&mut long, 0, &[b'x'; INPUT_BYTES]);
        assert!(!long.is_full(), "there is room for one more");
        say(&mut long, 1, b"x");
        assert!(long.is_full());
    }
}
