//! The contestants. Each syncs the copy before it ends.

use std::path::Path;

use anyhow::Result;

use super::devices::Setup;
use crate::experiments::experiment::{available, synced};
use crate::harness::contestant::{Contestant, Role};
use crate::harness::interleave::Turn;
use crate::harness::tools::Tools;
use crate::harness::{Bench, files};

/// The command.
pub const OURS: &str = "cordboard copy";
/// The library, called by this program.
pub const LIBRARY: &str = "library";
/// The papers' CP.
pub const CP: &str = "cp";
/// The contestants that Cordboard has to be as fast as.
pub const OTHERS: &[&str] = &[CP, "dd 128K", "dd 1M", "read-write", "copy_file_range"];

/// The contestants that are available.
pub fn contestants(bench: &mut Bench) -> Vec<Contestant> {
    let tools = bench.tools.clone();
    let dd = |name: &str, args: &str| {
        let args = format!("if={{src}} of={{dst}} conv=fsync status=none {args}");
        Some(tools.peer("dd", &args)?.called(name))
    };
    let mut all = vec![
        (OURS, Some(tools.ours(OURS, "copy --sync {src} {dst}"))),
        (LIBRARY, Some(library(&tools))),
        (
            CP,
            tools.gnu("cp", "{src} {dst}").map(|c| synced(&tools, c)),
        ),
        ("read-write", Some(by_hand(&tools, "read-write"))),
        (
            "direct 4x1M",
            Some(direct(&tools, "direct 4x1M", 1 << 20, 4)),
        ),
    ];
    if !bench.options.quick {
        all.extend([
            ("copy_file_range", Some(by_hand(&tools, "copy_file_range"))),
            (
                "direct 8x512K",
                Some(direct(&tools, "direct 8x512K", 512 << 10, 8)),
            ),
            ("dd", dd("dd 128K", "bs=128K")),
            ("dd", dd("dd 1M", "bs=1M")),
            ("dd", dd("dd direct 1M", "bs=1M iflag=direct oflag=direct")),
        ]);
    }
    available(bench, all)
}

fn library(tools: &Tools) -> Contestant {
    let args = "baseline library-synced {src} {dst}";
    Contestant::new(LIBRARY, Role::Ours, &tools.bench, args)
}

fn by_hand(tools: &Tools, method: &str) -> Contestant {
    synced(
        tools,
        tools.baseline(method, &format!("copy {method} {{src}} {{dst}}")),
    )
}

fn direct(tools: &Tools, name: &str, block: usize, depth: usize) -> Contestant {
    let args = format!("copy-direct {{src}} {{dst}} {block} {depth}");
    synced(tools, tools.baseline(name, &args))
}

/// Evicts the source, removes the copy and syncs the file system. The programs
/// stay cached.
pub fn prepare(place: &Setup, turn: &Turn<'_>, quick: bool) -> Result<()> {
    files::remove(&place.sink);
    if !quick {
        files::sync(place.sink_directory())?;
    }
    files::evict(&place.source, !quick)?;
    files::cache(&turn.contestant.program)?;
    for word in &turn.contestant.args {
        let program = Path::new(word);
        if program.is_absolute() && program.is_file() {
            files::cache(program)?;
        }
    }
    Ok(())
}
