//! A TLS connection over a faulty socket, driven by seeds: a client of rustls on the other side
//! gets and gives exactly the bytes of its listener.

use std::collections::VecDeque;
use std::rc::Rc;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::*;

/// Both directions of a connection, and the faults of the listener's side.
struct Wire {
    random: RefCell<Xoshiro256PlusPlus>,
    /// Bytes on their way to the listener, and whether the client has finished.
    up: RefCell<(VecDeque<u8>, bool)>,
    down: RefCell<VecDeque<u8>>,
    /// Most bytes on their way to the client.
    room: usize,
}

impl Wire {
    fn draw(&self, below: usize) -> usize {
        self.random.borrow_mut().next_u64() as usize % below
    }

    /// Returns the number of bytes of `most` that a call carries out.
    fn some(&self, most: usize) -> io::Result<usize> {
        match self.draw(8) {
            0 => Err(io::ErrorKind::Interrupted.into()),
            1 => Err(io::ErrorKind::WouldBlock.into()),
            _ if most == 0 => Err(io::ErrorKind::WouldBlock.into()),
            2 => Ok(1),
            3 => Ok(1 + self.draw(most)),
            _ => Ok(most),
        }
    }
}

impl Socket for Rc<Wire> {
    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (bytes, finished) = &mut *self.up.borrow_mut();
        if bytes.is_empty() && *finished {
            return Ok(0);
        }
        let count = self.some(bytes.len().min(buffer.len()))?;
        buffer.iter_mut().zip(bytes.drain(..count)).for_each(|(to, from)| *to = from);
        Ok(count)
    }

    fn receive_behind(&self, _buffer: &mut Vec<u8>) -> io::Result<usize> {
        unreachable!("records are read into a buffer of the session")
    }

    fn has_input(&self) -> io::Result<bool> {
        let (bytes, finished) = &*self.up.borrow();
        if bytes.is_empty() && !finished {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            Ok(!bytes.is_empty())
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let down = &mut *self.down.borrow_mut();
        let count = self.some(bytes.len().min(self.room - down.len()))?;
        down.extend(&bytes[..count]);
        Ok(count)
    }

    fn send_parts(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(&parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>())
    }

    fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.up.borrow_mut().1 = true;
        }
        Ok(())
    }
}

/// The settings of a server and of a client that trusts it.
fn settings() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) =
        (made.cert.der().clone(), PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()));
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone()).unwrap();
    let provider = Arc::new(default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let client = ClientConfig::builder_with_provider(provider);
    let client = client.with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server.with_single_cert(vec![cert], key).unwrap()), Arc::new(client))
}

fn client(config: Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap()
}

/// Exchanges what the client and the wire hold for each other.
fn carry(client: &mut ClientConnection, wire: &Wire, got: &mut Vec<u8>) {
    let mut records: VecDeque<u8> = std::mem::take(&mut *wire.down.borrow_mut());
    while !records.is_empty() {
        client.read_tls(&mut records).unwrap();
        client.process_new_packets().unwrap();
        match client.reader().read_to_end(got) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    while client.wants_write() {
        client.write_tls(&mut wire.up.borrow_mut().0).unwrap();
    }
}

/// Sends the start of `bytes` in parts, and returns how many bytes were sent.
fn send(socket: &TlsSocket<Rc<Wire>>, bytes: &[u8], cut: usize) -> usize {
    let (first, second) = bytes.split_at(cut.min(bytes.len()));
    match socket.send_parts(&[IoSlice::new(first), IoSlice::new(second)]) {
        Ok(sent) => sent,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            0
        }
    }
}

/// Receives in one of the two ways.
fn receive(socket: &TlsSocket<Rc<Wire>>, wire: &Wire, got: &mut Vec<u8>) -> Option<usize> {
    let room = 1 + wire.draw(20_000);
    let result = if wire.draw(2) == 0 {
        let mut buffer = vec![0; room];
        socket.receive(&mut buffer).inspect(|&count| got.extend(&buffer[..count]))
    } else {
        let mut buffer = Vec::with_capacity(room);
        socket.receive_behind(&mut buffer).inspect(|_| got.append(&mut buffer))
    };
    result.map(Some).unwrap_or_else(|error| {
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        None
    })
}

