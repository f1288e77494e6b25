//! The directories in which commands of one user may have entries.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::stat;
use rustix::process::geteuid;

use super::{Directory, Entry, Registered};
use crate::problem::Problem;

/// The name of the directory in a runtime directory.
const NAME: &str = "cordboard";

/// The directories in which commands of this user may have entries: in each runtime directory of
/// the user, and in `/tmp`. A command of cron may have no runtime directory, and one of a shell
/// has one.
#[derive(Debug)]
pub struct Places {
    /// The runtime directories. One of another user is not used: `sudo` may keep the variable,
    /// and its owner could not use a directory that root has created there.
    runtime: Vec<PathBuf>,
    /// The directory without a runtime directory.
    last: PathBuf,
}

/// The directories that exist.
#[derive(Debug, Default)]
pub struct Opened {
    /// Those that can be used.
    pub directories: Vec<Directory>,
    /// The first one that cannot be used.
    pub problem: Option<Problem>,
    /// It is the one in which commands with this environment have their entries first.
    pub is_first: bool,
}

impl Places {
    /// Those of this user.
    pub fn of_user() -> Places {
        let variable = |name| std::env::var_os(name);
        match variable("CORDBOARD_RUNTIME_DIR").filter(|only| !only.is_empty()) {
            Some(only) => Places::only(Path::new(&only)),
            None => Places::among(
                variable("XDG_RUNTIME_DIR"),
                Path::new("/run/user"),
                Path::new("/tmp"),
            ),
        }
    }

    /// The one in this directory. Entries name sockets in it, which commands in other directories
    /// must find.
    pub fn only(directory: &Path) -> Places {
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        Places {
            runtime: Vec::new(),
            last: directory.join(NAME),
        }
    }

    /// Those in the runtime directory of the environment, in that of a login below `logins`, and
    /// in `shared`.
    pub fn among(runtime: Option<OsString>, logins: &Path, shared: &Path) -> Places {
        let user = geteuid().as_raw();
        let runtime = runtime.map(PathBuf::from).filter(|path| path.is_absolute());
        let of_login = logins.join(user.to_string());
        let other = runtime.filter(|path| *path != of_login);
        Places {
            runtime: other.into_iter().chain([of_login]).collect(),
            last: shared.join(format!("{NAME}-{user}")),
        }
    }

