//! The real world around the player's loop: a timer, descriptors, a terminal.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use cordboard::{Control, Errno, Observer, Progress};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::audio::Audio;
use super::keys::Keys;
use super::show::{Order, Step, Wake, World};
use super::tally::Tally;
use super::video::Video;
use crate::problem::Problem;
use crate::progress::{Screen, fit, width};
use crate::signals;

/// How often it is drawn at most, and keys are looked at while a frame is stuck.
const EVERY: Duration = Duration::from_millis(100);

/// How often all is looked at where nothing can be waited for.
const UNHEARD: Duration = Duration::from_millis(10);

/// What goes on while frames are shown.
pub struct Live {
    /// `None`: none is available, and `poll(2)` counts the time.
    timer: Option<OwnedFd>,
    audio: Audio,
    audio_over: bool,
    control: &'static Control,
    keys: Option<Keys>,
    board: Board,
    /// Why it is not possible to wait.
    failed: Option<Errno>,
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
fn timer() -> Option<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(TimerfdClockId::Monotonic, flags).ok()
}

/// The monotonic clock, which the timer goes by.
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

impl Live {
    /// The audio is on its way; `drawing`: with a line on standard error.
    pub fn new(audio: Audio, keys: Option<Keys>, drawing: bool) -> Live {
        Live {
            timer: timer(),
            audio,
            audio_over: false,
            control: signals::polled(),
            keys,
            board: Board {
                drawing,
                ..Board::default()
            },
            failed: None,
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

    /// Whether a key has asked for the end.
    pub fn was_quit(&self) -> bool {
        self.keys.as_ref().is_some_and(Keys::was_quit)
    }

    /// What ended it because nothing could be waited for.
    pub fn problem(&self) -> Option<Problem> {
        self.failed.map(|errno| {
            Problem::unsided(
                "",
                errno,
                format!("{errno} waiting for the time of a frame"),
            )
        })
    }

    /// Wipes what was drawn, and gives the terminal back.
    pub fn end(mut self) -> Audio {
        self.board.screen.clear();
        self.audio
    }

    /// Waits until the timer has expired; without one, until the audio ends.
    fn look(&mut self, until: Option<Duration>, tally: &Tally) -> Wake {
        let mut armed = None;
        loop {
            if self.control.is_cancelled() {
                return Wake::Over;
            }
            if let Some(order) = self.keys.as_mut().and_then(Keys::order) {
                return Wake::Order(order);
            }
            // Its descriptor may fail to tell.
            self.audio_over |= self.audio.is_over();
            if until.is_none() && self.audio_over {
                return Wake::Due;
            }
            let now = now();
            tell_if_asked(&mut self.board.screen, tally, &self.audio);
            self.board.update(now, tally, &self.audio);
            let left = until.map_or(EVERY, |until| until.saturating_sub(now));
            let due = left.is_zero();
            let timed = until.filter(|_| !due).is_some_and(|until| {
                // Once: it is for an absolute moment.
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

    /// `false`: there is no such timer, or it takes no setting.
    fn arm(&self, at: Duration) -> bool {
        let setting = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(at),
        };
        self.timer.as_ref().is_some_and(|timer| {
            timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &setting).is_ok()
        })
    }

    /// Sleeps until something happens, the timer expires or, without it, so
    /// much time has passed; true if it was nothing but the time.
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
        let heard = match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => true,
            // Somebody asks for something.
            Err(rustix::io::Errno::INTR) => false,
            // A filter refuses it: nothing is heard but signals.
            Err(_) => {
                drop(fds);
                return rest(left);
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
            signals::with_timer(|| self.screen.draw(&line));
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
    if signals::take_progress_request() {
        let line = format!(
            "{}; audio {} bytes written\n",
            tally.summary(),
            audio.written()
        );
        signals::with_timer(|| screen.tell(&line));
    }
}

/// Sleeps for so long, or a little; a signal ends it, which is `false`.
fn rest(left: Duration) -> Result<bool, Errno> {
    match nanosleep(&timespec(left.min(UNHEARD))) {
        NanosleepRelativeResult::Ok => Ok(true),
        NanosleepRelativeResult::Interrupted(_) => Ok(false),
        NanosleepRelativeResult::Err(errno) => Err(errno.into()),
    }
}

/// At most as far off as a timer goes, which is no difference to us.
fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::from(u32::try_from(time.as_secs()).unwrap_or(u32::MAX)),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
