//! Confines the process to the served directory (landlock(7), since Linux 5.19), in
//! addition to the resolution of names beneath the root.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

/// The version of the restricted rights. An older kernel restricts fewer of them.
const RIGHTS: ABI = ABI::V3;

/// Restricts this thread, and all threads that it starts from now on, to the root and to
/// the directory in which transfers are listed. Returns the result for the log.
pub fn confine(root: &Path, list: Option<&Path>) -> String {
    match restrict(root, list) {
        Ok(RulesetStatus::FullyEnforced) => "confined by landlock".to_owned(),
        Ok(RulesetStatus::PartiallyEnforced) => "partly confined by landlock".to_owned(),
        Ok(RulesetStatus::NotEnforced) => {
            "not confined by landlock: no support (since Linux 5.19)".to_owned()
        }
        Err(error) => format!("not confined by landlock: {error}"),
    }
}

fn restrict(root: &Path, list: Option<&Path>) -> Result<RulesetStatus, RulesetError> {
    let all = AccessFs::from_all(RIGHTS);
    let read = AccessFs::from_read(RIGHTS);
    // The first version of landlock, since Linux 5.13, forbids all moves of files between
    // directories, and has no right for them. That is since Linux 5.19.
    let moves = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer);
    if moves.is_err() {
        return Ok(RulesetStatus::NotEnforced);
    }
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?;
    // The library reads facts about descriptors, limits and devices there.
    let others = ["/proc", "/sys", "/dev"];
    let entries = AccessFs::MakeSock
        | AccessFs::MakeReg
        | AccessFs::WriteFile
        | AccessFs::RemoveFile
        | AccessFs::ReadFile
        | AccessFs::ReadDir;
    let folders = std::iter::once((root, all))
        .chain(list.map(|path| (path, entries)))
        .chain(others.map(|path| (Path::new(path), read)));
    for (folder, rights) in folders {
        // A folder that does not exist needs no rule.
        if let Ok(fd) = PathFd::new(folder) {
            rules = rules.add_rule(PathBeneath::new(fd, rights))?;
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Result};

    use testkit::needs::{Need, missing};
    use testkit::refuse::{LANDLOCK_CREATE_RULESET, apart, refuse};

    use super::*;

    /// Also without the resolution of names beneath the root.
    #[test]
    fn a_confined_thread_reaches_only_the_root_and_the_list() {
        if missing(&testkit::skip::this_test(), &[Need::Landlock]) {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["root/a", "root/b", "list", "outside"] {
            std::fs::create_dir_all(path(name)).unwrap();
            std::fs::write(path(name).join("f"), b"f").unwrap();
        }
        let is_refused = |done: Result<()>| {
            // A move out of the root (landlock(7), LANDLOCK_ACCESS_FS_REFER).
            let refused = [ErrorKind::PermissionDenied, ErrorKind::CrossesDevices];
            done.is_err_and(|error| refused.contains(&error.kind()))
        };
        apart(|| {
            let said = confine(&path("root"), Some(&path("list")));
            let full = ["confined by landlock", "partly confined by landlock"];
            assert!(full.contains(&said.as_str()), "{said}");
            for name in ["root/a/f", "list/f"] {
                assert_eq!(std::fs::read(path(name)).unwrap(), b"f", "{name}");
                // The list has no right to truncate.
                std::fs::File::options()
                    .write(true)
                    .open(path(name))
                    .unwrap();
            }
            std::fs::rename(path("root/a/f"), path("root/b/moved")).unwrap();
            assert!(is_refused(std::fs::read_dir("/").map(drop)));
            let outside = path("outside/f");
            assert!(is_refused(std::fs::write(&outside, b"g")));
            assert!(is_refused(std::fs::remove_file(&outside)));
            assert!(is_refused(std::fs::create_dir(path("outside/d"))));
            assert!(is_refused(std::fs::rename(
                path("root/b/f"),
                path("outside/g")
            )));
        });
        assert_eq!(std::fs::read(path("outside/f")).unwrap(), b"f");
    }

    #[test]
    fn a_kernel_without_landlock_is_logged() {
        for errno in [libc::ENOSYS, libc::EOPNOTSUPP] {
            let said = apart(|| {
                refuse(&[LANDLOCK_CREATE_RULESET], errno);
                confine(Path::new("."), None)
            });
            assert!(
                said.starts_with("not confined by landlock: no support"),
                "{said}"
            );
        }
    }
}
