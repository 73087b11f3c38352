//! A proxy in front of a database server that ends a connection, or answers in place of the server,
//! when a statement is run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A fault that the proxy causes for one statement.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// Ends the connection after this many bytes of the answer; if 0, the server does not receive
    /// the statement.
    End(usize),
    /// Sends this answer in place of the server, which does not receive the statement.
    Answer(Vec<u8>),
}

/// A proxy that causes faults for the next statements.
pub(crate) struct Proxy {
    pub(crate) address: String,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    accepted: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts a proxy in front of the server at `port`; it ends with the runtime of the test.
    /// `is_run` is true for bytes of a client that run a statement.
    pub(crate) async fn before(port: u16, is_run: fn(&[u8]) -> bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (faults, accepted) = (Arc::<Mutex<VecDeque<Fault>>>::default(), Arc::<AtomicUsize>::default());
        let proxy = Self { address, faults: Arc::clone(&faults), accepted: Arc::clone(&accepted) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let faults = Arc::clone(&faults);
                let take = move |bytes: &[u8]| is_run(bytes).then(|| faults.lock().unwrap().pop_front());
                tokio::spawn(relay(client, server, move |bytes| take(bytes).flatten()));
            }
        });
        proxy
    }

    /// Adds faults, one for each of the next statements.
    pub(crate) fn expect(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().unwrap().extend(faults);
    }

    /// The number of connections accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// True if every fault has occurred.
    pub(crate) fn is_done(&self) -> bool {
        self.faults.lock().unwrap().is_empty()
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, fault: impl Fn(&[u8]) -> Option<Fault>) {
    let (mut asked, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut left = usize::MAX;
    while left > 0 {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(read @ 1..) = read else { return };
                match fault(&asked[..read]) {
                    None => server.write_all(&asked[..read]).await.unwrap(),
                    Some(Fault::Answer(bytes)) => client.write_all(&bytes).await.unwrap(),
                    Some(Fault::End(0)) => return,
                    Some(Fault::End(bytes)) => {
                        left = bytes;
                        server.write_all(&asked[..read]).await.unwrap();
                    }
                }
            }
            read = server.read(&mut answer) => {
                let Ok(read @ 1..) = read else { return };
                let read = read.min(left);
                left -= if left == usize::MAX { 0 } else { read };
                let _ = client.write_all(&answer[..read]).await;
            }
        }
    }
}
