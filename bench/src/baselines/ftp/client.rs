//! Clients that get a file each at the same time. The kernel discards the bytes, so
//! that the servers are measured, not the clients.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::net::{RecvFlags, recv};

use crate::harness::digest::{Content, digest_of};

/// A server that does not answer for so long has failed.
const PATIENCE: Duration = Duration::from_secs(100);
const ROOM: usize = 1 << 20;

/// Logs `count` clients in, then gets `source0`, `source1`, … at once. Prints the
/// seconds from the first command to the last byte, the bytes, and their digest if
/// `verify` is set.
pub fn run(port: u16, count: usize, verify: bool) -> Result<()> {
    let ready = Arc::new(Barrier::new(count + 1));
    let clients: Vec<_> = (0..count)
        .map(|n| {
            let ready = Arc::clone(&ready);
            std::thread::spawn(move || {
                let prepared = Session::prepare(port);
                // Also after an error: the others wait.
                ready.wait();
                prepared?.get(&format!("source{n}"), verify)
            })
        })
        .collect();
    ready.wait();
    let (mut contents, mut spans) = (Vec::new(), Vec::new());
    for client in clients {
        let client = client.join().map_err(|_| anyhow!("a client panicked"))?;
        let (content, span) = client.context("a client")?;
        contents.push(content);
        spans.push(span);
    }
    let all = Content::of_all(&contents);
    // This thread may run only after the clients have begun, so the times are theirs.
    let first = spans.iter().map(|span| span.0).min();
    let last = spans.iter().map(|span| span.1).max();
    let (first, last) = first.zip(last).context("no clients")?;
    let seconds = (last - first).as_secs_f64();
    println!("{seconds} {} {}", all.bytes, all.digest);
    Ok(())
}

struct Session {
    replies: BufReader<TcpStream>,
    data: TcpStream,
}

impl Session {
    /// Logs in and makes the data connection.
    fn prepare(port: u16) -> Result<Session> {
        let control = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        control.set_read_timeout(Some(PATIENCE))?;
        control.set_nodelay(true)?;
        let mut replies = BufReader::new(control);
        expect(&mut replies, '2')?;
        tell(&mut replies, "USER anonymous")?;
        if reply(&mut replies)?.starts_with('3') {
            tell(&mut replies, "PASS bench@example.org")?;
            expect(&mut replies, '2')?;
        }
        tell(&mut replies, "TYPE I")?;
        expect(&mut replies, '2')?;
        tell(&mut replies, "PASV")?;
        let port = port_of(&expect(&mut replies, '2')?).context("no port in the answer to PASV")?;
        let data = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        Ok(Session { replies, data })
    }

    /// Returns the content of a file, and the times of the command and of the last byte.
    fn get(mut self, name: &str, verify: bool) -> Result<(Content, (Instant, Instant))> {
        let start = Instant::now();
        tell(&mut self.replies, &format!("RETR {name}"))?;
        expect(&mut self.replies, '1')?;
        let content = match verify {
            true => digest_of(&self.data)?,
            false => discard(&self.data)?,
        };
        let end = Instant::now();
        drop(self.data);
        expect(&mut self.replies, '2')?;
        tell(&mut self.replies, "QUIT")?;
        expect(&mut self.replies, '2')?;
        Ok((content, (start, end)))
    }
}

fn discard(data: &TcpStream) -> Result<Content> {
    let mut room = vec![0; ROOM];
    let mut bytes = 0;
    loop {
        match recv(data, &mut room[..], RecvFlags::TRUNC)?.1 {
            0 => return Ok(Content { bytes, digest: 0 }),
            n => bytes += n as u64,
        }
    }
}

fn tell(control: &mut BufReader<TcpStream>, line: &str) -> Result<()> {
    Ok(control
        .get_mut()
        .write_all(format!("{line}\r\n").as_bytes())?)
}

/// The last line of a reply, which may have several.
fn reply(control: &mut BufReader<TcpStream>) -> Result<String> {
    loop {
        let mut line = String::new();
        ensure!(control.read_line(&mut line)? > 0, "the server has gone");
        let code = line.as_bytes();
        if code.len() > 3 && code[..3].iter().all(u8::is_ascii_digit) && code[3] == b' ' {
            return Ok(line);
        }
    }
}

fn expect(control: &mut BufReader<TcpStream>, first: char) -> Result<String> {
    let line = reply(control)?;
    ensure!(line.starts_with(first), "the server says {}", line.trim());
    Ok(line)
}

/// The port in `227 … (a,b,c,d,HIGH,LOW)`.
fn port_of(line: &str) -> Option<u16> {
    let inside = line.split_once('(')?.1.split_once(')')?.0;
    let mut last = inside.split(',').skip(4).map(str::parse::<u8>);
    let high = last.next()?.ok()?;
    let low = last.next()?.ok()?;
    Some(u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::port_of;

    #[test]
    fn the_port_of_a_passive_connection() {
        assert_eq!(port_of("227 Entering (127,0,0,1,200,1)."), Some(51201));
        assert_eq!(port_of("227 Entering (127,0,0,1,300,1)."), None);
        assert_eq!(port_of("502 no"), None);
    }
}
