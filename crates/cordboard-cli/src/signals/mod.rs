//! Signals: SIGINT, SIGTERM, SIGHUP and an [alarm] end the transfer with its
//! report. SIGUSR1 requests a line of progress.
//!
//! The handlers do not restart system calls. A signal can arrive just before a
//! call that then blocks. Each request therefore also starts an interval timer,
//! whose SIGALRM interrupts the thread until the request is noticed (see
//! [`Control::interrupting`](cordboard::Control::interrupting)).
//!
//! A second signal to stop ends the process, whatever call it is in.
//!
//! After a signal that another process has sent, the exit status is 128 + its number. One that
//! the terminal has generated ends the process by its default action.

mod alarm;
mod blocked;
mod handlers;
mod retry;
mod state;
pub mod terminal;
mod timer;

pub use handlers::{Place, cancel, install, polled, remove_at_exit, stop_so_far, uninterruptible};
pub use retry::{repeat_interrupted, retry};
pub use state::{
    Interrupted, check_stop, is_of_terminal, is_progress_requested, name, reaches_this_thread,
    set_written, status_of, stop, take_progress_request, written,
};
pub use timer::{draw_every, tick, with_timer};

#[cfg(test)]
pub use state::{record_old_stop, request_progress};
