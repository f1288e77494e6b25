//! The environment of the player's loop: a timer, descriptors, a terminal.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cordboard::{Control, Errno, Observer, Progress, poll_for};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::audio::Audio;
use super::keys::Keys;
use super::show::{Environment, Order, Step, Wake};
use super::tally::Tally;
use super::video::Video;
use crate::problem::Problem;
use crate::progress::{Screen, Style, fit, width};
use crate::{signals, units};

/// The interval at which the line is drawn while the audio is waited for, and keys are
/// read while a frame is stuck.
const EVERY: Duration = Duration::from_millis(100);

/// The polling interval if poll(2) is refused.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What runs while frames are shown.
pub struct Live {
    /// `None`: not available; `poll(2)` measures the time.
    timer: Option<OwnedFd>,
    audio: Audio,
    audio_over: bool,
    control: &'static Control,
    keys: Option<Keys>,
    status_line: StatusLine,
    /// Why waiting is not possible.
    failed: Option<Errno>,
}

/// The status line.
struct StatusLine {
    style: Style,
    screen: Screen,
    drawn_at: Duration,
    /// The line shows that the video is paused.
    paused: bool,
}

/// Makes a timer for absolute times of the monotonic clock:
/// `timerfd_create(2)`, since Linux 2.6.25.
fn timer() -> Option<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(TimerfdClockId::Monotonic, flags).ok()
}

/// Returns the time of the monotonic clock, which the timer uses.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

impl Live {
    /// With audio that runs, and status lines in this style.
    pub fn new(audio: Audio, keys: Option<Keys>, style: Style) -> Live {
        Live {
            timer: timer(),
            audio,
            audio_over: false,
            control: signals::polled(),
            keys,
            status_line: StatusLine {
                style,
                screen: Screen::new(style),
                drawn_at: match style {
                    Style::Lines => now(),
                    _ => Duration::ZERO,
                },
                paused: false,
            },
            failed: None,
        }
    }

    /// Waits until the audio has ended. Returns what has ended the wait.
    pub fn wait_for_audio(&mut self, tally: &Tally) -> Wake {
        loop {
            match self.wait_until(None, tally) {
                // No video is left whose speed it could change.
                Wake::Order(order) if order != Order::Quit => {}
                wake => return wake,
            }
        }
    }

    /// Cancels the audio too.
    pub fn cancel(&self) {
        self.audio.cancel();
    }

    /// Whether a key has quit the player.
    pub fn has_quit(&self) -> bool {
        self.keys.as_ref().is_some_and(Keys::has_quit)
    }

    /// Returns the error that has made waiting impossible.
    pub fn problem(&self) -> Option<Problem> {
        self.failed.map(|errno| {
            Problem::unsided(
                "",
                errno,
                format!("{errno} waiting for the time of a frame"),
            )
        })
    }

    /// Clears the line, and restores the terminal.
    pub fn end(mut self) -> Audio {
        self.status_line.screen.clear();
        self.audio
    }

    /// Waits until the time; without one, until the audio ends.
    fn wait_until(&mut self, until: Option<Duration>, tally: &Tally) -> Wake {
        let mut armed = None;
        loop {
            if self.control.is_cancelled() {
                return Wake::Over;
            }
            if let Some(order) = self.keys.as_mut().and_then(Keys::order) {
                return Wake::Order(order);
            }
            // The descriptor of the audio may not become readable.
            self.audio_over |= self.audio.is_over();
            if until.is_none() && self.audio_over {
                return Wake::Due;
            }
            let now = now();
            print_if_requested(&mut self.status_line.screen, tally, &self.audio);
            self.status_line.update(now, tally, &self.audio);
            let left = until.map_or(EVERY, |until| until.saturating_sub(now));
            let due = left.is_zero();
            let timed = until.filter(|_| !due).is_some_and(|until| {
                // Once: the time is absolute.
                *armed.get_or_insert_with(|| self.arm(until))
            });
            match self.poll(timed, left) {
                Ok(true) if due => return Wake::Due,
                Ok(_) => {}
                Err(errno) => {
                    self.failed = Some(errno);
                    return Wake::Over;
                }
            }
        }
    }

    /// Returns the observer of a frame.
    fn frame_observer<'a>(&'a mut self, tally: &'a Tally) -> FrameObserver<'a> {
        FrameObserver {
            screen: &mut self.status_line.screen,
            tally,
            audio: &self.audio,
            keys: self.keys.as_mut(),
            control: self.control,
            looks_at: EVERY,
        }
    }

