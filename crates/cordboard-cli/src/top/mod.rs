//! `cordboard top`: shows the running transfers of a user, and steers them by keys.
//!
//! `row`, `keys` and `view` are pure functions from records and keys to lines of text.
//! `fleet` and `peer` have the connections to the control sockets, `screen` the terminal.

mod fleet;
mod graph;
mod keys;
mod live;
mod once;
mod peer;
mod row;
mod screen;
mod steps;
mod text;
mod view;

use rustix::stdio::{stdin, stdout};
use rustix::termios::isatty;

use crate::endpoint;
use crate::flags::TopFlags;
use crate::output;
use crate::print;
use crate::problem::Problem;
use crate::registry::Places;
use fleet::Fleet;
use peer::Peer;

/// Runs the command, and returns the exit status.
pub fn run(flags: &TopFlags) -> u8 {
    match top(flags) {
        Ok(()) => 0,
        Err(problem) => print::failed(&problem),
    }
}

fn top(flags: &TopFlags) -> Result<(), Problem> {
    let fleet = match flags.controls.is_empty() {
        true => Fleet::of(Places::of_user()),
        false => Fleet::named(named(flags)?),
    };
    let draws = isatty(stdin()) && isatty(stdout()) && !output::is_dumb();
    match flags.once || flags.json || !draws {
        true => once::show(fleet, flags.json),
        false => live::show(fleet),
    }
}

/// Connects to the sockets that the user has named.
fn named(flags: &TopFlags) -> Result<Vec<(String, Peer)>, Problem> {
    let each = flags.controls.iter().map(|name| {
        endpoint::check_control_name(name)?;
        let shown = name.to_string_lossy().into_owned();
        match Peer::connect(name) {
            Ok(peer) => Ok((shown, peer)),
            Err(errno) => {
                let text = format!("{errno} connecting to the control socket");
                let problem = Problem::unsided(shown, errno, text);
                Err(problem.help("name the --control socket of a running command"))
            }
        }
    });
    each.collect()
}

/// Returns whether the locale has UTF-8 (`locale(7)`). The first variable that is set counts.
fn has_utf_8(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set = names
        .into_iter()
        .filter_map(variable)
        .find(|value| !value.is_empty());
    set.is_some_and(|value| {
        let value = value.to_string_lossy().to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::has_utf_8;

    #[test]
    fn the_first_variable_counts() {
        let with = |all: &[(&str, &str)]| {
            has_utf_8(|name| {
                let found = all.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).into())
            })
        };
        assert!(with(&[("LANG", "de_DE.UTF-8")]));
        assert!(with(&[
            ("LC_ALL", ""),
            ("LC_CTYPE", "C.utf8"),
            ("LANG", "C")
        ]));
        assert!(!with(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
        assert!(!with(&[]));
    }
}
