//! Encrypted data connections. Their bytes pass through user space: a thread moves them
//! between the connection and a socket pair. The control descriptor uses the other end of
//! the pair.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, ServerConfig, ServerConnection, StreamOwned};

use super::waiting::Waited;
use crate::sys;

/// Bytes that are encrypted at a time.
const BLOCK: usize = 64 << 10;

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

/// A thread that encrypts or decrypts.
pub struct Pump {
    thread: JoinHandle<io::Result<()>>,
    /// The whole file was sent: the thread may send *close notify*.
    complete: Arc<AtomicBool>,
}

/// A data connection whose reads and writes also end when the session shuts down its end of
/// the pair. A shutdown of the connection would also wake the thread, but would send the
/// end of the file.
struct Connection {
    socket: TcpStream,
    pair: Arc<UnixStream>,
}

impl Connection {
    fn wait(&self, events: PollFlags) -> io::Result<()> {
        let mut fds = [
            PollFd::new(&self.socket, events),
            PollFd::new(&*self.pair, PollFlags::empty()),
        ];
        match poll(&mut fds, None) {
            Ok(_) if !fds[1].revents().is_empty() => Err(io::ErrorKind::ConnectionAborted.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Read for Connection {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match recv(&self.socket, &mut *bytes, RecvFlags::DONTWAIT) {
                Ok((_, n)) => return Ok(n),
                Err(rustix::io::Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match send(
                &self.socket,
                bytes,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
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
    /// Starts the thread. Returns the end of the pair that replaces the connection. The
    /// thread truncates `replaced` after the handshake, before it passes on any byte.
    pub fn start(
        config: &Arc<ServerConfig>,
        socket: TcpStream,
        direction: Direction,
        replaced: Option<File>,
    ) -> io::Result<(Pump, UnixStream)> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        let (ours, theirs) = UnixStream::pair()?;
        let complete = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&complete);
        let theirs = Arc::new(theirs);
        let run = move || {
            let pair = Arc::clone(&theirs);
            let stream = StreamOwned::new(connection, Connection { socket, pair });
            match direction {
                Direction::ToClient => encrypt(stream, &theirs, &flag),
                Direction::FromClient => decrypt(stream, &theirs, replaced),
            }
        };
        let thread = sys::without_signals(|| {
            let thread = std::thread::Builder::new().name("cordboard-tls".to_owned());
            thread.stack_size(256 << 10).spawn(run)
        })?;
        Ok((Pump { thread, complete }, ours))
    }

    /// Waits for the end of the thread. `complete`: all bytes of the source were moved.
    /// `wait` waits until the descriptor hangs up, which may take long if the client does
    /// not read the last bytes. Its result is returned. If that is not `Ready`, the thread
    /// ends without having sent all bytes.
    ///
    /// # Errors
    ///
    /// The connection has failed, or has ended without the end of TLS: bytes may be
    /// missing.
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
    mut from: &UnixStream,
    complete: &AtomicBool,
) -> io::Result<()> {
    let mut block = vec![0; BLOCK];
    loop {
        match from.read(&mut block) {
            Ok(0) => break,
            Ok(n) => stream.write_all(&block[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if complete.load(Ordering::Acquire) {
        // The handshake is also needed for an empty file.
        shake_hands(&mut stream)?;
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    Ok(())
}

fn shake_hands(stream: &mut StreamOwned<ServerConnection, Connection>) -> io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}

fn decrypt(
    mut stream: StreamOwned<ServerConnection, Connection>,
    mut to: &UnixStream,
    replaced: Option<File>,
) -> io::Result<()> {
    shake_hands(&mut stream)?;
    if let Some(file) = replaced {
        file.set_len(0)?;
    }
    let mut block = vec![0; BLOCK];
    loop {
        match stream.read(&mut block) {
            // The end of TLS; without it, rustls reports `UnexpectedEof`.
            Ok(0) => {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                return Ok(());
            }
            Ok(n) => to.write_all(&block[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