#[test]
fn both_sides_of_a_faulty_tls_connection_get_what_the_other_has_sent() {
    let (server, trusting) = settings();
    for seed in 0..45 {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let room = [40, 3_000, 200_000][seed as usize % 3];
        let wire =
            Rc::new(Wire { random: random.into(), up: RefCell::default(), down: RefCell::default(), room });
        let socket = TlsSocket::new(Rc::clone(&wire), Arc::clone(&server)).unwrap();
        let mut client = client(Arc::clone(&trusting));
        let drawn = |most| (0..wire.draw(most)).map(|_| wire.draw(256) as u8).collect::<Vec<u8>>();
        let (up, down) = (drawn(60_000), drawn(120_000));
        let (mut sent, mut asked, mut got_up, mut got_down) = (0, 0, Vec::new(), Vec::new());
        // Bounded: each round moves something with a probability of about a half.
        for _ in 0..200_000 {
            if asked < up.len() {
                asked += client.writer().write(&up[asked..]).unwrap();
            }
            carry(&mut client, &wire, &mut got_down);
            receive(&socket, &wire, &mut got_up);
            if !socket.is_opening() && sent < down.len() {
                sent += send(&socket, &down[sent..], wire.draw(5_000));
            }
            if got_up.len() == up.len() && got_down.len() == down.len() {
                break;
            }
        }
        assert!(got_up == up, "seed {seed}: {} of {} bytes to the listener", got_up.len(), up.len());
        assert!(got_down == down, "seed {seed}: {} of {} bytes to the client", got_down.len(), down.len());
        assert_eq!(sent, down.len(), "seed {seed}: all is reported as sent");
    }
}

#[test]
fn bytes_before_a_tls_client_finishes_are_received_and_then_the_end() {
    let (server, trusting) = settings();
    for seed in 0..20 {
        let wire = Rc::new(Wire {
            random: Xoshiro256PlusPlus::seed_from_u64(seed).into(),
            up: RefCell::default(),
            down: RefCell::default(),
            room: 100_000,
        });
        let socket = TlsSocket::new(Rc::clone(&wire), Arc::clone(&server)).unwrap();
        let (mut client, mut got) = (client(Arc::clone(&trusting)), Vec::new());
        for _ in 0..1_000 {
            carry(&mut client, &wire, &mut Vec::new());
            receive(&socket, &wire, &mut got);
        }
        assert!(!client.is_handshaking() && !socket.is_opening(), "seed {seed}");
        client.writer().write_all(&[7; 9_000]).unwrap();
        // One says so, the other is cut off.
        if seed % 2 == 0 {
            client.send_close_notify();
        }
        carry(&mut client, &wire, &mut Vec::new());
        wire.up.borrow_mut().1 = seed % 2 == 1;
        let ended = (0..10_000).any(|_| receive(&socket, &wire, &mut got) == Some(0));
        assert!(ended && got == [7; 9_000], "seed {seed}: {} bytes", got.len());
    }
}

#[test]
fn client_without_tls_is_refused_with_an_alert() {
    let wire = Rc::new(Wire {
        random: Xoshiro256PlusPlus::seed_from_u64(1).into(),
        up: RefCell::new((b"get a\r\n".iter().copied().collect(), false)),
        down: RefCell::default(),
        room: 100_000,
    });
    let socket = TlsSocket::new(Rc::clone(&wire), settings().0).unwrap();
    let error = (0..1_000).find_map(|_| {
        let error = socket.receive(&mut [0; 100]).unwrap_err();
        (error.kind() != io::ErrorKind::WouldBlock).then_some(error)
    });
    assert_eq!(error.expect("a refusal").kind(), io::ErrorKind::InvalidData);
    assert_eq!(wire.down.borrow().front(), Some(&21), "the type of a record with an alert");
}
