//! Encrypted data connections. Their bytes pass through user space: a thread moves them
//! between the connection and a socket pair. The control descriptor uses the other end of
//! the pair.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use cordboard::poll_for;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, ServerConfig, ServerConnection, StreamOwned, SupportedCipherSuite};

use super::mover::Truncate;
use super::waiting::Waited;
use crate::{socket_calls, sys};

/// Bytes that are encrypted at a time.
const BLOCK: usize = 64 << 10;

/// The longest content of a TLS record (RFC 8446, 5.1).
const RECORD: usize = 16 << 10;
/// The number of records that the handshake and the end may use.
const RESERVED: u64 = 8;

/// Reads the certificate chain and its key.
///
/// # Errors
///
/// The option, and a message that names its file.
pub fn config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, (&'static str, String)> {
    let of_cert = |why: String| ("--tls-cert", format!("{}: {why}", cert.display()));
    let of_key = |why: String| ("--tls-key", format!("{}: {why}", key.display()));
    let chain =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = match chain {
        Ok(chain) if chain.is_empty() => Err(of_cert("no certificate in PEM format".to_owned())),
        chain => chain.map_err(|error| of_cert(error.to_string())),
    }?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| match error {
        pem::Error::NoItemsFound => of_key("no private key in PEM format".to_owned()),
        error => of_key(error.to_string()),
    })?;
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private);
    let mut config = config.map_err(|error| match error {
        Error::InconsistentKeys(_) => {
            of_key(format!("not the key of the certificate {}", cert.display()))
        }
        Error::InvalidCertificate(_) => of_cert(error.to_string()),
        error => of_key(error.to_string()),
    })?;
    // A client that uploads does not read tickets. If it closes its socket with unread
    // bytes, its kernel sends a reset, which loses bytes of the upload (tcp_close(),
    // net/ipv4/tcp.c).
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The direction of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToClient,
    FromClient,
}

/// A file whose content an upload replaces.
pub struct Replaced {
    file: File,
    /// Gets a message once the transfer runs, and ends without one if it was refused.
    runs: Receiver<()>,
}

impl Replaced {
    /// Also returns what permits the thread to truncate the file. The thread waits for its call or
    /// its drop.
    pub fn new(file: File) -> (Replaced, Truncate<'static>) {
        let (sender, runs) = channel();
        let permit = move || {
            // The handshake may have failed, and the thread has ended.
            let _ = sender.send(());
            Ok(())
        };
        (Replaced { file, runs }, Box::new(permit))
    }

    fn truncate(self) -> io::Result<()> {
        self.runs.recv().map_err(|_| ended_here())?;
        self.file.set_len(0)
    }
}

/// The error if the session has ended the transfer.
fn ended_here() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

/// Returns whether the session has ended the transfer. A connection that the network has aborted
/// has an errno.
pub fn is_ended_here(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionAborted && error.raw_os_error().is_none()
}

/// A thread that encrypts or decrypts.
pub struct Pump {
    thread: JoinHandle<io::Result<()>>,
    /// The whole file was sent: the thread may send *close notify*.
    complete: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
}

/// A data connection whose reads and writes also end when the session shuts down its end of
/// the pair. A shutdown of the connection would also wake the thread, but would send the
/// end of the file.
struct Connection {
    socket: TcpStream,
    pair: Arc<UnixStream>,
    received: Arc<AtomicU64>,
}

