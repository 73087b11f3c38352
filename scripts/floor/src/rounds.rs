//! Serves all connections that are ready with one submission of receives and one of sends.

use std::io;

use io_uring::{IoUring, opcode, squeue, types};

use crate::server::{Next, RECEIVED_BYTES, ROUND, Ready, Server};

/// Distance between the buffers of a round. The bytes beyond a power of two let the beginnings of
/// buffers use different sets of the processor's cache.
const STRIDE: usize = RECEIVED_BYTES + 192;

/// Lets an operation complete within its submission, rather than wait for the socket.
const DONT_WAIT: i32 = rustix::net::RecvFlags::DONTWAIT.bits() as i32;
const NO_SIGNAL: i32 = rustix::net::SendFlags::NOSIGNAL.bits() as i32;

pub(crate) fn serve(mut server: Server) -> io::Result<()> {
    let mut round = Round::new()?;
    let mut ready = Vec::with_capacity(2 * ROUND);
    loop {
        server.wait(&mut ready)?;
        // Those that do not fit wait for the next round.
        let later = ready.split_off(ready.len().min(ROUND));
        round.receive(&ready)?;
        round.answer(&mut server, &ready);
        round.send(&mut server, &ready)?;
        round.finish(&mut server, &mut ready);
        ready.extend(later);
    }
}

/// The buffers of a round's connections, which are numbered in the order of their events.
struct Round {
    ring: IoUring,
    received: Vec<u8>,
    answers: Vec<Vec<u8>>,
    /// Results of the last submission.
    results: Vec<i32>,
    next: Vec<Next>,
}

impl Round {
    fn new() -> io::Result<Self> {
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ROUND as u32)?;
        Ok(Self {
            ring,
            received: vec![0; ROUND * STRIDE],
            answers: vec![Vec::new(); ROUND],
            results: vec![0; ROUND],
            next: vec![Next::Wait; ROUND],
        })
    }

    fn receive(&mut self, ready: &[Ready]) -> io::Result<()> {
        for (number, of) in ready.iter().enumerate() {
            let buffer = self.received[number * STRIDE..][..RECEIVED_BYTES].as_mut_ptr();
            let receive = opcode::Recv::new(types::Fd(of.fd as i32), buffer, RECEIVED_BYTES as u32);
            self.push(receive.flags(DONT_WAIT).build().user_data(number as u64));
        }
        self.complete(ready.len())
    }

    fn answer(&mut self, server: &mut Server, ready: &[Ready]) {
        for (number, of) in ready.iter().enumerate() {
            self.answers[number].clear();
            let received = result(self.results[number]);
            if let (&Ok(len), Some(connection)) = (&received, server.connection(of.fd)) {
                connection.answer(&self.received[number * STRIDE..][..len], &mut self.answers[number]);
            }
            self.next[number] = Next::after(&received, of.hung_up);
        }
    }

    fn send(&mut self, server: &mut Server, ready: &[Ready]) -> io::Result<()> {
        let mut sends = 0;
        for (number, of) in ready.iter().enumerate() {
            let answers = &self.answers[number];
            if !answers.is_empty() {
                let send = opcode::Send::new(types::Fd(of.fd as i32), answers.as_ptr(), answers.len() as u32);
                self.push(send.flags(DONT_WAIT | NO_SIGNAL).build().user_data(number as u64));
                sends += 1;
            }
        }
        self.complete(sends)?;
        for (number, of) in ready.iter().enumerate() {
            self.send_rest(server, number, of.fd);
        }
        Ok(())
    }

    /// Sends what the socket had no room for.
    fn send_rest(&mut self, server: &mut Server, number: usize, fd: usize) {
        let sent = result(self.results[number]).unwrap_or(0);
        let Some(rest) = self.answers[number].get(sent..).filter(|rest| !rest.is_empty()) else { return };
        let sent = server.connection(fd).map(|connection| connection.send(rest));
        if !matches!(sent, Some(Ok(()))) {
            self.next[number] = Next::Close;
        }
    }

    /// Closes connections, and leaves in `ready` those that may have more to receive.
    fn finish(&mut self, server: &mut Server, ready: &mut Vec<Ready>) {
        let mut next = self.next.iter();
        ready.retain(|of| {
            let next = *next.next().expect("one for each connection");
            if next == Next::Close {
                server.close(of.fd);
            }
            next == Next::Receive
        });
    }

    fn push(&mut self, operation: squeue::Entry) {
        // SAFETY: the buffer lives in `self`, and is neither moved nor used again before `complete`
        // has seen the operation's completion; if it fails, the server ends.
        unsafe { self.ring.submission().push(&operation) }.expect("the queue has room for a round");
    }

    /// Submits the operations, `count` in all, and writes their results.
    fn complete(&mut self, count: usize) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            // All are complete when it returns, unless the kernel had to put one off; then the next
            // call waits.
            let wait_for = if left == count { 0 } else { left };
            self.ring.submit_and_wait(wait_for)?;
            for completion in self.ring.completion() {
                self.results[completion.user_data() as usize] = completion.result();
                left -= 1;
            }
        }
        Ok(())
    }
}

/// Returns a completion's number of bytes.
fn result(of: i32) -> io::Result<usize> {
    usize::try_from(of).map_err(|_| io::Error::from_raw_os_error(-of))
}
