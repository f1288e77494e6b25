//! The control connection: lines of commands, and replies.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::{socket_calls, sys};

/// The longest line, without its end.
const LONGEST: usize = 4096;
/// Bytes of one read. A record of TLS has at most 16 KiB.
const READ: usize = 32 << 10;
/// Bytes of one write, and of a reply in memory.
const PIECE: usize = 64 << 10;
/// The maximum time of a whole reply. The timeout of the socket limits one write.
const WHOLE: Duration = Duration::from_secs(30);
/// The escape byte of Telnet (RFC 854), its commands, and those that have an option.
const IAC: u8 = 255;
const COMMANDS: RangeInclusive<u8> = 240..=254;
const WITH_OPTION: RangeInclusive<u8> = 251..=254;

/// A connection, encrypted or not.
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, NoWait>>),
    /// During the change from plain to TLS.
    Changing,
}

/// A socket that is read without blocking. A client that sends only a part of a TLS record
/// would otherwise block the session forever.
struct NoWait {
    socket: TcpStream,
    /// The end of the time of the reply that is being sent.
    until: Option<Instant>,
}

impl Read for NoWait {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(socket_calls::recv(&self.socket, bytes, RecvFlags::DONTWAIT)?.0)
    }
}

impl Write for NoWait {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Timed(&self.socket, self.until).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket to which nothing is written after this time.
struct Timed<'a>(&'a TcpStream, Option<Instant>);

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1.is_some_and(|until| Instant::now() >= until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let piece = &bytes[..bytes.len().min(PIECE)];
        Ok(socket_calls::send(self.0, piece, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The control connection.
pub struct Lines {
    stream: Stream,
    bytes: Vec<u8>,
    /// The rest of a line that is too long is discarded.
    skipping: bool,
}

/// What the client has sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(Vec<u8>),
    TooLong,
}

impl Lines {
    pub fn new(socket: TcpStream) -> Lines {
        Lines {
            stream: Stream::Plain(socket),
            bytes: Vec::new(),
            skipping: false,
        }
    }

    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.stream {
            Stream::Plain(socket) => Some(socket),
            Stream::Tls(stream) => Some(&stream.sock.socket),
            Stream::Changing => None,
        }
    }

    /// Returns the descriptor to wait for.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket().map(AsFd::as_fd)
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// Encrypts the connection from now on. Bytes that have arrived unencrypted after the
    /// command are discarded: another host may have inserted them.
    pub fn encrypt(&mut self, config: &Arc<ServerConfig>) -> io::Result<()> {
        let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        self.bytes.clear();
        self.stream = match std::mem::replace(&mut self.stream, Stream::Changing) {
            Stream::Plain(socket) => {
                let until = None;
                let socket = NoWait { socket, until };
                Stream::Tls(Box::new(StreamOwned::new(connection, socket)))
            }
            other => other,
        };
        Ok(())
    }

    /// Removes and returns the next whole line, if it has arrived.
    pub fn next(&mut self) -> Option<Line> {
        loop {
            let end = self.bytes.iter().position(|byte| *byte == b'\n');
            let Some(end) = end else {
                if self.bytes.len() > LONGEST {
                    self.bytes.clear();
                    let was_skipping = std::mem::replace(&mut self.skipping, true);
                    if !was_skipping {
                        return Some(Line::TooLong);
                    }
                }
                return None;
            };
            let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Some(match line.len() > LONGEST {
                true => Line::TooLong,
                false => Line::Text(without_telnet(&line)),
            });
        }
    }

    /// Returns the next line without removing it.
    pub fn peek(&self) -> Option<Vec<u8>> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n')?;
        let line = &self.bytes[..end];
        Some(without_telnet(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Returns whether the next line is this command.
    pub fn is_next(&self, command: &[u8]) -> bool {
        let is_it = |line: Vec<u8>| line.eq_ignore_ascii_case(command);
        self.peek().is_some_and(is_it)
    }

    /// Removes the next line, if it is this command. Returns whether it is.
    pub fn take(&mut self, command: &[u8]) -> bool {
        let is_next = self.is_next(command);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Returns the descriptor to wait for, and its events. While a line waits, or there is no
    /// room for more, only the end of the connection is awaited.
    pub fn awaited(&self) -> Option<PollFd<'_>> {
        let events = match self.has_room() {
            true => PollFlags::IN,
            false => PollFlags::RDHUP,
        };
        Some(PollFd::from_borrowed_fd(self.fd()?, events))
    }

    /// Handles an event of [`awaited`](Lines::awaited). Returns whether the connection is
    /// still open.
    pub fn advance(&mut self) -> bool {
        self.has_room() && matches!(self.fill(), Ok(true))
    }

    /// Reads once what has arrived, without waiting. Returns whether the client has closed the
    /// connection, also if lines wait before its end.
    pub fn has_ended(&mut self) -> bool {
        let end = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let Some(fd) = self.fd() else {
            return true;
        };
        let Ok(shown) = sys::shown_now(fd, PollFlags::IN | end) else {
            return false;
        };
        let has_bytes = shown.contains(PollFlags::IN) && self.has_room();
        shown.intersects(end) || has_bytes && !matches!(self.fill(), Ok(true))
    }

    fn has_room(&self) -> bool {
        self.peek().is_none() && self.bytes.len() <= LONGEST
    }

    /// Reads the bytes that have arrived, which may be only a part of a TLS record. Returns
    /// `false` if the client has closed the connection.
    pub fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = vec![0; READ];
        loop {
            let done = match &mut self.stream {
                Stream::Plain(socket) => {
                    let done = socket_calls::recv(socket, &mut bytes, RecvFlags::empty());
                    done.map(|(received, _)| received).map_err(io::Error::from)
                }
                Stream::Tls(stream) => stream.read(&mut bytes),
                Stream::Changing => Ok(0),
            };
            match done {
                Ok(n) => {
                    self.bytes.extend_from_slice(&bytes[..n]);
                    return Ok(n > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns whether a short reply can be sent without waiting for the client to read. Also
    /// true if the connection has failed: the reply then reports the error. A socket polls
    /// writable only if a third of its buffer is free (`sk_stream_is_writeable`,
    /// include/net/sock.h).
    pub fn can_send(&self) -> bool {
        let Some(fd) = self.fd() else {
            return true;
        };
        sys::shown_now(fd, PollFlags::OUT).map_or(true, |shown| !shown.is_empty())
    }

    /// Sends a reply of one line.
    pub fn reply(&mut self, code: u16, text: &[u8]) -> io::Result<()> {
        let mut line = format!("{code} ").into_bytes();
        put(&mut line, text);
        line.extend_from_slice(b"\r\n");
        self.send(&line)
    }

    /// Sends a reply of several lines (RFC 959, 4.2), which may be many: of the reply, only a
    /// piece is in memory.
    pub fn reply_lines<'a>(
        &mut self,
        code: u16,
        first: &str,
        lines: impl IntoIterator<Item = &'a [u8]>,
        last: &str,
    ) -> io::Result<()> {
        let until = Instant::now() + WHOLE;
        let mut text = format!("{code}-{first}\r\n").into_bytes();
        for line in lines {
            text.push(b' ');
            put(&mut text, line);
            text.extend_from_slice(b"\r\n");
            if text.len() >= PIECE {
                self.send_until(&text, until)?;
                text.clear();
            }
        }
        text.extend_from_slice(format!("{code} {last}\r\n").as_bytes());
        self.send_until(&text, until)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_until(bytes, Instant::now() + WHOLE)
    }

    /// Sends bytes, and closes the connection of a client that does not read them in time: one that
    /// reads a few bytes before each write times out would hold its session for hours.
    fn send_until(&mut self, bytes: &[u8], until: Instant) -> io::Result<()> {
        let done = match &mut self.stream {
            Stream::Plain(socket) => Timed(socket, Some(until)).write_all(bytes),
            Stream::Tls(stream) => {
                stream.sock.until = Some(until);
                let done = stream.write_all(bytes).and_then(|()| stream.flush());
                stream.sock.until = None;
                done
            }
            Stream::Changing => Err(io::ErrorKind::NotConnected.into()),
        };
        if done.is_err() {
            self.cut();
        }
        done
    }

    /// Ends the connection at once: further replies fail without a wait.
    pub fn cut(&self) {
        if let Some(socket) = self.socket() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Ends the connection.
    pub fn close(&mut self) {
        if let Stream::Tls(stream) = &mut self.stream {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        if let Some(socket) = self.socket() {
            let _ = socket.shutdown(Shutdown::Write);
        }
    }
}

/// Appends text without line breaks, which file names may contain. The escape byte of Telnet
/// is doubled.
fn put(line: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'\r' | b'\n' | 0 => line.push(b'?'),
            &IAC => line.extend_from_slice(&[IAC, IAC]),
            byte => line.push(*byte),
        }
    }
}

/// Removes the commands of Telnet that clients send before ABOR, at the start of the line.
///
/// Many clients do not double the escape byte in a file name. So behind the first byte of the
/// command, a single escape byte is a byte of the name: without it, the name would be that of
/// another file.
fn without_telnet(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let is_first = plain.is_empty();
        let is_command = |next: &u8| *next == IAC || is_first && COMMANDS.contains(next);
        match (byte == IAC).then(|| bytes.next_if(is_command)).flatten() {
            None => plain.push(byte),
            Some(IAC) => plain.push(IAC),
            Some(command) if WITH_OPTION.contains(&command) => drop(bytes.next()),
            Some(_) => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (TcpStream, Lines) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        (client, Lines::new(server))
    }

    fn text(line: &str) -> Option<Line> {
        Some(Line::Text(line.as_bytes().to_vec()))
    }

    #[test]
    fn lines_arrive_in_any_pieces() {
        let (mut client, mut lines) = pair();
        client.write_all(b"NOOP\r\nPW").unwrap();
        assert!(lines.fill().unwrap());
        assert_eq!(lines.peek(), Some(b"NOOP".to_vec()));
        assert_eq!(lines.next(), text("NOOP"));
        assert_eq!(lines.next(), None);
        client.write_all(b"D\n\xff\xf4\xff\xf2ABOR\r\n").unwrap();
        assert!(lines.fill().unwrap());
        assert_eq!(lines.next(), text("PWD"));
        assert_eq!(lines.next(), text("ABOR"));
        drop(client);
        assert!(!lines.fill().unwrap());
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over_once() {
        let (mut client, mut lines) = pair();
        let long = vec![b'x'; 3 * LONGEST];
        client.write_all(&long).unwrap();
        client.write_all(b"\r\nNOOP\r\n").unwrap();
        drop(client);
        let mut all = Vec::new();
        while lines.fill().unwrap() {
            all.extend(std::iter::from_fn(|| lines.next()));
        }
        assert_eq!(all, [Line::TooLong, Line::Text(b"NOOP".to_vec())]);
    }

    #[test]
    fn a_name_cannot_add_a_line() {
        let (mut client, mut lines) = pair();
        lines.reply(257, b"\"/a\r\n226 b\"").unwrap();
        drop(lines);
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        assert_eq!(got, "257 \"/a??226 b\"\r\n");
    }

    #[test]
    fn a_reply_may_have_many_lines() {
        let (mut client, mut lines) = pair();
        let names: Vec<String> = (0..50_000).map(|number| format!("f{number}")).collect();
        let reads = std::thread::spawn(move || {
            let mut got = String::new();
            client.read_to_string(&mut got).unwrap();
            got
        });
        let all = names.iter().map(String::as_bytes);
        lines.reply_lines(213, "Status", all, "End").unwrap();
        drop(lines);
        let got = reads.join().unwrap();
        assert!(got.len() > 2 * PIECE);
        let mut got = got.split("\r\n");
        assert_eq!(got.next(), Some("213-Status"));
        for name in &names {
            assert_eq!(got.next().unwrap().strip_prefix(' '), Some(&name[..]));
        }
        assert_eq!(got.collect::<Vec<_>>(), ["213 End", ""]);
    }

    /// The timeout of the socket begins again with each write.
    #[test]
    fn the_time_of_a_whole_reply_is_bounded() {
        let (mut client, mut lines) = pair();
        let error = lines
            .send_until(b"226 late\r\n", Instant::now())
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(
            got.is_empty() && lines.reply(226, b"").is_err(),
            "it is closed"
        );
        // With TLS, too.
        let (_client, lines) = pair();
        let Stream::Plain(socket) = lines.stream else {
            panic!("it is not encrypted");
        };
        let until = Some(Instant::now());
        let error = NoWait { socket, until }.write(b"record").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn the_escape_byte_of_telnet_is_a_byte_of_a_name() {
        for (sent, name) in [
            (&b"DELE a\xffb"[..], &b"DELE a\xffb"[..]),
            (b"DELE a\xff\xffb", b"DELE a\xffb"),
            (b"DELE a\xff", b"DELE a\xff"),
            (b"DELE a\xff\xff\xff\xff", b"DELE a\xff\xff"),
            (b"\xff\xf4\xff\xf2ABOR", b"ABOR"),
            (b"\xff\xfd\x01NOOP", b"NOOP"),
            (b"\xff\xfd", b""),
            (b"DELE \xff\xf0abc", b"DELE \xff\xf0abc"),
            (b"DELE \xff\xfdabc", b"DELE \xff\xfdabc"),
            (b"DELE \xff\xff\xf4abc", b"DELE \xff\xf4abc"),
            (
                b"\xff\xf4\xff\xf2DELE \xff\xfe\xff\xff",
                b"DELE \xff\xfe\xff",
            ),
        ] {
            assert_eq!(without_telnet(sent), name);
        }
        let mut reply = Vec::new();
        put(&mut reply, b"/a\xffb\xff");
        assert_eq!(reply, b"/a\xff\xffb\xff\xff");
        assert_eq!(without_telnet(&reply), b"/a\xffb\xff");
    }
}
