//! Simulated connections between clients and the listener.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sherwood_listener::{Event, Outgoing, Receiving, Sending, Signal, Socket, Sockets};

use crate::world::World;

/// A simulated connection, with both of its directions.
#[derive(Default)]
pub(crate) struct Link {
    /// Bytes on their way to the listener.
    pub(crate) inbound: VecDeque<u8>,
    pub(crate) inbound_max: usize,
    /// True if nothing follows the inbound bytes.
    pub(crate) inbound_end: bool,
    /// Bytes on their way to the client.
    pub(crate) outbound: VecDeque<u8>,
    pub(crate) outbound_max: usize,
    /// True if nothing follows the outbound bytes.
    pub(crate) outbound_end: bool,
    /// True if the client has closed its side of the connection.
    pub(crate) client_gone: bool,
    /// Set if the connection broke; the value tells if the listener has received an error for it.
    pub(crate) broken: Option<Broken>,
    /// True if the listener has closed its side of the connection.
    pub(crate) closed: bool,
    /// True if it was the listener that broke the connection, by closing it before all was read.
    pub(crate) cut_off: bool,
    /// True if the listener has ended its receiving side.
    pub(crate) reading_ended: bool,
    /// The token that the listener watches the connection with.
    pub(crate) token: Option<u64>,
    /// True if there is an event that was not reported to the listener.
    pub(crate) changed: bool,
    /// True if the listener's last send was refused because it would block.
    pub(crate) full: bool,
}

/// The state of a broken connection: the listener has received an error for it or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Untold,
    Told,
}

impl Link {
    /// Breaks the connection. With `lose_inbound`, the listener cannot read the bytes that have
    /// arrived.
    pub(crate) fn break_off(&mut self, lose_inbound: bool) {
        self.broken = Some(Broken::Untold);
        self.changed = true;
        self.outbound.clear();
        if lose_inbound {
            self.inbound.clear();
        }
    }

    fn event(&self) -> Option<Event> {
        let finished = self.inbound_end || self.broken.is_some();
        let readable = finished || !self.inbound.is_empty();
        let broken = self.broken.is_some();
        self.token.map(|token| Event::Connection { token, readable, finished, broken })
    }

    fn fails(&mut self) -> bool {
        let untold = self.broken == Some(Broken::Untold);
        if untold {
            self.broken = Some(Broken::Told);
        }
        untold
    }
}

/// Size of a read of the listener, unless a value is received where it stays.
const READ_BYTES: usize = 16 << 10;

/// The listener's side of a simulated connection.
pub(crate) struct SimulatedSocket {
    world: Rc<RefCell<World>>,
    link: usize,
}

impl SimulatedSocket {
    fn receive_at_most(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let world = &mut *self.world.borrow_mut();
        world.meanwhile();
        if world.draw.chance(3) {
            world.note("receive: interrupted", self.link);
            return Err(io::ErrorKind::Interrupted.into());
        }
        let spurious = world.draw.chance(3);
        let link = &mut world.links[self.link];
        if spurious && !link.inbound.is_empty() {
            // Bytes that have arrived are reported again.
            link.changed = true;
            world.note("receive: would block", self.link);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if link.inbound.is_empty() {
            let (result, what) = match link.fails() {
                true => (Err(io::ErrorKind::ConnectionReset.into()), "receive: broken"),
                false if link.broken.is_some() || link.inbound_end || link.reading_ended => {
                    (Ok(Vec::new()), "receive: end")
                }
                false => (Err(io::ErrorKind::WouldBlock.into()), "receive: would block"),
            };
            world.note(what, self.link);
            return result;
        }
        let mut bytes = bytes_max.min(link.inbound.len());
        // The rest arrives right after the call.
        if world.draw.chance(20) {
            bytes = world.draw.up_to(bytes);
            link.changed |= bytes < link.inbound.len();
            world.note("receive: short", self.link);
        }
        let received = world.links[self.link].inbound.drain(..bytes).collect();
        world.wake_writer(self.link);
        Ok(received)
    }
}

impl Socket for SimulatedSocket {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = self.receive_at_most(buffer.len())?;
        if buffer.len() > READ_BYTES {
            self.world.borrow_mut().note("receive: in place", self.link);
        }
        buffer[..received.len()].copy_from_slice(&received);
        Ok(received.len())
    }

