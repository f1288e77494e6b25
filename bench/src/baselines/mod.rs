//! Hand-written loops for each method, and the readers and writers at their
//! ends. Each runs in its own process: `bench baseline NAME ARG…`.

mod cat_loops;
mod copy_loops;
mod direct_copy;
mod engine;
pub mod flow;
mod ftp;
pub mod latency;
mod library;
pub mod many;
mod net_receive;
mod net_send;
mod relay_loops;
mod sinks;
mod synced;

pub use relay_loops::{sent, zeros};

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The arguments of a baseline.
struct Args(Vec<String>);

impl Args {
    fn word(&self, index: usize) -> Result<&str> {
        let word = self.0.get(index).map(String::as_str);
        word.with_context(|| format!("argument {index} is missing"))
    }

    fn number(&self, index: usize) -> Result<usize> {
        Ok(self.word(index)?.parse()?)
    }

    fn optional(&self, index: usize) -> Result<Option<usize>> {
        Ok(self.0.get(index).map(|word| word.parse()).transpose()?)
    }
}

/// Runs the baseline of this name.
pub fn run(mut words: Vec<String>) -> Result<()> {
    if words.is_empty() {
        bail!("the name of the baseline is missing");
    }
    let name = words.remove(0);
    let args = Args(words);
    match name.as_str() {
        "cat-read-write" => cat_loops::read_write(args.word(0)?, args.number(1)?),
        "cat-splice" => cat_loops::splice(args.word(0)?, args.number(1)?, args.optional(2)?),
        "cat-broker" => cat_loops::broker(args.word(0)?, args.number(1)?, args.optional(2)?),
        "cat-paced" => {
            let rate = args.word(1)?.parse()?;
            cat_loops::paced(args.word(0)?, rate, args.number(2)?)
        }
        "copy" => copy_loops::file(
            args.word(0)?,
            args.word(1)?,
            args.word(2)?,
            args.optional(3)?,
        ),
        "copy-direct" => direct_copy::file(
            args.word(0)?,
            args.word(1)?,
            args.number(2)?,
            args.number(3)?,
        ),
        "then-fsync" => synced::then_fsync(args.word(0)?, &args.0[1..]),
        "copy-all" => copy_loops::all(args.word(0)?, args.word(1)?, args.word(2)?),
        "flow" => flow::run(
            args.word(0)?,
            args.word(1)?,
            args.word(2)?.parse()?,
            flow_control(&args)?,
        ),
        "ftp-server" => ftp::server::run(args.word(0)?.parse()?, &args.0[1..]),
        "ftp-client" => {
            let verify = args.word(2)? == "verify";
            ftp::client::run(args.word(0)?.parse()?, args.number(1)?, verify)
        }
        "latency" => latency::run(args.word(0)?, args.number(1)?),
        "many-files" => {
            let sync = args.0.get(3).is_some_and(|word| word == "sync");
            many::files::run(args.word(0)?, args.word(1)?, args.word(2)?, sync)
        }
        "many-pipes" => {
            let verify = args.0.get(3).is_some_and(|word| word == "verify");
            many::pipes::run(
                args.word(0)?,
                args.number(1)?,
                args.word(2)?.parse()?,
                verify,
            )
        }
        "many-far" => many::far::run(),
        "many-idle" => {
            let silence = Duration::from_millis(args.word(3)?.parse()?);
            many::idle::run(args.word(0)?, args.number(1)?, args.number(2)?, silence)
        }
        "net-receive" => net_receive::run(args.word(0)?, args.number(1)?, args.word(2)?),
        "net-send" => {
            let bytes = args.word(3)?.parse()?;
            net_send::run(args.word(0)?, args.number(1)?, args.word(2)?, bytes)
        }
        "relay-read-write" => relay_loops::read_write(args.number(0)?),
        "relay-splice" => relay_loops::splice(args.number(0)?),
        "relay-source" => relay_loops::source(args.number(0)?),
        "relay-sink" => relay_loops::sink(args.word(0)?),
        "sink-read" => sinks::read(),
        "sink-splice" => sinks::splice(),
        "sink-digest" => sinks::digest(),
        "library-synced" => library::copy_synced(args.word(0)?, args.word(1)?),
        "library" => library::splice(args.word(0)?, args.word(1)?),
        _ => bail!("unknown baseline {name}"),
    }
}

/// `BLOCK READS WRITES BURST` from the fourth argument on; without them,
/// adaptive.
fn flow_control(args: &Args) -> Result<Option<flow::Fixed>> {
    let Some(block) = args.optional(3)? else {
        return Ok(None);
    };
    let mark = |index: usize| -> Result<u32> { Ok(args.word(index)?.parse()?) };
    let marks = cordboard::Watermarks {
        reads: mark(4)?,
        writes: mark(5)?,
        burst: mark(6)?,
    };
    let block = NonZeroUsize::new(block).context("the block size is 0")?;
    Ok(Some(flow::Fixed { block, marks }))
}
