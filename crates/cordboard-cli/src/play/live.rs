//! The real world around the player's loop: a timer, descriptors, a terminal.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cordboard::{Control, Errno, Observer, Progress};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::audio::Audio;
use super::keys::Keys;
use super::show::{Order, Step, Wake, World};
use super::tally::Tally;
use super::video::Video;
use crate::progress::{Screen, fit, width};
use crate::signals;

/// How often it is drawn at most, and keys are looked at while a frame is stuck.
const EVERY: Duration = Duration::from_millis(100);

/// What goes on while frames are shown.
pub struct Live {
    timer: OwnedFd,
    audio: Audio,
    audio_over: bool,
    control: &'static Control,
    keys: Option<Keys>,
    board: Board,
}

/// The line that is drawn.
#[derive(Default)]
struct Board {
    drawing: bool,
    screen: Screen,
    drawn_at: Duration,
    /// That it stands still is drawn.
    paused: bool,
}

/// A timer for absolute moments of the monotonic clock: `timerfd_create(2)`,
/// since Linux 2.6.25.
pub fn timer() -> Result<OwnedFd, Errno> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    Ok(timerfd_create(TimerfdClockId::Monotonic, flags)?)
}

/// The monotonic clock, which the timer goes by.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

impl Live {
    /// The audio is on its way; `drawing`: with a line on standard error.
    pub fn new(timer: OwnedFd, audio: Audio, keys: Option<Keys>, drawing: bool) -> Live {
        Live {
            timer,
            audio,
            audio_over: false,
            control: signals::polled(),
            keys,
            board: Board {
                drawing,
                ..Board::default()
            },
        }
    }

    /// Until the audio has ended; what ended the wait otherwise.
    pub fn wait_for_audio(&mut self, tally: &Tally) -> Wake {
        loop {
            match self.look(None, tally) {
                // There is nothing left whose speed it could be.
                Wake::Order(order) if order != Order::Quit => {}
                wake => return wake,
            }
        }
    }

    /// Has the audio end too.
    pub fn cancel(&self) {
        self.audio.cancel();
    }

    /// Wipes what was drawn, and gives the terminal back.
    pub fn end(mut self) -> Audio {
        self.board.screen.clear();
        self.audio
    }

    /// Waits until the timer has expired; without one, until the audio ends.
    fn look(&mut self, until: Option<Duration>, tally: &Tally) -> Wake {
        let mut armed = false;
        loop {
            if self.control.is_cancelled() {
                return Wake::Over;
            }
            if let Some(order) = self.keys.as_mut().and_then(Keys::order) {
                return Wake::Order(order);
            }
            if until.is_none() && self.audio_over {
                return Wake::Due;
            }
            let now = now();
            tell_if_asked(&mut self.board.screen, tally, &self.audio);
            self.board.update(now, tally, &self.audio);
            let due = until.is_some_and(|until| now >= until);
            if !armed && !due && until.is_some_and(|until| self.arm(until).is_err()) {
                return Wake::Over;
            }
            armed = true;
            if self.poll(until.is_some(), due) && due {
                return Wake::Due;
            }
        }
    }

    /// For while a frame is on its way.
    fn attend<'a>(&'a mut self, tally: &'a Tally) -> Attendant<'a> {
        Attendant {
            screen: &mut self.board.screen,
            tally,
            audio: &self.audio,
            keys: self.keys.as_mut(),
            control: self.control,
            looks_at: EVERY,
        }
    }

    fn arm(&self, at: Duration) -> Result<(), rustix::io::Errno> {
        // As far off as a timer goes, which is no difference to us.
        let seconds = at.as_secs().min(u64::from(u32::MAX));
        let setting = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(Duration::new(seconds, at.subsec_nanos())),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting).map(|_| ())
    }

    /// Sleeps until something happens, or only looks; true if it was nothing
    /// but, perhaps, the timer.
    fn poll(&mut self, timed: bool, at_once: bool) -> bool {
        let keys = self.keys.as_ref().and_then(Keys::fd);
        let audio = match self.audio_over {
            true => None,
            false => self.audio.fd().ok(),
        };
        let timer = timed.then_some(self.timer.as_fd());
        let [has_keys, has_audio] = [keys.is_some(), audio.is_some()];
        let fds = [keys, audio, timer].into_iter().flatten();
        let mut fds: Vec<PollFd<'_>> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = at_once.then(|| timespec(Duration::ZERO));
        // EINTR: somebody asks for something.
        let heard = poll(&mut fds, timeout.as_ref()).is_ok();
        let is_ready = |index: usize| heard && !fds[index].revents().is_empty();
        let key = has_keys && is_ready(0);
        let over = has_audio && is_ready(usize::from(has_keys));
        drop(fds);
        if key && let Some(keys) = &mut self.keys {
            keys.read();
        }
        self.audio_over |= over;
        heard && !key && !over
    }
}

/// The world as the loop knows it.
pub struct Film<'a> {
    /// What else goes on.
    pub live: &'a mut Live,
    /// Where the frames are.
    pub video: &'a mut Video,
}

impl World for Film<'_> {
    fn now(&mut self) -> Duration {
        now()
    }

    fn wait(&mut self, until: Duration, tally: &Tally) -> Wake {
        self.video.read_ahead();
        self.live.look(Some(until), tally)
    }

    fn show(&mut self, tally: &Tally) -> Step {
        self.video.show(self.live.control, self.live.attend(tally))
    }

    fn skip(&mut self, tally: &Tally) -> Step {
        self.video.skip(self.live.control, self.live.attend(tally))
    }
}

impl Board {
    fn update(&mut self, now: Duration, tally: &Tally, audio: &Audio) {
        // No frame comes to draw it while it stands still.
        let turned = std::mem::replace(&mut self.paused, tally.paused) != tally.paused;
        let due = tally.frames > 0 && now >= self.drawn_at + EVERY;
        if self.drawing && (due || turned) {
            self.drawn_at = now;
            let pieces = tally.pieces(audio.written());
            let line = fit(&pieces, width());
            signals::briefly(|| self.screen.draw(&line));
        }
    }
}

/// Answers SIGUSR1 while a frame is on its way, and ends one that is stuck if
/// that is wished. Other keys have their time after it.
struct Attendant<'a> {
    screen: &'a mut Screen,
    tally: &'a Tally,
    audio: &'a Audio,
    keys: Option<&'a mut Keys>,
    control: &'a Control,
    /// When the keys are looked at; a frame that is not stuck is over before.
    looks_at: Duration,
}

impl Observer for Attendant<'_> {
    fn progress(&mut self, progress: &Progress) {
        tell_if_asked(self.screen, self.tally, self.audio);
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

fn tell_if_asked(screen: &mut Screen, tally: &Tally, audio: &Audio) {
    if signals::take_show() {
        let line = format!(
            "{}; audio {} bytes written\n",
            tally.summary(),
            audio.written()
        );
        signals::briefly(|| screen.tell(&line));
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
