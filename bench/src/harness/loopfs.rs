//! A file system of a given type on a loop device over tmpfs.
//!
//! It is removed in every case: the mount is in a private mount namespace, the
//! image is unlinked once it is attached, and the loop device detaches itself
//! after the unmount. All three end with the process, even if it is killed.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};

use super::{env, sys};

const MEMORY: &str = "/dev/shm";

/// A mounted file system; unmounted when dropped.
#[derive(Debug)]
pub struct LoopFs {
    mount: PathBuf,
    device: String,
    _directory: tempfile::TempDir,
}

impl LoopFs {
    /// Makes and mounts a file system of type `kind`: `xfs` or `btrfs`.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible here.
    pub fn make(kind: &str, bytes: u64) -> Result<LoopFs> {
        ensure!(rustix::process::geteuid().is_root(), "not root");
        ensure!(
            env::filesystem(Path::new(MEMORY)) == "tmpfs",
            "{MEMORY} is not a tmpfs"
        );
        ensure!(env::memory_available() > bytes * 2, "not enough memory");
        static PRIVATE: OnceLock<Result<(), String>> = OnceLock::new();
        let private = PRIVATE.get_or_init(|| sys::private_mounts().map_err(|e| e.to_string()));
        private
            .clone()
            .map_err(anyhow::Error::msg)
            .context("no private mount namespace")?;

        let directory = tempfile::Builder::new()
            .prefix("cordboard-mount-")
            .tempdir()?;
        let image = tempfile::Builder::new()
            .prefix("cordboard-loop-")
            .tempfile_in(MEMORY)?;
        File::set_len(image.as_file(), bytes)?;
        let device = attach(image.path())?;
        let mount = directory.path().join(kind);
        std::fs::create_dir(&mount)?;
        let made = LoopFs {
            mount,
            device,
            _directory: directory,
        };
        let (tool, flags): (&str, &[&str]) = match kind {
            "xfs" => ("mkfs.xfs", &["-q", "-f", "-m", "reflink=1"]),
            "btrfs" => ("mkfs.btrfs", &["-q", "-f"]),
            _ => bail!("unknown file system {kind}"),
        };
        run(
            tool,
            flags
                .iter()
                .map(OsStr::new)
                .chain([OsStr::new(&made.device)]),
        )?;
        run(
            "mount",
            [
                OsStr::new("-t"),
                kind.as_ref(),
                made.device.as_ref(),
                made.mount.as_ref(),
            ],
        )?;
        // It is in use: this only marks it to be detached at the last close.
        run("losetup", ["-d", &made.device])?;
        Ok(made)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// `MAJOR:MINOR` of the loop device.
    pub fn device_number(&self) -> Result<String> {
        use rustix::fs::{major, minor, stat};
        let number = stat(&self.device).context("the loop device")?.st_rdev;
        Ok(format!("{}:{}", major(number), minor(number)))
    }
}

impl Drop for LoopFs {
    fn drop(&mut self) {
        let unmounted = rustix::mount::unmount(&self.mount, rustix::mount::UnmountFlags::DETACH);
        if unmounted.is_err() {
            // It was never mounted: the device is still attached.
            let _ = run("losetup", ["-d", &self.device]);
        }
    }
}

/// Direct I/O on the image avoids caching the data twice. It is not used if
/// tmpfs does not support it (before Linux 6.6).
fn attach(image: &Path) -> Result<String> {
    let mut why = String::new();
    for direct in ["on", "off"] {
        let ran = Command::new("losetup")
            .args(["--find", "--show", &format!("--direct-io={direct}")])
            .arg(image)
            .output()
            .context("losetup")?;
        if ran.status.success() {
            return Ok(String::from_utf8(ran.stdout)?.trim().to_owned());
        }
        why = String::from_utf8_lossy(&ran.stderr).into_owned();
    }
    bail!("losetup: {}", why.trim())
}

fn run<S: AsRef<OsStr>>(tool: &str, args: impl IntoIterator<Item = S>) -> Result<()> {
    let ran = Command::new(tool)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| tool.to_owned())?;
    ensure!(
        ran.status.success(),
        "{tool}: {}",
        String::from_utf8_lossy(&ran.stderr)
            .lines()
            .next()
            .unwrap_or("failed")
    );
    Ok(())
}
