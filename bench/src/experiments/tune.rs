//! Each path with each size of its calls, the first choice, and the controller that
//! measures while it moves the bytes, between files and sockets.
//!
//! The grid is of fixed settings: `--route PATH --block SIZE`. The controller has to find
//! the best of them.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::experiment::Experiment;
use crate::baselines;
use crate::harness::Bench;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{files, tools::Tools};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tune",
    about: "The controller against each path and block size, between files and sockets.",
    run,
};

const CONTROLLER: &str = "controller";
const FIRST_CHOICE: &str = "first choice";
const ROUNDS: usize = 5;
const BLOCKS: [&str; 5] = ["64K", "128K", "256K", "512K", "1M"];

/// One kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    File,
    Tcp,
    Unix,
}

/// The ends of the transfers, and their name.
const PAIRS: [(End, End, &str); 4] = [
    (End::File, End::Tcp, "cached file to tcp"),
    (End::File, End::Unix, "cached file to unix stream"),
    (End::Tcp, End::Tcp, "tcp to tcp"),
    (End::Unix, End::Tcp, "unix stream to tcp"),
];

fn run(bench: &mut Bench) -> Result<()> {
    let size = bench.size(8 << 30, 64 << 20);
    let tools = bench.tools.clone();
    let source = bench.path("source");
    let content = files::make(&source, size)?;
    for (from, to, name) in PAIRS {
        if !bench.wants(name) {
            continue;
        }
        files::cache(&source)?;
        let setting = Setting {
            name: name.to_owned(),
            expected: match from {
                End::File => content,
                End::Tcp | End::Unix => baselines::sent(usize::try_from(size)?),
            },
            rounds: ROUNDS,
        };
        let all = contestants(&tools, from);
        bench.measure(&setting, &all, |turn| {
            once(&tools, (from, to), (&source, size), turn)
        })?;
        targets(bench, name);
    }
    files::remove(&source);
    bench.notes.push(format!(
        "{}. The time is from the start of the command until the sink has reached the end of \
         file. The grid has each path with each block size, fixed.",
        files::size_text(size)
    ));
    Ok(())
}

/// The grid, the first choice and the controller.
fn contestants(tools: &Tools, from: End) -> Vec<Contestant> {
    let source = if from == End::File { "{src}" } else { "fd:3" };
    let ends = format!("splice {source} fd:4");
    let mut all = vec![tools.ours(CONTROLLER, &ends)];
    if let Some(env) = tools.peer("env", "CORDBOARD_TUNE=off") {
        let mut off = Contestant {
            role: Role::Ours,
            ..env.called(FIRST_CHOICE)
        };
        off.args
            .push(tools.cordboard.to_string_lossy().into_owned());
        off.args.extend(ends.split(' ').map(str::to_owned));
        all.push(off);
    }
    let paths: &[&str] = match from {
        End::File => &["splice", "sendfile", "read/write"],
        End::Tcp | End::Unix => &["splice", "read/write"],
    };
    for path in paths {
        for block in BLOCKS {
            let args = format!("{ends} --route {path} --block {block}");
            let grid = tools.ours(&format!("{path} {block}"), &args);
            all.push(Contestant {
                role: Role::Baseline,
                ..grid
            });
        }
    }
    all
}

fn targets(bench: &mut Bench, setting: &str) {
    for (against, measure, bound) in [
        (Against::Baselines, Measure::Rate, 0.93),
        (Against::Baselines, Measure::Processor, 1.1),
        (Against::Best(&["read/write 128K"]), Measure::Rate, 0.97),
        (Against::Best(&[FIRST_CHOICE]), Measure::Rate, 0.97),
    ] {
        bench.targets.push(Target {
            setting: setting.to_owned(),
            ours: CONTROLLER,
            against,
            measure,
            bound,
        });
    }
}

/// The two ends of a connection.
fn connection(kind: End) -> Result<(OwnedFd, OwnedFd)> {
    if kind == End::Unix {
        let (near, far) = UnixStream::pair()?;
        return Ok((near.into(), far.into()));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near.into(), far.into()))
}

fn once(
    tools: &Tools,
    (from, to): (End, End),
    (file, size): (&Path, u64),
    turn: &Turn<'_>,
) -> Result<Sample> {
    let peer = |words: &[&str], socket: OwnedFd| -> Result<Job> {
        let mut all: Vec<OsString> = vec![tools.bench.clone().into(), "baseline".into()];
        all.extend(words.iter().map(OsString::from));
        Ok(Job::new(&all)?.hand_over(vec![socket]))
    };
    let (put, sink_side) = connection(to)?;
    let how = if turn.verifies() { "digest" } else { "count" };
    let sink = peer(&["relay-sink", how], sink_side)?
        .keep_output()
        .start()?;
    let (take, source) = match from {
        // The command opens the file itself.
        End::File => (std::fs::File::open("/dev/null")?.into(), None),
        End::Tcp | End::Unix => {
            let (source_side, take) = connection(from)?;
            let source = peer(&["relay-source", &size.to_string()], source_side)?;
            (take, Some(source.start()?))
        }
    };
    let line = turn.command_line(&[("src", file.as_os_str().to_owned())]);
    let mover = Job::new(&line)?.hand_over(vec![take, put]);

    let started = Instant::now();
    let mover = mover.start().and_then(|mover| mover.reap());
    let sink = sink.reap()?;
    let wall = started.elapsed().as_secs_f64();
    let source = source.map(|source| source.reap()).transpose()?;

    let mover = mover?.check()?;
    let sink = sink.check().context("the sink")?;
    let source = source.map(|source| source.check().context("the source"));
    let others = source
        .transpose()?
        .map_or_else(Default::default, |source| source.cpu);
    let mut words = sink.output.split_whitespace().map(str::parse::<u64>);
    Ok(Sample {
        wall,
        cpu: mover.cpu,
        others: sink.cpu + others,
        bytes: words.next().context("the sink printed nothing")??,
        digest: words.next().transpose()?,
        ..Sample::default()
    })
}
