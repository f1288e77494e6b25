//! One process that steers the command.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::Errno;
use cordboard::cue::{Command, Commands, Limit, Record, Status};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// The number of bytes of waiting records from which no further command is carried out.
const ENOUGH: usize = 1024;
const SHORTEST: Duration = Duration::from_millis(10);
/// The maximum number of consecutive reads, so that a client that sends without end does not
/// delay the others.
const READS: u32 = 8;

/// A transfer that clients steer.
pub trait Steered {
    /// Returns its status.
    fn status(&self) -> Status;
    /// Carries out a command that concerns the transfer.
    fn steer(&self, command: Command) -> Result<(), Errno>;
}

/// A connection to the control socket.
pub struct Client {
    pub socket: Arc<OwnedFd>,
    commands: Commands,
    output: Vec<u8>,
    /// The allowed commands, one bit each (`Limit::Commands`).
    allowed: u32,
    progress: Option<(Duration, Instant)>,
    /// The peer has closed its end, or sends no more commands.
    pub is_closed: bool,
}

impl Client {
    pub fn new(socket: OwnedFd) -> Client {
        Client {
            socket: Arc::new(socket),
            commands: Commands::default(),
            output: Vec::new(),
            allowed: u32::MAX,
            progress: None,
            is_closed: false,
        }
    }

    /// Returns whether it waits for commands, and for room for records.
    pub fn interest(&self) -> (bool, bool) {
        (self.output.len() < ENOUGH, !self.output.is_empty())
    }

    /// Returns the time of the next report of progress.
    pub fn next_report(&self) -> Option<Instant> {
        self.progress.map(|(_, next)| next)
    }

    /// Carries out the commands that have arrived, and sends the records that are due.
    pub fn advance(&mut self, steered: &dyn Steered) {
        if let Some((every, next)) = self.progress
            && Instant::now() >= next
        {
            self.progress = Some((every, Instant::now() + every));
            if self.output.is_empty() {
                self.put(&Record::Status(steered.status()));
            }
        }
        let mut reads = 0;
        loop {
            self.send();
            if self.is_closed || self.output.len() >= ENOUGH {
                return;
            }
            match self.commands.next() {
                Some(Ok(command)) => {
                    if let Err(errno) = self.execute(command, steered) {
                        self.put(&Record::refused(command, errno));
                    }
                }
                Some(Err(bad)) => self.put(&Record::Refused {
                    word: bad.word,
                    errno: Errno::EINVAL,
                }),
                None if reads < READS && self.receive() => reads += 1,
                None => return,
            }
        }
    }

    /// Reads commands. Returns whether any bytes have arrived.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 512];
        let room = self.commands.room().min(bytes.len());
        match recv(&*self.socket, &mut bytes[..room], RecvFlags::DONTWAIT) {
            Ok((_, n @ 1..)) => self.commands.push(&bytes[..n]) > 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Ok((_, 0)) | Err(_) => {
                self.is_closed = true;
                false
            }
        }
    }

    fn execute(&mut self, command: Command, steered: &dyn Steered) -> Result<(), Errno> {
        if self.allowed & command.bit() == 0 {
            return Err(Errno::EPERM);
        }
        match command {
            Command::Status => self.put(&Record::Status(steered.status())),
            Command::Progress(0) => self.progress = None,
            Command::Progress(every) => {
                let every = Duration::from_millis(u64::from(every)).max(SHORTEST);
                self.progress = Some((every, Instant::now() + every));
            }
            Command::Limit(Limit::Commands(allowed)) => self.allowed &= allowed,
            command => return steered.steer(command),
        }
        Ok(())
    }

    pub fn put(&mut self, record: &Record) {
        record.encode(&mut self.output);
    }

    pub fn send(&mut self) {
        while !self.output.is_empty() {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match send(&*self.socket, &self.output, flags) {
                Ok(sent) => drop(self.output.drain(..sent)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => return,
                Err(_) => {
                    self.output.clear();
                    self.is_closed = true;
                }
            }
        }
    }
}
