//! Logins, and the encryption of the connections.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::log;
use super::passwords::NotVerified;
use super::root::Place;
use super::session::{Next, Session, Step};
use crate::polling::poll_or_rest;

/// Wrong passwords after which a client is disconnected, and the pause after each.
const FAILURES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// The longest wait for the verification of a password.
const PATIENCE: Duration = Duration::from_secs(30);

impl Session {
    pub(super) fn user(&mut self, name: &[u8]) -> Step {
        self.log_out(Instant::now());
        self.rest = 0;
        if self.server.require_tls && !self.lines.is_encrypted() {
            return self.say(530, "Send AUTH TLS first");
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let text = match self.server.users.takes_anonymous(&name) {
            true => "Any password is accepted",
            false => "Password required",
        };
        self.name = Some(name);
        self.say(331, text)
    }

    pub(super) fn pass(&mut self, password: &[u8]) -> Step {
        let Some(name) = self.name.take() else {
            return self.say(503, "Send USER first");
        };
        let until = Instant::now() + PATIENCE;
        let found = match self.server.users.login(&name, password, self.client, until) {
            Ok(found) => found,
            Err(why) => {
                let why = match why {
                    NotVerified::Busy => "Too many clients are logging in",
                    NotVerified::Ending => "The server is shutting down",
                    NotVerified::Refused => "Too many wrong passwords from this address",
                    NotVerified::NoMemory => "No memory to verify the password",
                };
                let name = log::field(&name);
                let text = format!("{} {name} LOGIN: not verified: {why}", self.client);
                self.server.log.line(&text);
                return self.say(421, why).map(|_| Next::Quit);
            }
        };
        if let Some(user) = found {
            let rights = if user.writes {
                "read and write"
            } else {
                "read-only"
            };
            let text = format!("Logged in, {rights}");
            self.user = Some(user);
            self.here = Place::default();
            return self.say(230, &text);
        }
        self.failures += 1;
        let name = log::field(&name);
        let text = format!("{} {name} LOGIN: wrong password", self.client);
        self.server.log.line(&text);
        self.pause();
        if self.failures < FAILURES {
            return self.say(530, "Wrong name or password");
        }
        self.say(421, "Too many wrong passwords")
            .map(|_| Next::Quit)
    }

    /// Delays the reply to a wrong password, unless the server is shutting down.
    fn pause(&self) {
        let mut fds = [PollFd::from_borrowed_fd(
            self.server.ending.as_fd(),
            PollFlags::IN,
        )];
        let _ = poll_or_rest(&mut fds, Some(PAUSE));
    }

    pub(super) fn auth(&mut self, how: &[u8]) -> Step {
        let Some(config) = self.server.tls.clone() else {
            return self.say(502, "The server has no certificate");
        };
        if !matches!(how, b"TLS" | b"TLS-C" | b"SSL") {
            return self.say(504, "Only AUTH TLS is supported");
        }
        if self.lines.is_encrypted() {
            return self.say(503, "The connection is already encrypted");
        }
        self.say(234, "Start the TLS handshake")?;
        self.log_out(Instant::now());
        self.name = None;
        self.lines.encrypt(&config)?;
        Ok(Next::Continue)
    }

    pub(super) fn prot(&mut self, level: u8) -> Step {
        match level {
            _ if !self.lines.is_encrypted() => self.say(503, "Send AUTH TLS first"),
            b'C' if self.server.require_tls => self.say(534, "Data connections must be encrypted"),
            b'P' | b'C' => {
                self.private = level == b'P';
                self.say(
                    200,
                    match self.private {
                        true => "Data connections are encrypted, and bytes pass through user space",
                        false => "Data connections are not encrypted",
                    },
                )
            }
            _ => self.say(536, "Only PROT P and PROT C are supported"),
        }
    }
}
