//! A transfer that is paced, paused and cancelled while it runs, by its own observer.

use std::num::NonZeroUsize;
use std::time::Duration;

use cordboard::{Control, Observer, Progress, Request, Schedule};
use fastrand::Rng;
use testkit::{SinkKind, SourceKind};

use crate::common::{Wrong, most, taken};

/// The bytes of a record, a packet or a unit of direct I/O that may exceed a schedule.
const RECORD: u64 = 64 << 10;
/// The largest block that direct I/O chooses.
const LARGEST: u64 = 4 << 20;

/// What happens to the transfer.
#[derive(Debug, Clone, Copy)]
pub struct Steering {
    schedule: Schedule,
    pause_at: Option<u64>,
    pub cancel_at: Option<u64>,
    /// The number of calls of the observer during the pause.
    calls: u32,
}

impl Steering {
    /// For a transfer of `whole` bytes. It takes at most some tenths of a second.
    pub fn draw(rng: &mut Rng, whole: u64) -> Steering {
        let schedule = match rng.u8(..8) {
            0 => Schedule::rate(whole * rng.u64(20..200) + (1 << 16)),
            1 => Schedule::blocks(rng.u32(8..64), Duration::from_millis(1)),
            _ => Schedule::Unlimited,
        };
        let at = |rng: &mut Rng| (rng.u8(..) < 64).then(|| rng.u64(0..=whole));
        Steering {
            schedule,
            pause_at: at(rng),
            cancel_at: at(rng),
            calls: rng.u32(1..4),
        }
    }

    /// Returns the observer that does this, if there is anything to do.
    pub fn observer(
        self,
        control: &Control,
        request: &Request,
        (source, sink): (SourceKind, SinkKind),
    ) -> Option<Steers> {
        let is_paced = self.schedule != Schedule::Unlimited;
        if !is_paced && self.pause_at.is_none() && self.cancel_at.is_none() {
            return None;
        }
        control.set_schedule(self.schedule);
        let block = request
            .block
            .map(NonZeroUsize::get)
            .map(|block| block as u64);
        let excess = match is_divided(source, sink) {
            true => 0,
            false => block.unwrap_or(0).max(RECORD) + RECORD,
        };
        Some(Steers {
            steering: self,
            control: control.clone(),
            block,
            // A skipped hole is read, and does not count.
            excess: (source != SourceKind::Sparse).then_some(excess),
            paused: None,
            wrong: Wrong::default(),
        })
    }
}

/// Whether each byte can be read and written alone.
fn is_divided(source: SourceKind, sink: SinkKind) -> bool {
    use SinkKind as To;
    use SourceKind as From;
    let from = [
        From::File,
        From::Tmpfs,
        From::Memfd,
        From::Zero,
        From::Pipe,
        From::Fifo,
        From::Tcp,
        From::UnixStream,
    ];
    let to = [
        To::File,
        To::Tmpfs,
        To::Memfd,
        To::Append,
        To::Null,
        To::Pipe,
        To::Fifo,
        To::Tcp,
        To::UnixStream,
    ];
    from.contains(&source) && to.contains(&sink)
}

/// The observer.
pub struct Steers {
    steering: Steering,
    control: Control,
    block: Option<u64>,
    /// Bytes by which the schedule may be exceeded. `None`: what it permits is not known.
    excess: Option<u64>,
    /// During the pause: the most bytes that may be read, and the number of calls.
    paused: Option<(u64, u32)>,
    pub wrong: Wrong,
}

impl Observer for Steers {
    fn progress(&mut self, progress: &Progress) {
        let (read, at) = (progress.read, progress.elapsed);
        let steering = &mut self.steering;
        if let Some(excess) = self.excess {
            let block = self.block.unwrap_or(Schedule::BLOCK);
            let most = most(steering.schedule, block, at).saturating_add(excess);
            (self.wrong).unless(read <= most, || format!("{read} of {most} bytes at {at:?}"));
        }
        if let Some((most, calls)) = &mut self.paused {
            (self.wrong).unless(read <= *most, || {
                format!("{read} of {most} bytes in a pause")
            });
            *calls += 1;
            if *calls >= steering.calls {
                self.control.resume();
                self.paused = None;
            }
        } else if steering.pause_at.take_if(|at| read >= *at).is_some() {
            self.control.pause();
            self.paused = Some((taken(progress, self.block.unwrap_or(LARGEST)), 0));
        }
        if steering.cancel_at.is_some_and(|at| progress.written >= at) {
            self.control.cancel();
        }
    }

    /// No other thread ends the pause.
    fn interval(&self) -> Option<Duration> {
        let pauses = self.paused.is_some() || self.steering.pause_at.is_some();
        pauses.then_some(Duration::from_millis(1))
    }
}
