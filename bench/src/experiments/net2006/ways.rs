//! The ways of sending and of receiving, as contestants.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

use super::{OURS, OURS_DIRECT, Sink, Source};
use crate::experiments::experiment::synced;
use crate::harness::Bench;
use crate::harness::contestant::Contestant;
use crate::post_2006::BLOCK;

/// The size of the blocks of each way: that of the post first.
const BLOCKS: [usize; 3] = [BLOCK, 256 << 10, 1 << 20];
/// Direct I/O waits for the device in each call.
const DIRECT_BLOCKS: [usize; 2] = [1 << 20, 4 << 20];

/// The ways of sending by the letters of the post, and their names as baselines.
const SENDING: [(&str, &str); 4] = [
    ("A read/write", "read-write"),
    ("B mmap", "mmap"),
    ("C splice", "splice"),
    ("sendfile", "sendfile"),
];

/// The ways of receiving by the numbers of the post, and their names as baselines.
const RECEIVING: [(&str, &str); 4] = [
    ("1 read/write", "read-write"),
    ("2 mmap", "mmap"),
    ("3 vmsplice", "vmsplice"),
    ("splice", "splice"),
];

/// The name of the contestant for a way of the post, with the block size of the post.
pub fn of_the_post(sign: char) -> Option<String> {
    let mut ways = SENDING.iter().chain(&RECEIVING);
    let (title, _) = ways.find(|(title, _)| title.starts_with(sign))?;
    Some(name(title, BLOCK))
}

fn name(title: &str, block: usize) -> String {
    match block >> 20 {
        0 => format!("{title} {}K", block >> 10),
        mebibytes => format!("{title} {mebibytes}M"),
    }
}

/// A quick run has the block size of the post.
fn blocks(bench: &Bench) -> &'static [usize] {
    if bench.options.quick {
        &BLOCKS[..1]
    } else {
        &BLOCKS
    }
}

/// The ways of sending to the socket, which is descriptor 3.
pub fn sending(bench: &Bench, from: Source) -> Vec<Contestant> {
    let tools = &bench.tools;
    let size = match from {
        Source::Zero => " --size {size}",
        Source::Cached | Source::Cold => "",
    };
    let mut all = vec![tools.ours(OURS, &format!("splice {{src}} fd:3 --json{size}"))];
    for (title, way) in SENDING {
        for block in blocks(bench) {
            let args = format!("net-send {way} {block} {{src}} {{size}}");
            all.push(tools.baseline(&name(title, *block), &args));
        }
    }
    all
}

/// The ways of receiving from the socket, which is descriptor 3.
pub fn receiving(bench: &mut Bench, to: Sink) -> Vec<Contestant> {
    let tools = bench.tools.clone();
    let mut all = vec![tools.ours(OURS, "splice fd:3 {dst} --json")];
    for (title, way) in RECEIVING {
        // ftruncate(2) and mmap(2) need a file.
        if to == Sink::Null && way == "mmap" {
            continue;
        }
        for block in blocks(bench) {
            let args = format!("net-receive {way} {block} {{dst}}");
            all.push(tools.baseline(&name(title, *block), &args));
        }
    }
    if to != Sink::Null {
        if has_direct_io(bench) {
            all.push(tools.ours(OURS_DIRECT, "splice fd:3 fd:4 --json"));
            let fewer = if bench.options.quick { 1 } else { 2 };
            for block in &DIRECT_BLOCKS[..fewer] {
                let args = format!("net-receive direct {block} {{dst}}");
                all.push(tools.baseline(&name("direct", *block), &args));
            }
        } else {
            bench.skip("O_DIRECT", "the file system has no direct I/O");
        }
    }
    match to {
        Sink::Null | Sink::File => all,
        Sink::Synced => all.into_iter().map(|c| synced(&tools, c)).collect(),
    }
}

fn has_direct_io(bench: &Bench) -> bool {
    let path = bench.path("probe");
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    let opened = options.custom_flags(libc::O_DIRECT).open(&path);
    let _ = std::fs::remove_file(path);
    opened.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ways_of_the_post_have_its_block_size() {
        let names = ['A', 'B', 'C', '1', '2', '3'].map(|sign| of_the_post(sign).unwrap());
        let expected = [
            "A read/write 64K",
            "B mmap 64K",
            "C splice 64K",
            "1 read/write 64K",
            "2 mmap 64K",
            "3 vmsplice 64K",
        ];
        assert_eq!(names, expected);
        assert_eq!(name("direct", 4 << 20), "direct 4M");
    }
}
