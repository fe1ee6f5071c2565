//! A server on the loopback interface that answers each connection with the next part of an input.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// Separates the answers to two connections.
pub(crate) const NEXT_CONNECTION: u8 = 0xff;
/// Separates two writes of one answer.
pub(crate) const NEXT_WRITE: u8 = 0xfe;
/// Separates two writes of one answer by a pause.
pub(crate) const PAUSE: u8 = 0xfd;
/// Maximum number of pauses in one answer.
const MOST_PAUSES: usize = 50;
/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;
/// The certificate of the server, for 127.0.0.1 only.
pub const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tls/cert.pem");
/// Longest wait for a request. A client in a TLS handshake sends none, and no replay of a seed may wait for long.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);

/// The server. It ends when it is dropped.
pub struct Scripted {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Starts a server that plays the answers of a script in order. Later connections are closed at once.
    pub fn start(script: &[u8]) -> Self {
        // Rust's own `main` would ignore SIGPIPE, but libFuzzer's `main` does not.
        thalweg_sys::signal::ignore_sigpipe().expect("a handler");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let answers: Vec<Vec<u8>> =
            script.split(|byte| *byte == NEXT_CONNECTION).map(<[u8]>::to_vec).collect();
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut answers = answers.into_iter();
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                if let (Ok(stream), Some(answer)) = (stream, answers.next()) {
                    play(stream, &answer);
                }
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }

    /// Returns the address to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

/// Reads one request and writes the answer, through TLS if the client starts it. An early end of the client is ignored.
fn play(mut stream: TcpStream, answer: &[u8]) {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    if !stream.peek(&mut first).is_ok_and(|count| count == 1 && first[0] == HANDSHAKE) {
        play_on(&mut stream, answer);
        let _ = stream.shutdown(Shutdown::Write);
        return;
    }
    let Ok(session) = ServerConnection::new(tls_config()) else { return };
    let mut secure = StreamOwned::new(session, stream);
    play_on(&mut secure, answer);
    secure.conn.send_close_notify();
    let _ = secure.flush();
    let _ = secure.sock.shutdown(Shutdown::Write);
}

fn play_on(stream: &mut (impl Read + Write), answer: &[u8]) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => request.extend_from_slice(&buffer[..count]),
            _ => break,
        }
    }
    let mut pauses = 0;
    for piece in answer.split_inclusive(|byte| matches!(*byte, NEXT_WRITE | PAUSE)) {
        let (piece, end) = match piece.split_last() {
            Some((end @ (&NEXT_WRITE | &PAUSE), piece)) => (piece, *end),
            _ => (piece, NEXT_WRITE),
        };
        if stream.write_all(piece).and_then(|()| stream.flush()).is_err() {
            return;
        }
        if end == PAUSE && pauses < MOST_PAUSES {
            pauses += 1;
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Returns the TLS configuration of the server. A client trusts its certificate by [`CERTIFICATE`].
fn tls_config() -> Arc<ServerConfig> {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let certificate = CertificateDer::from_pem_file(CERTIFICATE).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("../tls/key.pem")).expect("a key");
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key);
        Arc::new(config.expect("a certificate and its key"))
    });
    Arc::clone(config)
}