    /// Sets the timer. `false`: there is none, or it refuses the setting.
    fn arm(&self, at: Duration) -> bool {
        let setting = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(at),
        };
        self.timer.as_ref().is_some_and(|timer| {
            timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &setting).is_ok()
        })
    }

    /// Sleeps until something happens, the timer expires or, without it, the
    /// time has passed. Returns whether only time has passed.
    fn poll(&mut self, timed: bool, left: Duration) -> Result<bool, Errno> {
        let keys = self.keys.as_ref().and_then(Keys::fd);
        let audio = match self.audio_over {
            true => None,
            false => self.audio.fd().ok(),
        };
        let timer = self.timer.as_ref().filter(|_| timed).map(AsFd::as_fd);
        let [has_keys, has_audio] = [keys.is_some(), audio.is_some()];
        let fds = [keys, audio, timer].into_iter().flatten();
        let mut fds: Vec<PollFd<'_>> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = (!timed).then(|| timespec(left));
        let heard = match poll_for(&mut fds, timeout.as_ref()) {
            Ok(_) => true,
            // A signal requests something.
            Err(rustix::io::Errno::INTR) => false,
            // A filter refuses it: only signals are noticed.
            Err(_) => {
                drop(fds);
                return short_sleep(left);
            }
        };
        let is_ready = |index: usize| heard && !fds[index].revents().is_empty();
        let key = has_keys && is_ready(0);
        let over = has_audio && is_ready(usize::from(has_keys));
        drop(fds);
        if key && let Some(keys) = &mut self.keys {
            keys.read();
        }
        self.audio_over |= over;
        Ok(heard && !key && !over)
    }
}

/// The environment, with the video.
pub struct Film<'a> {
    /// What else runs.
    pub live: &'a mut Live,
    /// The frames.
    pub video: &'a mut Video,
}

impl Environment for Film<'_> {
    fn now(&mut self) -> Duration {
        now()
    }

    fn wait(&mut self, until: Duration, tally: &Tally) -> Wake {
        self.video.read_ahead();
        self.live.wait_until(Some(until), tally)
    }

    fn show(&mut self, tally: &Tally) -> Step {
        self.video
            .show(self.live.control, self.live.frame_observer(tally))
    }

    fn skip(&mut self, tally: &Tally) -> Step {
        self.video
            .skip(self.live.control, self.live.frame_observer(tally))
    }
}

impl StatusLine {
    fn update(&mut self, now: Duration, tally: &Tally, audio: &Audio) {
        // While it is paused, no frame updates the line.
        let turned = std::mem::replace(&mut self.paused, tally.paused) != tally.paused;
        let next = self.style.next(self.drawn_at, now);
        let next = next.filter(|_| tally.frames > 0);
        if self.style.is_shown() && (next.is_some() || turned) {
            self.drawn_at = next.unwrap_or(self.drawn_at);
            let pieces = tally.pieces(audio.written());
            let line = fit(&pieces, width());
            signals::with_timer(|| self.screen.draw(&line));
        }
    }
}

/// Answers SIGUSR1 while a frame is moved, and ends a frame that is stuck if
/// the user quits. Other keys are handled after it.
struct FrameObserver<'a> {
    screen: &'a mut Screen,
    tally: &'a Tally,
    audio: &'a Audio,
    keys: Option<&'a mut Keys>,
    control: &'a Control,
    /// When the keys are read next; a frame that is not stuck has ended before.
    looks_at: Duration,
}

impl Observer for FrameObserver<'_> {
    fn progress(&mut self, progress: &Progress) {
        print_if_requested(self.screen, self.tally, self.audio);
        if progress.elapsed >= self.looks_at {
            self.looks_at = progress.elapsed + EVERY;
            if self.keys.as_mut().is_some_and(|keys| keys.end()) {
                self.control.cancel();
            }
        }
    }

    fn interval(&self) -> Option<Duration> {
        (self.keys.as_ref()).and_then(|keys| keys.fd().map(|_| EVERY))
    }
}

fn print_if_requested(screen: &mut Screen, tally: &Tally, audio: &Audio) {
    if signals::take_progress_request() {
        let line = format!(
            "{}; audio {} written\n",
            tally.summary(),
            units::number_of(audio.written(), "byte")
        );
        signals::with_timer(|| screen.print(&line));
    }
}

/// Sleeps for this time, or a part of it. `false`: a signal has ended it.
fn short_sleep(left: Duration) -> Result<bool, Errno> {
    match nanosleep(&timespec(left.min(POLL_INTERVAL))) {
        NanosleepRelativeResult::Ok => Ok(true),
        NanosleepRelativeResult::Interrupted(_) => Ok(false),
        NanosleepRelativeResult::Err(errno) => Err(errno.into()),
    }
}

/// Limited to the range of a timer, beyond which the difference does not
/// matter.
fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::from(u32::try_from(time.as_secs()).unwrap_or(u32::MAX)),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
