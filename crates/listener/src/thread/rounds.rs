//! Rounds of the event loop: clients that are ready at the same time are received from in one
//! system call, answered one after the other, and sent to in another.

use sherwood_cache::Reserved;

use super::Thread;
use crate::clock::Moment;
use crate::connection::{Connection, ReadOutcome};
use crate::conversation::Conversations;
use crate::lent::Empty;
use crate::slots::Token;
use crate::sockets::{Receiving, Sending, Sockets};

impl<P: Conversations, S: Sockets> Thread<P, S> {
    /// Reads the clients that are ready in one round, answers them in order, and sends to them in
    /// another. A client with other work gets a turn instead.
    pub(super) fn read_round(&mut self, moment: Moment) {
        let mut ready = std::mem::take(&mut self.ready);
        if let [token] = ready[..] {
            self.read(token, moment);
            ready.clear();
        }
        let mut in_place = Vec::new();
        ready.retain(|&token| {
            let client = self.clients.get_mut(token);
            let block = client.and_then(|client| client.take_block(&self.shared.service.cache));
            let is_taken = block.is_some();
            in_place.extend(block.map(|block| (token, block)));
            !is_taken
        });
        ready.retain(|&token| {
            let only_reads = self.clients.get(token).is_some_and(Connection::only_reads);
            if !only_reads {
                self.turn(token, moment);
            }
            only_reads
        });
        // A turn of another client may have ended one.
        ready.retain(|&token| self.clients.get(token).is_some_and(Connection::only_reads));
        in_place.retain(|(token, _)| self.clients.get(*token).is_some());
        if ready.len() + in_place.len() > 0 {
            self.receive_round(&ready, in_place, moment);
            self.answer_round(moment);
        }
        ready.clear();
        self.ready = ready;
    }

    /// Receives from clients that only read, into rooms of their own, and from those whose value is
    /// received in place, which go on at once.
    fn receive_round(&mut self, ready: &[Token], mut in_place: Vec<(Token, Reserved)>, moment: Moment) {
        let mut input = std::mem::take(&mut self.round_input);
        let rooms = ready.iter().copied().zip(input.rooms());
        let blocks = in_place.iter_mut().map(|(token, block)| (*token, block.room()));
        let receiving = |(token, room)| {
            let socket = self.clients.get(token)?.socket();
            Some(Receiving { socket, room, result: None })
        };
        let mut round: Vec<_> = rooms.chain(blocks).filter_map(receiving).collect();
        if round.len() > 1 {
            self.sockets.receive_round(&mut round);
        }
        let mut results: Vec<_> = round.into_iter().map(|one| one.result).collect();
        assert_eq!(results.len(), ready.len() + in_place.len(), "results belong to clients by their place");
        let of_blocks = results.split_off(ready.len());
        for (number, (&token, result)) in ready.iter().zip(results).enumerate() {
            let Some(client) = self.clients.get_mut(token) else { continue };
            let counters = self.shared.counters(self.number, client.slot());
            let (outcome, bytes) = client.end_receiving(input.room(number), result, counters);
            match outcome {
                ReadOutcome::Input => input.add(token, number, bytes),
                ReadOutcome::Over(turn) => self.conclude(token, turn, moment.now),
                ReadOutcome::Busy => {}
            }
        }
        self.room_bytes = input.capacity();
        self.round_input = input;
        for ((token, block), result) in in_place.into_iter().zip(of_blocks) {
            self.act(token, moment, |client, context| {
                context.sends_later = true;
                client.end_receiving_in_place(block, result, context)
            });
        }
    }

    /// Answers the clients whose input is in rooms, in order, and sends the answers together.
    fn answer_round(&mut self, moment: Moment) {
        let mut input = std::mem::take(&mut self.round_input);
        self.prefetch(input.inputs());
        for (token, input) in input.inputs() {
            self.act(token, moment, |client, context| {
                context.sends_later = true;
                client.answer(input, context)
            });
            if self.round_output.is_full() {
                self.send_round(moment);
            }
        }
        self.send_round(moment);
        input.empty();
        self.round_input = input;
    }

    /// Sends the answers that wait to be sent together, each to its client.
    fn send_round(&mut self, moment: Moment) {
        let mut owed = self.round_output.take();
        owed.retain(|one| self.clients.get(one.token).is_some());
        let mut round: Vec<_> = owed
            .iter()
            .filter_map(|one| {
                let socket = self.clients.get(one.token)?.socket();
                Some(Sending { socket, bytes: one.output.outgoing(), result: None })
            })
            .collect();
        if round.len() > 1 {
            self.sockets.send_round(&mut round);
        }
        let results: Vec<_> = round.into_iter().map(|one| one.result).collect();
        assert_eq!(results.len(), owed.len(), "results belong to clients by their place");
        for (one, result) in owed.iter_mut().zip(results) {
            let Some(client) = self.clients.get_mut(one.token) else { continue };
            let slot = client.slot();
            let counters = self.shared.counters(self.number, slot);
            let turn = client.end_sending(&mut one.output, result, counters);
            if let Some(timed) = one.timed.take() {
                self.end_timed(timed, moment);
            }
            self.charge(one.token, slot, 0, moment.now);
            self.conclude(one.token, turn, moment.now);
        }
        self.round_output.give_back(owed);
        let own = self.own_bytes();
        self.account.set(own);
    }
}
