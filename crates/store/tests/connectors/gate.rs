//! A TLS proxy in front of a server without TLS.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Starts a TLS proxy in front of the server at `port`, which ends with the runtime of the test.
/// Returns the proxy's address.
pub(crate) async fn before(port: u16, config: Arc<ServerConfig>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
            tokio::spawn(async move {
                if let Ok(mut stream) = acceptor.accept(stream).await {
                    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let _ = copy_bidirectional(&mut stream, &mut server).await;
                }
            });
        }
    });
    address
}
