//! Thresholds below which `poll(2)` does not report a source readable although
//! `read(2)` returns: VMIN and VTIME of a terminal, `SO_RCVLOWAT` of a socket.

use std::time::Duration;

use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr};

use crate::endpoint::{Kind, is_pty_master};
use crate::path::Flow;
use crate::sys;

/// How often a source below its threshold is checked.
pub(in crate::transfer) const TICK: Duration = Duration::from_millis(100);

/// The condition under which a read of the source returns although `poll(2)`
/// reports nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::transfer) enum Threshold {
    /// Without bytes, after this time of silence: the end (`termios(3)`, VTIME with
    /// a VMIN of 0; `n_tty_read`, drivers/tty/n_tty.c).
    Silence(Duration),
    /// With this many bytes, the most that a read would request.
    Bytes(u64),
}

impl Threshold {
    /// Returns the threshold for the next read; `None` also if the source does not
    /// report it.
    pub(in crate::transfer) fn of(flow: &Flow<'_>) -> Option<Threshold> {
        // Not only what the schedule has granted: there is no grant during a wait.
        let wanted = flow.want_later() as u64;
        if wanted == 0 {
            return None;
        }
        let mark = match flow.source.kind() {
            Kind::Tty => match terminal(flow)? {
                (0, time) => return Some(Threshold::Silence(time)),
                (least, Duration::ZERO) => u64::from(least),
                // `poll(2)` reports the first byte.
                _ => return None,
            },
            // For other sockets, `poll(2)` ignores the mark (`tcp_poll`,
            // net/ipv4/tcp.c; `unix_poll`, net/unix/af_unix.c). It is an `int`.
            Kind::Tcp | Kind::StreamSocket if wanted < i32::MAX as u64 => {
                sys::receive_mark(flow.source.fd())?
            }
            _ => return None,
        };
        (wanted < mark).then_some(Threshold::Bytes(wanted))
    }

    /// Returns whether a read would return immediately.
    pub(in crate::transfer) fn is_reached(self, flow: &Flow<'_>, silent: Duration) -> bool {
        match self {
            Threshold::Silence(limit) => silent >= limit,
            Threshold::Bytes(wanted) => sys::unsent(flow.source.fd()).is_ok_and(|n| n >= wanted),
        }
    }

    /// Returns the time until the next check.
    pub(in crate::transfer) fn next_check(self, silent: Duration) -> Duration {
        match self {
            Threshold::Silence(limit) => limit.saturating_sub(silent),
            Threshold::Bytes(_) => TICK,
        }
    }
}

/// Returns VMIN and VTIME of a terminal in non-canonical mode. The master of a
/// pseudoterminal reports those of its slave.
fn terminal(flow: &Flow<'_>) -> Option<(u8, Duration)> {
    let fd = flow.source.fd();
    let modes = tcgetattr(fd).ok()?;
    if modes.local_modes.contains(LocalModes::ICANON) || is_pty_master(fd) {
        return None;
    }
    let [least, time] =
        [SpecialCodeIndex::VMIN, SpecialCodeIndex::VTIME].map(|code| modes.special_codes[code]);
    Some((least, Duration::from_millis(100) * u32::from(time)))
}
