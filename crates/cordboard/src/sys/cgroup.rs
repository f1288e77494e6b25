//! The memory limit of the process's control groups (cgroups(7)).

use std::path::{Path, PathBuf};

/// Returns the smallest limit of the groups of this process, in bytes; `None` if there
/// is no limit, or none can be read. Version 2 has `memory.max`, version 1
/// `memory.limit_in_bytes`.
pub(crate) fn memory_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    least(Path::new("/sys/fs/cgroup"), &groups)
}

/// `groups`: the content of `/proc/self/cgroup`. `mounted`: where the groups are
/// mounted.
fn least(mounted: &Path, groups: &str) -> Option<u64> {
    groups.lines().filter_map(|line| of(mounted, line)).min()
}

/// Returns the smallest limit of one group and its ancestors. In a container the path
/// may be that of the host, of which only the last components exist.
fn of(mounted: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (tops, name): (&[&str], _) = match controllers {
        // Beside version 1, version 2 is mounted one level below.
        "" => (&["", "unified"], "memory.max"),
        _ if controllers.split(',').any(|one| one == "memory") => {
            (&["memory"], "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let limits = tops.iter().flat_map(|top| {
        let group: PathBuf = mounted.join(top).join(path.trim_start_matches('/'));
        let top = mounted.join(top);
        let above = group
            .ancestors()
            .take_while(|above| above.starts_with(&top));
        let limits = above.filter_map(|above| {
            // "max" is not a number.
            let limit = std::fs::read_to_string(above.join(name)).ok()?;
            limit.trim().parse::<u64>().ok()
        });
        limits.collect::<Vec<_>>()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let dir = tempfile::tempdir().unwrap();
        let set = |group: &str, name: &str, limit: &str| {
            let group = dir.path().join(group);
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join(name), limit).unwrap();
        };
        let of = |groups: &str| least(dir.path(), groups);
        let two = "0::/a/b\n";
        assert_eq!(of(two), None);
        set("a/b", "memory.max", "max\n");
        assert_eq!(of(two), None);
        set("a/b", "memory.max", "9000\n");
        set("a", "memory.max", "8000\n");
        assert_eq!(of(two), Some(8000));
        // A path of the host, which a container does not see.
        assert_eq!(of("0::/a/elsewhere\n"), Some(8000));
        let one = "5:cpu:/\n4:hugetlb,memory:/c\n0::/a/b\n";
        set("memory/c", "memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of(one), Some(8000));
        set("memory", "memory.limit_in_bytes", "7000\n");
        assert_eq!(of(one), Some(7000));
        assert_eq!(of("5:cpu:/c\n"), None);
    }
}
