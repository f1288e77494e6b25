//! `cordboard copy`: bytes, counts, modes, trees, and what it refuses.
#![allow(missing_docs)]

mod acl;
mod aliases;
mod attributes;
mod close;
#[path = "../common/mod.rs"]
mod common;
mod devices;
#[cfg(target_feature = "crt-static")]
mod empty_root;
mod failing_lookups;
mod failing_parts;
mod few_descriptors;
mod files;
mod filtered_calls;
mod memory;
mod mounts;
mod nfs4_acl;
mod no_positions;
mod paths;
mod permissions;
mod removed_files;
mod replaced_files;
mod several;
mod sink_offset;
mod sums;
mod trees;
mod verify;
mod wide_modes;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The command as an unprivileged user: modes do not restrict root.
fn mortal(script: &str) -> Option<Command> {
    let mut shell = Command::new("sh");
    if rustix::process::geteuid().is_root() {
        let without = "--bounding-set=-dac_override,-dac_read_search";
        let can = Command::new("setpriv").args([without, "true"]).output();
        if !can.is_ok_and(|tried| tried.status.success()) {
            testkit::skip::here("to be kept out by a mode, root needs setpriv");
            return None;
        }
        shell = Command::new("setpriv");
        shell.args([without, "sh"]);
    }
    shell.args(["-c", &format!("{script}; exec \"$@\""), "sh"]);
    shell.arg(env!("CARGO_BIN_EXE_cordboard"));
    Some(shell)
}

/// Sets an old time, of a symlink itself.
fn past(path: &Path) {
    let second = rustix::fs::Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let times = rustix::fs::Timestamps {
        last_access: second,
        last_modification: second,
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