    fn receive_behind(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let received = self.receive_at_most(buffer.capacity() - buffer.len())?;
        buffer.extend_from_slice(&received);
        Ok(received.len())
    }

    fn has_input(&self) -> io::Result<bool> {
        let world = &mut *self.world.borrow_mut();
        world.meanwhile();
        let link = &mut world.links[self.link];
        if link.inbound.is_empty() && link.fails() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        match link.broken.is_some() || link.inbound_end || link.reading_ended {
            _ if !link.inbound.is_empty() => Ok(true),
            true => Ok(false),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let world = &mut *self.world.borrow_mut();
        world.meanwhile();
        if world.draw.chance(3) {
            world.note("send: interrupted", self.link);
            return Err(io::ErrorKind::Interrupted.into());
        }
        let (spurious, short) = (world.draw.chance(5), world.draw.chance(25));
        let link = &mut world.links[self.link];
        if link.broken.is_some() {
            let kind = if link.fails() && !link.inbound_end {
                io::ErrorKind::ConnectionReset
            } else {
                io::ErrorKind::BrokenPipe
            };
            world.note("send: broken", self.link);
            return Err(kind.into());
        }
        if link.client_gone {
            // The bytes are sent, and answered with a reset.
            let lose_inbound = world.draw.chance(50);
            world.links[self.link].break_off(lose_inbound);
            world.note("send: to a closed client", self.link);
            return Ok(bytes.len());
        }
        let room = link.outbound_max.saturating_sub(link.outbound.len());
        if room == 0 || spurious {
            link.full = true;
            // Room is reported at once.
            link.changed |= room > 0;
            world.note("send: would block", self.link);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut taken = room.min(bytes.len());
        if short && taken > 1 {
            taken = world.draw.up_to(taken - 1);
            world.note("send: short", self.link);
        }
        world.links[self.link].outbound.extend(&bytes[..taken]);
        world.wake_reader(self.link);
        Ok(taken)
    }

    fn send_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        assert!((1..=1024).contains(&parts.len()), "{} parts at once", parts.len());
        self.world.borrow_mut().note("send: parts", self.link);
        self.send(&parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>())
    }

    fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        let world = &mut *self.world.borrow_mut();
        let link = &mut world.links[self.link];
        if link.broken.is_some() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        match how {
            Shutdown::Read => link.reading_ended = true,
            Shutdown::Write | Shutdown::Both => link.outbound_end = true,
        }
        world.wake_reader(self.link);
        Ok(())
    }
}

impl Drop for SimulatedSocket {
    fn drop(&mut self) {
        // A failing test may be in the middle of a call.
        let Ok(mut world) = self.world.try_borrow_mut() else { return };
        let link = &mut world.links[self.link];
        (link.closed, link.outbound_end) = (true, true);
        (link.token, link.changed) = (None, false);
        if !link.inbound.is_empty() && link.broken.is_none() {
            // The system resets a connection that is closed with unread bytes.
            (link.broken, link.cut_off) = (Some(Broken::Told), true);
            if world.draw.chance(50) {
                world.links[self.link].outbound.clear();
            }
        }
        world.wake_reader(self.link);
    }
}

/// The simulated sockets that the listener waits for.
pub(crate) struct SimulatedSockets(pub(crate) Rc<RefCell<World>>);

impl Sockets for SimulatedSockets {
    type Socket = SimulatedSocket;