    /// Returns the paths, the most important one first.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let user = geteuid().as_raw();
        let is_ours = move |path: &&PathBuf| stat(*path).is_ok_and(|stat| stat.st_uid == user);
        let runtime = self.runtime.iter().filter(is_ours);
        (runtime.map(|path| path.join(NAME))).chain([self.last.clone()])
    }

    /// Returns the path of the first directory for new entries.
    #[cfg(test)]
    pub fn first(&self) -> PathBuf {
        self.paths().next().unwrap()
    }

    /// Opens the first directory that takes a socket and its entry; creates it if there is none. It
    /// may be full or read-only, or its path too long for the address of a socket.
    pub fn directory(&self) -> Result<Directory, Problem> {
        self.first_of(|path| {
            let directory = Directory::at(path)?;
            directory.listen("serve ftp", String::new())?;
            Ok(directory)
        })
    }

    /// Adds an entry to the first directory that takes it.
    pub fn register(&self, entry: &Entry) -> Result<Registered, Problem> {
        self.first_of(|path| Directory::at(path)?.add(entry))
    }

    /// Returns the first success, or the first problem.
    fn first_of<T>(&self, take: impl Fn(PathBuf) -> Result<T, Problem>) -> Result<T, Problem> {
        let mut problem = None;
        for path in self.paths() {
            match take(path) {
                Ok(taken) => return Ok(taken),
                Err(other) => problem = problem.or(Some(other)),
            }
        }
        // There is always a last path.
        problem.map_or_else(|| take(self.last.clone()), Err)
    }

    /// Opens the directories that exist. Creates none.
    pub fn open(&self) -> Opened {
        let mut opened = Opened::default();
        for (rank, path) in self.paths().enumerate() {
            match Directory::existing(path) {
                Ok(directory) => opened.directories.push(directory),
                Err(problem) if problem.errno == Some(cordboard::Errno::ENOENT) => {}
                Err(problem) if opened.problem.is_none() => {
                    opened.problem = Some(problem);
                    opened.is_first = rank == 0;
                }
                Err(_) => {}
            }
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A full or read-only runtime directory, for example.
    #[test]
    fn the_first_directory_that_can_be_used_gets_the_entry() {
        let base = tempfile::tempdir().unwrap();
        let places = Places::among(Some(base.path().into()), Path::new("/none"), base.path());
        let of_runtime = base.path().join(NAME);
        std::fs::write(&of_runtime, b"no directory").unwrap();
        let entry = Entry::new("splice", "a -> b".to_owned(), "@s".into());
        let _registered = places.register(&entry).unwrap();
        let opened = places.open();
        assert_eq!(opened.directories.len(), 1);
        assert_eq!(opened.directories[0].entries().unwrap()[0].1, entry);
        assert_eq!(places.directory().unwrap().path(), places.last);
        // The first problem is the one of the usual directory.
        let places = Places {
            last: of_runtime.join("below"),
            ..places
        };
        let problem = places.register(&entry).unwrap_err();
        assert_eq!(problem.operand, of_runtime.to_string_lossy());
    }

    /// The entry itself would fit.
    #[test]
    fn a_path_that_is_too_long_for_a_socket_is_passed_over() {
        let base = tempfile::tempdir().unwrap();
        let runtime = base.path().join("d".repeat(100));
        std::fs::create_dir(&runtime).unwrap();
        let places = Places::among(Some(runtime.into()), Path::new("/none"), base.path());
        assert_ne!(places.first(), places.last);
        let chosen = places.directory().unwrap();
        assert_eq!(chosen.path(), places.last);
        // Nothing is left.
        for path in [places.first(), places.last.clone()] {
            assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
        }
        let places = Places {
            last: places.first(),
            ..places
        };
        let problem = places.directory().unwrap_err();
        assert_eq!(problem.errno, Some(cordboard::Errno::ENAMETOOLONG));
    }

    #[test]
    fn a_relative_directory_is_found_from_others() {
        assert!(Places::only(Path::new("relative")).first().is_absolute());
    }

    #[test]
    fn only_an_own_runtime_directory_counts() {
        let base = tempfile::tempdir().unwrap();
        let (logins, shared) = (base.path().join("run"), base.path().join("tmp"));
        let first = |runtime: &str| Places::among(Some(runtime.into()), &logins, &shared).first();
        let user = geteuid().as_raw();
        let own = base.path().to_str().unwrap();
        assert_eq!(first(own), base.path().join("cordboard"));
        let last = shared.join(format!("cordboard-{user}"));
        for other in ["relative", "/nonexistent/there"] {
            assert_eq!(first(other), last, "{other}");
        }
        let of_login = logins.join(user.to_string());
        std::fs::create_dir_all(&of_login).unwrap();
        for other in ["relative", "/nonexistent/there", of_login.to_str().unwrap()] {
            assert_eq!(first(other), of_login.join("cordboard"), "{other}");
        }
    }

    /// A bad directory does not hide the others.
    #[test]
    fn all_that_exist_are_opened_and_none_is_created() {
        let base = tempfile::tempdir().unwrap();
        let places = Places::among(None, &base.path().join("run"), base.path());
        let user = geteuid().as_raw();
        let of_login = base.path().join(format!("run/{user}"));
        std::fs::create_dir_all(&of_login).unwrap();
        let shared = base.path().join(format!("cordboard-{user}"));
        let opened = || {
            let opened = places.open();
            let paths = opened.directories.iter().map(|it| it.path().to_owned());
            let paths: Vec<PathBuf> = paths.collect();
            (paths, opened.problem.map(|_| opened.is_first))
        };
        assert_eq!(opened(), (vec![], None));
        assert!(!places.first().exists() && !shared.exists());
        Directory::at(shared.clone()).unwrap();
        assert_eq!(opened(), (vec![shared.clone()], None));
        Directory::at(places.first()).unwrap();
        assert_eq!(opened(), (vec![places.first(), shared.clone()], None));
        for (bad, good) in [(&shared, places.first()), (&places.first(), shared.clone())] {
            let mode = |mode| std::fs::set_permissions(bad, PermissionsExt::from_mode(mode));
            mode(0o777).unwrap();
            assert_eq!(opened(), (vec![good], Some(bad != &shared)));
            mode(0o700).unwrap();
        }
    }
}
