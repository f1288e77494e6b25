//! STAT and NOOP, which clients send while the session waits or moves bytes.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::lines::Lines;
use crate::units;

/// The maximum number of commands that wait for a reply. Further ones stay unread.
const MOST: usize = 16;
/// The maximum time for the replies that wait at the end.
const LAST: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// STAT.
    Status,
    /// NOOP, which clients send to keep the connection alive.
    Nothing,
}

/// The commands that were read and have no reply, in their order. They are read before their
/// replies can be sent, so that an ABOR behind them is seen.
#[derive(Debug, Default)]
pub struct Asked {
    questions: VecDeque<Question>,
    is_aborted: bool,
}

impl Asked {
    /// `is_aborted`: an ABOR was taken before.
    pub fn after(is_aborted: bool) -> Asked {
        Asked {
            questions: VecDeque::new(),
            is_aborted,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// Returns whether a STAT waits for a reply.
    pub fn asks_status(&self) -> bool {
        self.questions.contains(&Question::Status)
    }

    /// Removes the next command if it is ABOR. Returns whether it is. The replies to ABOR come at
    /// the end of the transfer, and those to the commands behind it come later. So the session
    /// carries out these commands after the transfer.
    pub fn take_abort(&mut self, lines: &mut Lines) -> bool {
        let takes = !self.is_aborted && lines.take(b"ABOR");
        self.is_aborted |= takes;
        takes
    }

    /// Returns whether a command can be taken now.
    pub fn is_next(&self, lines: &Lines) -> bool {
        self.next(lines).is_some()
    }

    fn next(&self, lines: &Lines) -> Option<Question> {
        let commands = [
            (&b"STAT"[..], Question::Status),
            (b"NOOP", Question::Nothing),
        ];
        let takes = !self.is_aborted && self.questions.len() < MOST;
        let mut commands = commands.into_iter().filter(|_| takes);
        Some(commands.find(|(command, _)| lines.is_next(command))?.1)
    }

    /// Removes the commands that come next, and stores them. Returns whether there are any.
    pub fn take(&mut self, lines: &mut Lines) -> bool {
        let before = self.questions.len();
        while let Some(question) = self.next(lines) {
            lines.next();
            self.questions.push_back(question);
        }
        self.questions.len() > before
    }

    /// Sends the replies for which the socket has room. A wait for the client would delay the
    /// session. `status` is the reply to STAT. Without one, the first STAT and what follows it
    /// wait. Returns `false` if the connection has failed.
    pub fn answer(&mut self, lines: &mut Lines, status: Option<&str>) -> bool {
        while let Some(reply) = self.reply(status).filter(|_| lines.can_send()) {
            self.questions.pop_front();
            if lines.reply(reply.0, reply.1.as_bytes()).is_err() {
                self.give_up(lines);
                return false;
            }
        }
        true
    }

    /// Sends all replies, and closes the connection of a client that does not read them in time.
    /// Returns `false` in that case.
    pub fn finish(&mut self, lines: &mut Lines, status: &str) -> bool {
        self.finish_until(lines, status, Instant::now() + LAST)
    }

    fn finish_until(&mut self, lines: &mut Lines, status: &str, until: Instant) -> bool {
        while let Some((code, text)) = self.reply(Some(status)) {
            self.questions.pop_front();
            // Each further reply could wait as long as this one.
            if lines.reply(code, text.as_bytes()).is_err() || Instant::now() >= until {
                self.give_up(lines);
                return false;
            }
        }
        true
    }

    fn give_up(&mut self, lines: &mut Lines) {
        lines.cut();
        self.questions.clear();
    }

    /// Returns the next reply.
    fn reply<'a>(&self, status: Option<&'a str>) -> Option<(u16, &'a str)> {
        match self.questions.front()? {
            Question::Status => status.map(|text| (213, text)),
            Question::Nothing => Some((200, "OK")),
        }
    }
}

/// Returns the reply to STAT during a transfer.
pub fn so_far(written: u64) -> String {
    format!("{} so far", units::number_of(written, "byte"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpListener, TcpStream};

    use rustix::net::sockopt;

    use super::*;

    const STATUS: &str = "many of these replies exceed the buffers of the connection";

    /// A client that has sent these commands.
    fn asked(commands: &[u8]) -> (TcpStream, Lines, Asked) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let short = Duration::from_millis(1);
        socket.set_write_timeout(Some(short)).unwrap();
        // The replies that are not read fill the buffers.
        sockopt::set_socket_send_buffer_size(&socket, 4096).unwrap();
        sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
        client.write_all(commands).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut lines = Lines::new(socket);
        while lines.fill().unwrap() {}
        (client, lines, Asked::default())
    }

    /// The codes of the replies.
    fn received(mut client: TcpStream) -> Vec<String> {
        let mut got = String::new();
        client.read_to_string(&mut got).unwrap();
        got.lines().map(|line| line[..3].to_owned()).collect()
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    /// Each reply would wait for the write timeout.
    #[test]
    fn a_client_that_does_not_read_gets_no_further_replies() {
        let (_client, mut lines, mut asked) = asked(b"");
        asked.questions.extend([Question::Status; 10_000]);
        assert!(!asked.finish_until(&mut lines, STATUS, later()));
        assert!(asked.is_empty());
        assert!(lines.reply(226, b"").is_err(), "the connection is cut");
    }

    /// A client that reads one reply before each timeout would otherwise hold the session.
    #[test]
    fn the_time_of_all_replies_is_bounded() {
        let (client, mut lines, mut asked) = asked(b"STAT\r\nNOOP\r\nSTAT\r\n");
        assert!(asked.take(&mut lines));
        assert!(!asked.finish_until(&mut lines, STATUS, Instant::now()));
        assert_eq!(received(client).len(), 1);
    }

    /// A reply that would wait for the client is deferred until there is room.
    #[test]
    fn a_client_that_does_not_read_delays_no_transfer() {
        let (client, mut lines, mut asked) = asked(b"");
        asked.questions.extend([Question::Status; 10_000]);
        let sent = asked.answer(&mut lines, Some(STATUS));
        assert!(sent, "a reply has waited for the write timeout");
        let waits = asked.questions.len();
        assert!(waits > 0 && waits < 10_000, "{waits}");
        // An acknowledgement may have made room for a few more.
        assert!(asked.answer(&mut lines, Some(STATUS)));
        let waits = asked.questions.len();
        assert!(waits > 0, "there is no room for all");
        drop(lines);
        assert_eq!(received(client).len(), 10_000 - waits);
    }

    /// The commands of a client that does not read its replies stay unread.
    #[test]
    fn few_commands_wait() {
        let (_client, mut lines, mut asked) = asked(&b"STAT\r\nNOOP\r\n".repeat(50));
        assert!(asked.take(&mut lines));
        assert_eq!(asked.questions.len(), MOST);
        assert!(!asked.is_next(&lines) && !asked.take(&mut lines));
        assert!(lines.is_next(b"stat"));
        assert!(asked.finish_until(&mut lines, STATUS, later()));
        assert!(asked.take(&mut lines));
        assert_eq!(asked.questions.len(), MOST);
    }

    #[test]
    fn nothing_behind_an_abort_is_taken() {
        let (_client, mut lines, mut asked) = asked(b"NOOP\r\nABOR\r\nABOR\r\nSTAT\r\n");
        assert!(!asked.take_abort(&mut lines), "NOOP comes first");
        assert!(asked.take(&mut lines) && asked.take_abort(&mut lines));
        for behind in [&b"ABOR"[..], b"STAT"] {
            assert!(!asked.is_next(&lines) && !asked.take(&mut lines));
            assert!(!asked.take_abort(&mut lines));
            assert!(lines.take(behind));
        }
        assert_eq!(asked.questions, [Question::Nothing]);
        assert!(!Asked::after(true).take_abort(&mut lines));
    }

    /// NOOP is answered at once, but not before an earlier STAT, which needs a count.
    #[test]
    fn the_replies_have_the_order_of_the_commands() {
        let (client, mut lines, mut asked) = asked(b"NOOP\r\nSTAT\r\nnoop\r\nPWD\r\nSTAT\r\n");
        assert!(asked.take(&mut lines) && asked.asks_status());
        assert!(lines.is_next(b"PWD"));
        assert!(asked.answer(&mut lines, None));
        assert_eq!(asked.questions, [Question::Status, Question::Nothing]);
        assert!(asked.answer(&mut lines, Some(STATUS)));
        assert!(asked.is_empty() && !asked.asks_status());
        drop(lines);
        assert_eq!(received(client), ["200", "213", "200"]);
    }
}