impl Connection {
    fn wait(&self, events: PollFlags) -> io::Result<()> {
        let mut fds = [
            PollFd::new(&self.socket, events),
            PollFd::new(&*self.pair, PollFlags::empty()),
        ];
        match poll_for(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => Err(ended_here()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match socket_calls::recv(&self.socket, bytes, RecvFlags::DONTWAIT) {
                Ok((n, _)) => {
                    self.received.fetch_add(n as u64, Ordering::Relaxed);
                    return Ok(n);
                }
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match socket_calls::send(&self.socket, bytes, flags) {
                Ok(n) => return Ok(n),
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Pump {
    /// Starts the thread. Returns the end of the pair that replaces the connection, and a second
    /// descriptor of it. The thread truncates `replaced` after the handshake, once the transfer
    /// runs, and before it passes on any byte.
    pub fn start(
        config: &Arc<ServerConfig>,
        socket: TcpStream,
        direction: Direction,
        replaced: Option<Replaced>,
    ) -> io::Result<(Pump, UnixStream, OwnedFd)> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        let (ours, theirs) = UnixStream::pair()?;
        // Before the thread: if that fails, no thread is left.
        let second = OwnedFd::from(ours.try_clone()?);
        let complete = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&complete);
        let theirs = Arc::new(theirs);
        let received = Arc::<AtomicU64>::default();
        let count = Arc::clone(&received);
        let run = move || {
            let pair = Arc::clone(&theirs);
            let connected = Connection {
                socket,
                pair,
                received: count,
            };
            let stream = StreamOwned::new(connection, connected);
            match direction {
                Direction::ToClient => encrypt(stream, &theirs, &flag),
                Direction::FromClient => decrypt(stream, &theirs, replaced),
            }
        };
        let thread = sys::without_signals(|| {
            let thread = std::thread::Builder::new().name("cordboard-tls".to_owned());
            thread.stack_size(256 << 10).spawn(run)
        })?;
        let pump = Pump {
            thread,
            complete,
            received,
        };
        Ok((pump, ours, second))
    }

    /// Returns the count of the bytes that the client has sent, with those of TLS. A slow client
    /// may send one record of 16 KiB for longer than the idle time.
    pub fn received(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    /// Waits for the end of the thread. `complete`: all bytes of the source were moved.
    /// `wait` waits until the descriptor hangs up, which may take long if the client does
    /// not read the last bytes. Its result is returned. If that is not `Ready`, the thread
    /// ends without having sent all bytes.
    ///
    /// # Errors
    ///
    /// The connection has failed, or has ended without the end of TLS: bytes may be
    /// missing. [`is_ended_here`]: the session has ended the transfer.
    pub fn finish(
        self,
        ours: UnixStream,
        complete: bool,
        wait: impl FnOnce(BorrowedFd<'_>) -> Waited,
    ) -> (Waited, io::Result<()>) {
        self.complete.store(complete, Ordering::Release);
        let mut waited = Waited::Ready;
        if complete {
            // The thread reads the end of file, and closes its end when it is done.
            let _ = ours.shutdown(Shutdown::Write);
            waited = wait(ours.as_fd());
        }
        if !complete || waited != Waited::Ready {
            let _ = ours.shutdown(Shutdown::Both);
        }
        drop(ours);
        let panicked = |_| Err(io::Error::other("the thread has panicked"));
        (waited, self.thread.join().unwrap_or_else(panicked))
    }
}

fn encrypt(
    mut stream: StreamOwned<ServerConnection, Connection>,
    from: &UnixStream,
    complete: &AtomicBool,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    shake_hands(&mut stream)?;
    let mut records = most_records(&stream.conn);
    loop {
        match rustix::io::read(from, &mut block) {
            Ok(0) => break,
            Ok(n) => {
                let left = records.checked_sub(n.div_ceil(RECORD) as u64);
                records = left.ok_or(rustix::io::Errno::FBIG)?;
                stream.write_all(&block[..n])?;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    if complete.load(Ordering::Acquire) {
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    Ok(())
}

/// Returns the number of records that may be encrypted. With TLS 1.2, the key cannot be changed:
/// at the limit of the cipher suite, rustls sends *close notify*, and then discards what is
/// written. With TLS 1.3 it changes the key.
fn most_records(connection: &ServerConnection) -> u64 {
    match connection.negotiated_cipher_suite() {
        Some(SupportedCipherSuite::Tls12(suite)) => {
            suite.common.confidentiality_limit.saturating_sub(RESERVED)
        }
        _ => u64::MAX,
    }
}

fn shake_hands(stream: &mut StreamOwned<ServerConnection, Connection>) -> io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}

fn decrypt(
    mut stream: StreamOwned<ServerConnection, Connection>,
    to: &UnixStream,
    replaced: Option<Replaced>,
) -> io::Result<()> {
    shake_hands(&mut stream)?;
    replaced.map_or(Ok(()), Replaced::truncate)?;
    let mut block = vec![0; BLOCK];
    loop {
        match stream.read(&mut block) {
            // The end of TLS; without it, rustls reports `UnexpectedEof`.
            Ok(0) => {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                return Ok(());
            }
            Ok(n) => send_all(to, &block[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn send_all(to: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket_calls::send(to, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(rustix::io::Errno::INTR) => {}
            // The session keeps its end open until it ends the transfer. Its close with unread
            // bytes resets the pair (`unix_release_sock`, net/unix/af_unix.c).
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                return Err(ended_here());
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustls::crypto::{CryptoProvider, ring};
    use rustls::pki_types::ServerName;
    use rustls::{CipherSuiteCommon, ClientConfig, ClientConnection, RootCertStore};
    use rustls::{Tls12CipherSuite, version};

    use super::*;

    /// The configurations of both sides, with a cipher suite of TLS 1.2 that permits so many
    /// records.
    fn limited(records: u64) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
        let suite = ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
        let SupportedCipherSuite::Tls12(suite) = suite else {
            panic!("a suite of TLS 1.2");
        };
        let suite = Box::leak(Box::new(Tls12CipherSuite {
            common: CipherSuiteCommon {
                suite: suite.common.suite,
                hash_provider: suite.common.hash_provider,
                confidentiality_limit: records,
            },
            prf_provider: suite.prf_provider,
            kx: suite.kx,
            sign: suite.sign,
            aead_alg: suite.aead_alg,
        }));
        let provider = Arc::new(CryptoProvider {
            cipher_suites: vec![SupportedCipherSuite::Tls12(suite)],
            ..ring::default_provider()
        });
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS12])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let client = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_protocol_versions(&[&version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (Arc::new(server), Arc::new(client))
    }

    /// The bytes of a record count before the record is whole.
    #[test]
    fn the_bytes_of_a_part_of_a_record_are_counted() {
        let (server, _) = limited(RESERVED + 8);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let started = Pump::start(&server, socket, Direction::FromClient, None);
        let (pump, ours, _) = started.unwrap();
        let received = pump.received();
        for (at, byte) in b"\x16\x03\x01\x40".iter().enumerate() {
            client.write_all(&[*byte]).unwrap();
            while received.load(Ordering::Relaxed) != 1 + at as u64 {
                std::thread::yield_now();
            }
        }
        let (_, done) = pump.finish(ours, false, |_| Waited::Ready);
        assert!(is_ended_here(&done.unwrap_err()));
    }

    #[test]
    fn a_session_may_end_while_its_end_is_full() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.shutdown(Shutdown::Both).unwrap();
        assert!(is_ended_here(&send_all(&theirs, b"x").unwrap_err()));
    }

    /// The handshake may end before the transfer is refused.
    #[test]
    fn a_file_is_truncated_once_its_transfer_runs() {
        let (server, client) = limited(RESERVED + 8);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for runs in [false, true] {
            let fd = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let mut file = File::from(fd);
            file.write_all(b"old").unwrap();
            let (replaced, permit) = Replaced::new(file.try_clone().unwrap());
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let connection = ClientConnection::new(Arc::clone(&client), name).unwrap();
            let mut client = StreamOwned::new(connection, socket);
            let (socket, _) = listener.accept().unwrap();
            let started = Pump::start(&server, socket, Direction::FromClient, Some(replaced));
            let (pump, mut ours, _) = started.unwrap();
            client.write_all(b"new").unwrap();
            client.conn.send_close_notify();
            client.flush().unwrap();
            let mut got = String::new();
            match runs {
                true => {
                    permit().unwrap();
                    let (_, done) = pump.finish(ours.try_clone().unwrap(), true, |_| {
                        ours.read_to_string(&mut got).unwrap();
                        Waited::Ready
                    });
                    done.unwrap();
                }
                false => {
                    drop(permit);
                    assert!(pump.finish(ours, false, |_| Waited::Ready).1.is_err());
                }
            }
            assert_eq!(got, if runs { "new" } else { "" });
            assert_eq!(file.metadata().unwrap().len(), if runs { 0 } else { 3 });
        }
    }

    /// rustls would end the connection as if the file were complete, and discard the rest.
    #[test]
    fn no_more_is_encrypted_than_the_key_permits() {
        const SIZE: usize = 1 << 20;
        let (server, client) = limited(RESERVED + 8);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(client, name).unwrap();
        let mut client = StreamOwned::new(client, socket);
        let (socket, _) = listener.accept().unwrap();
        let (pump, mut ours, _) = Pump::start(&server, socket, Direction::ToClient, None).unwrap();
        std::thread::scope(|scope| {
            let reads = scope.spawn(move || {
                let mut got = Vec::new();
                let end = client.read_to_end(&mut got);
                (end.map_err(|error| error.kind()), got.len())
            });
            // The thread reads no further at the limit.
            let written = ours.write_all(&vec![1; SIZE]).map_err(|error| error.kind());
            assert_eq!(written, Err(io::ErrorKind::BrokenPipe));
            let (_, done) = pump.finish(ours, true, |_| Waited::Ready);
            let errno = done.unwrap_err().raw_os_error();
            assert_eq!(errno, Some(libc::EFBIG));
            // No *close notify*.
            let (end, length) = reads.join().unwrap();
            assert_eq!(end, Err(io::ErrorKind::UnexpectedEof));
            assert!(length > 0 && length <= 8 * RECORD, "{length} bytes");
        });
    }
}
