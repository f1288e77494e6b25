//! Table 1 of the paper on `cue()`: the rate of an FTP server for 1 to 4 clients,
//! and for more.

mod server;
mod side_by_side;

use anyhow::{Context, Result, ensure};

use super::experiment::{Experiment, available};
use super::places::{Made, Place};
use crate::harness::contestant::{Contestant, Role};
use crate::harness::interleave::Setting;
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, files};
use server::Server;

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cue-table1",
    about: "An FTP server and 1 to 64 clients, each of which gets a file: sent by a loop that \
            reads and writes, and by control descriptors with several schedules.",
    run,
};

/// The server that sends by reading and writing. The servers with control descriptors differ
/// from it only in this.
const USER_DRIVEN: &str = "user-driven";
const K4_T16: &str = "cue k=4 t=16";
const K4_T70: &str = "cue k=4 t=70";
const AUTOMATIC: &str = "cue automatic";
const UNLIMITED: &str = "cue";
const BLOCKING: &str = "cue blocking socket";
const SERVE: &str = "cordboard serve ftp";
const VSFTPD: &str = "vsftpd";
const CLIENTS: &[usize] = &[1, 2, 3, 4, 16, 64];
const CLIENTS_QUICK: &[usize] = &[4];
const FEW: usize = 4;
const SIZE: u64 = 12 << 20;
const SIZE_CACHED: u64 = 48 << 20;
const ROUNDS: usize = 3;
/// The rate of a present disk, in bytes a second. At the rate of the paper's disk, 64 clients
/// would take minutes.
const RATE: u64 = 100_000_000;

fn run(bench: &mut Bench) -> Result<()> {
    let counts = match bench.options.quick {
        true => CLIENTS_QUICK,
        false => CLIENTS,
    };
    let places = [Place::Cached, Place::Throttled(RATE), Place::Disk];
    let quick = bench.options.quick;
    // Disk is set up like Cached.
    for place in places.into_iter().take(if quick { 2 } else { 3 }) {
        for count in counts.iter().copied() {
            let name = format!("{} ×{count}", place.name());
            if !bench.wants(&name) {
                continue;
            }
            let room = 2 * size(bench, place, count) * count as u64;
            match place.make(bench, room) {
                Ok(made) => at(bench, &made, count, name)?,
                Err(why) => bench.skip(&name, format!("{why:#}")),
            }
        }
        bench.notes.push(place.about(bench.directory.path()) + ".");
    }
    for place in places {
        bench.notes.extend(side_by_side::table(bench, place.name()));
    }
    bench.notes.push(format!(
        "Each client gets a file of its own: {}, and {} from the cache if there are at most {FEW} \
         clients. A block of a schedule is 128 KiB. The \
         measured time is from the first RETR until the last byte has arrived; the processor \
         time is that of the server without its start.",
        files::size_text(SIZE),
        files::size_text(SIZE_CACHED)
    ));
    Ok(())
}

/// Returns the bytes of a client: slightly more than the paper's 12 MB. Up to [`FEW`] clients
/// get more from the page cache, so that the fast servers take long enough to be measured.
fn size(bench: &Bench, place: Place, count: usize) -> u64 {
    let full = match place {
        Place::Cached if count <= FEW => SIZE_CACHED,
        _ => SIZE,
    };
    bench.size(full, 512 << 10)
}

fn at(bench: &mut Bench, made: &Made, count: usize, name: String) -> Result<()> {
    let sources = made.sources(count, size(bench, made.place, count))?;
    let config = bench.path("vsftpd.conf");
    let contestants = contestants(bench);
    let setting = Setting {
        name: name.clone(),
        expected: sources.content,
        rounds: if bench.options.quick { 1 } else { ROUNDS },
    };
    let program = bench.tools.bench.clone();
    bench.measure(&setting, &contestants, |turn| {
        made.prepare(&sources)?;
        let server = Server::start(turn, &made.directory, &config)?;
        let port = server.port.to_string();
        let what = if turn.verifies() { "verify" } else { "count" };
        let mut words = vec![program.clone().into_os_string()];
        words.extend(["baseline", "ftp-client", &port, &count.to_string(), what].map(Into::into));
        let client = Job::new(&words)?.keep_output().run();
        // Also after an error of the client.
        let cpu = server.end();
        let (client, _) = client.context("the clients")?;
        let words: Vec<&str> = client.output.split_whitespace().collect();
        ensure!(words.len() == 3, "the clients printed {words:?}");
        let sample = Sample {
            wall: words[0].parse()?,
            cpu: cpu?,
            others: client.cpu,
            bytes: words[1].parse()?,
            digest: Some(words[2].parse()?),
            ..Sample::default()
        };
        let rate = sample.bytes as f64 / 1e6 / sample.wall;
        Ok(sample.with("MB/s", rate))
    })?;
    sources.remove();
    bench.targets.extend(targets(&name, made.place, count));
    Ok(())
}

fn contestants(bench: &mut Bench) -> Vec<Contestant> {
    let tools = bench.tools.clone();
    let own = |name: &str, role, way: &str| {
        let args = format!("baseline ftp-server {{port}} {way}");
        Some(Contestant::new(name, role, &tools.bench, &args))
    };
    let serve = "serve ftp --listen 127.0.0.1:{port} --root {dir} --log /dev/null";
    let all = vec![
        (USER_DRIVEN, own(USER_DRIVEN, Role::Reference, "read-write")),
        (K4_T16, own(K4_T16, Role::Ours, "cue 4 16")),
        (K4_T70, own(K4_T70, Role::Ours, "cue 4 70")),
        (AUTOMATIC, own(AUTOMATIC, Role::Ours, "cue-auto")),
        (UNLIMITED, own(UNLIMITED, Role::Ours, "cue")),
        (BLOCKING, own(BLOCKING, Role::Ours, "cue-blocking")),
        (SERVE, Some(tools.ours(SERVE, serve))),
        (VSFTPD, tools.peer(VSFTPD, "{conf}")),
        (
            "pyftpdlib",
            tools.pyftpdlib("-i 127.0.0.1 -p {port} -d {dir}"),
        ),
    ];
    available(bench, all)
}

fn targets(setting: &str, place: Place, count: usize) -> Vec<Target> {
    let target = |ours, other: &'static [&'static str], measure, bound| Target {
        setting: setting.to_owned(),
        ours,
        against: Against::Best(other),
        measure,
        bound,
    };
    // Never less, and more with 4 clients. A disk that moves its bytes at its own rate permits
    // no more.
    let bound = match (place, count) {
        (Place::Cached, 4) => 1.5,
        _ => 1.0,
    };
    let mut all = vec![target(AUTOMATIC, &[USER_DRIVEN], Measure::Rate, bound)];
    if [1, 4, 64].contains(&count) {
        all.push(target(SERVE, &[VSFTPD], Measure::Rate, 1.0));
        all.push(target(SERVE, &[VSFTPD], Measure::Processor, 1.0));
    }
    all
}