    fn accept(&mut self) -> io::Result<SimulatedSocket> {
        let world = &mut *self.0.borrow_mut();
        world.meanwhile();
        if world.draw.chance(3) {
            world.note("accept: aborted", 0);
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if !world.backlog.is_empty() && world.draw.chance(3) {
            world.note("accept: no descriptors", 0);
            return Err(io::Error::other("no descriptors"));
        }
        let link = world.backlog.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
        Ok(SimulatedSocket { world: Rc::clone(&self.0), link })
    }

    fn stop_accepting(&mut self) {
        let world = &mut *self.0.borrow_mut();
        for link in std::mem::take(&mut world.backlog) {
            world.links[link].closed = true;
            world.links[link].break_off(true);
        }
    }

    fn watch(&mut self, socket: &SimulatedSocket, token: u64) -> io::Result<()> {
        let world = &mut *self.0.borrow_mut();
        if token as u32 > 0 {
            world.note("place taken again", socket.link);
        }
        let link = &mut world.links[socket.link];
        (link.token, link.changed) = (Some(token), true);
        Ok(())
    }

    fn wait(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        self.0.borrow_mut().wait(events, timeout);
        Ok(())
    }

    fn has_rounds(&mut self) -> bool {
        self.0.borrow().rounds
    }

    fn receive_round(&mut self, round: &mut [Receiving<'_, SimulatedSocket>]) {
        self.0.borrow_mut().note("round: receive", 0);
        for at in self.order(round.len()) {
            let Receiving { socket, room, result } = &mut round[at];
            if room.len() > READ_BYTES {
                self.0.borrow_mut().note("round: in place", socket.link);
            }
            *result = Some(socket.receive(room));
        }
    }

    fn send_round(&mut self, round: &mut [Sending<'_, SimulatedSocket>]) {
        self.0.borrow_mut().note("round: send", 0);
        for at in self.order(round.len()) {
            let Sending { socket, bytes, result } = &mut round[at];
            *result = Some(match bytes {
                Outgoing::One(bytes) => socket.send(bytes),
                Outgoing::Parts(parts) => socket.send_parts(parts),
            });
        }
    }
}

impl SimulatedSockets {
    /// Returns the operations of a round that are carried out, in the order in which they end.
    /// Sometimes the kernel takes the ring away, and all from one on are left out.
    fn order(&self, operations: usize) -> Vec<usize> {
        let world = &mut *self.0.borrow_mut();
        let mut order: Vec<usize> = (0..operations).collect();
        for place in 0..operations {
            let other = place + world.draw.below(operations - place);
            order.swap(place, other);
        }
        if world.draw.chance(5) {
            order.truncate(world.draw.below(operations));
            world.rounds = world.draw.chance(50);
            world.note("round: incomplete", 0);
        }
        order
    }
}

impl World {
    /// Reports changed connections to the listener in random order, and sometimes only some of
    /// them.
    pub(crate) fn report(&mut self, events: &mut Vec<Event>) {
        if std::mem::take(&mut self.incoming) {
            events.push(Event::Incoming);
        }
        let is_raised = self.signal.0.swap(false, Relaxed);
        let events_max = if self.draw.chance(20) { 1 + self.draw.below(3) } else { 256 };
        let (links, first) = (self.links.len(), self.draw.below(self.links.len().max(1)));
        for number in (0..links).map(|number| (first + number) % links) {
            let link = &mut self.links[number];
            if link.changed && events.len() < events_max {
                link.changed = false;
                events.extend(link.event());
            }
        }
        if is_raised {
            // Before, between or after connections, as epoll may report it.
            let place = self.draw.below(events.len() + 1);
            events.insert(place, Event::Raised);
        }
    }
}

/// A simulated signal that interrupts the listener's wait, raised until it is reported.
#[derive(Default)]
pub(crate) struct SimulatedSignal(AtomicBool);

impl SimulatedSignal {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }
}

impl Signal for SimulatedSignal {
    fn raise(&self) {
        self.0.store(true, Relaxed);
    }

    fn lower(&self) {
        self.0.store(false, Relaxed);
    }
}
