//! The flags that pace and steer transfers.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueHint};
use cordboard::{Aim, Control, Schedule};

use crate::units;

/// The flags of `cue`.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub struct CueFlags {
    /// The control socket: the PATH or @NAME of --control
    #[arg(value_name = "CONTROL", value_hint = ValueHint::AnyPath)]
    pub control: OsString,
    /// Print the status as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub action: CueAction,
}

/// The action of `cue`.
#[derive(Debug, Subcommand)]
pub enum CueAction {
    /// Print the status
    Status,
    /// Stop reading the source
    Pause,
    /// Continue after a pause
    Resume,
    /// Read no more than this many bytes a second; 0: no limit
    Rate {
        /// Bytes a second
        #[arg(value_name = "BYTES", value_parser = units::per_second_or_none)]
        #[arg(allow_hyphen_values = true)]
        bytes: u64,
    },
    /// Read K blocks, then rest for MS milliseconds, and so on
    ///
    /// A block has the size of --block of the steered command, or 128K.
    Schedule(Blocks),
    /// Determine the schedule automatically
    Auto {
        /// throughput, background, share or share=WEIGHT
        #[arg(value_name = "AIM", value_parser = units::aim)]
        aim: Aim,
    },
    /// End the command. It still prints its report
    Cancel,
    /// Set an upper bound for all later commands. It can only be tightened
    #[command(subcommand, disable_help_subcommand = true)]
    Limit(LimitAction),
}

/// The limit that `cue limit` sets.
#[derive(Debug, Subcommand)]
pub enum LimitAction {
    /// No more than this many bytes a second
    Rate {
        /// Bytes a second
        #[arg(value_name = "BYTES", value_parser = units::per_second)]
        #[arg(allow_hyphen_values = true)]
        bytes: u64,
    },
    /// No more than K blocks between rests of MS milliseconds
    ///
    /// A block has the size of --block of the steered command, or 128K.
    Schedule(Blocks),
}

/// The operands of a schedule of blocks: `4,70` or `4 70`.
#[derive(Debug, Args)]
pub struct Blocks {
    /// Blocks and milliseconds: 4,70 or 4 70
    #[arg(value_name = "K,MS", value_parser = units::blocks_or_count)]
    #[arg(allow_hyphen_values = true)]
    first: (u32, Option<u32>),
    /// The milliseconds, if a space separates them
    #[arg(value_name = "MS", value_parser = units::rest)]
    #[arg(allow_hyphen_values = true)]
    rest: Option<u32>,
}

impl Blocks {
    /// Returns the number of blocks and of milliseconds. `None`: one number, or three.
    pub fn numbers(&self) -> Option<(u32, u32)> {
        match (self.first, self.rest) {
            ((count, Some(rest)), None) | ((count, None), Some(rest)) => Some((count, rest)),
            _ => None,
        }
    }
}

/// The rate of reading.
#[derive(Debug, Clone, Default, Args)]
pub struct Pacing {
    /// Read no more than this many bytes a second, over all files together
    ///
    /// The rate does not change the path. Skipped holes do not count, and reading
    /// back (--verify) is not limited.
    #[arg(long, value_name = "BYTES", value_parser = units::per_second)]
    #[arg(allow_hyphen_values = true)]
    pub rate: Option<u64>,
    /// Read K blocks, then rest for MS milliseconds, and so on
    ///
    /// A block has the size of --block, or 128K.
    #[arg(long, value_name = "K,MS", value_parser = units::schedule, conflicts_with = "rate")]
    #[arg(allow_hyphen_values = true)]
    pub schedule: Option<Schedule>,
    /// Determine the schedule automatically: throughput, background, share[=WEIGHT]
    ///
    /// throughput: as fast as both sides permit. background: use only the processors
    /// and disks that other work leaves idle. share=WEIGHT: divide the throughput among
    /// the transfers of one process in proportion to their weights (share: 1). --rate is
    /// an upper bound in each case.
    #[arg(long, value_name = "AIM", value_parser = units::aim, conflicts_with = "schedule")]
    pub auto: Option<Aim>,
}

impl Pacing {
    /// Sets the schedule of the transfers. An automatic one does not exceed the rate.
    pub fn apply(&self, control: &Control) {
        let rate = self.rate.map_or(Schedule::Unlimited, Schedule::rate);
        match self.auto {
            Some(aim) => {
                control.set_schedule(Schedule::Auto(aim));
                control.limit_schedule(rate, Schedule::BLOCK);
            }
            None => control.set_schedule(self.schedule.unwrap_or(rate)),
        }
    }
}
