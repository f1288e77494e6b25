//! Encrypted data connections. Their bytes pass through user space: a thread moves them
//! between the connection and a socket pair. The control descriptor uses the other end of
//! the pair.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::waiting::Waited;
use crate::sys;

/// Bytes that are encrypted at a time.
const BLOCK: usize = 64 << 10;

/// Reads the certificate chain and its key.
///
/// # Errors
///
/// A message that names the file.
pub fn config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let shown = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let chain =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| shown(cert, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| shown(key, &error))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(|error| shown(cert, &error))?;
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
    socket: TcpStream,
}

impl Pump {
    /// Starts the thread. Returns the end of the pair that replaces the connection.
    pub fn start(
        config: &Arc<ServerConfig>,
        socket: TcpStream,
        direction: Direction,
    ) -> io::Result<(Pump, UnixStream)> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        let (ours, theirs) = UnixStream::pair()?;
        let complete = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&complete);
        let copy = socket.try_clone()?;
        let run = move || {
            let stream = StreamOwned::new(connection, copy);
            match direction {
                Direction::ToClient => encrypt(stream, theirs, &flag),
                Direction::FromClient => decrypt(stream, &theirs),
            }
        };
        let thread = sys::without_signals(|| {
            let thread = std::thread::Builder::new().name("cordboard-tls".to_owned());
            thread.stack_size(256 << 10).spawn(run)
        })?;
        let pump = Pump {
            thread,
            complete,
            socket,
        };
        Ok((pump, ours))
    }

    /// Waits for the end of the thread. `complete`: all bytes of the source were moved.
    /// `wait` waits until the descriptor hangs up, which may take long if the client does
    /// not read the last bytes. Its result is returned. If that is not `Ready`, the
    /// connection is shut down.
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
            let _ = self.socket.shutdown(Shutdown::Both);
        }
        drop(ours);
        let panicked = |_| Err(io::Error::other("the thread has panicked"));
        (waited, self.thread.join().unwrap_or_else(panicked))
    }
}

fn encrypt(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    mut from: UnixStream,
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
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        stream.conn.send_close_notify();
        stream.flush()?;
    }
    Ok(())
}

fn decrypt(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    mut to: &UnixStream,
) -> io::Result<()> {
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
