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
