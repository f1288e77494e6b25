//! A server that runs until its clients have gone, and its processor time.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::harness::cpu::Cpu;
use crate::harness::interleave::Turn;
use crate::harness::launch::{Job, Running};

/// The time within which a server must start, and its sessions must end.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// The time for which a server is left alone before its first client.
const SETTLE: Duration = Duration::from_millis(250);

/// A running server.
pub struct Server {
    /// The port at which it listens.
    pub port: u16,
    running: Running,
    /// The processor time of its start in seconds.
    start: f64,
}

impl Server {
    /// Starts the server for the files of a directory.
    pub fn start(turn: &Turn<'_>, directory: &Path, config: &Path) -> Result<Server> {
        // Another process may take the port meanwhile; the turn fails then.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        fs::write(config, of_vsftpd(directory, port))?;
        let fill = [
            ("port", port.to_string().into()),
            ("dir", directory.into()),
            ("conf", config.into()),
        ];
        let job = Job::new(&turn.command_line(&fill))?.directory(directory);
        let running = job.start()?;
        let deadline = Instant::now() + PATIENCE;
        while !is_listening(port) {
            if Instant::now() > deadline || has_ended(running.pid()) {
                let _ = running.end();
                bail!("the server does not listen");
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        // The kernel places the threads by the load of the last moments, which would be that of the
        // start: one server starts more slowly than another.
        std::thread::sleep(SETTLE);
        match of_threads(running.pid()) {
            Ok(start) => Ok(Server {
                port,
                running,
                start,
            }),
            Err(error) => {
                let _ = running.end();
                Err(error)
            }
        }
    }

    /// Ends the server after its sessions. Returns the processor time since it was left alone.
    pub fn end(self) -> Result<Cpu> {
        // The time of a session that is a process counts once the server has waited
        // for it.
        let pid = self.running.pid();
        let deadline = Instant::now() + PATIENCE;
        while has_children(pid) && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
        }
        let cpu = self.running.end()?;
        Ok(Cpu {
            user: 0.0,
            system: (cpu.total() - self.start).max(0.0),
        })
    }
}

/// Returns the processor time of the threads of a process in seconds. `proc_pid_schedstat(5)` has
/// nanoseconds.
fn of_threads(pid: u32) -> Result<f64> {
    let mut seconds = None;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended meanwhile.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else {
            continue;
        };
        let nanoseconds = text.split_whitespace().next().context("empty")?;
        *seconds.get_or_insert(0.0) += nanoseconds.parse::<f64>()? / 1e9;
    }
    seconds.context("the kernel does not report the time of threads")
}

/// Returns whether a process listens at this port. A connection would start a session, whose
/// processor time would count.
fn is_listening(port: u16) -> bool {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    sockets.contains(&format!(":{port:04X} 00000000:0000 0A"))
}

fn has_children(pid: u32) -> bool {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.is_ok_and(|text| !text.trim().is_empty())
}

fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|text| text.contains(") Z "))
}

/// Returns the configuration of vsftpd: it serves this directory to anonymous clients. It
/// does not change its user, because the directory may be readable only by root.
fn of_vsftpd(directory: &Path, port: u16) -> String {
    format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\n\
         anonymous_enable=YES\nlocal_enable=NO\nanon_root={}\nrun_as_launching_user=YES\n\
         one_process_model=YES\nseccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\n\
         max_per_ip=0\nmax_clients=0\nxferlog_enable=NO\n",
        directory.display()
    )
}
