//! The environment variables that the library and the command read, and that change paths.

use std::process::Command;

/// The variables. A user may have set them, and the tests expect the defaults.
pub const VARIABLES: [&str; 4] = [
    "CORDBOARD_ROUTE",
    "CORDBOARD_WITHOUT",
    "CORDBOARD_TUNE",
    "CORDBOARD_ENGINE",
];

/// Removes the variables from the environment of a command.
pub fn defaults(command: &mut Command) -> &mut Command {
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
}

/// Returns the variables with which this process was started.
pub fn set() -> Vec<&'static str> {
    // Not the current environment: a test program may set a variable itself.
    let all = std::fs::read("/proc/self/environ").unwrap_or_default();
    let is_set = |name: &&str| {
        let mut entries = all.split(|byte| *byte == 0);
        entries.any(|entry| {
            let rest = entry.strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.first() == Some(&b'='))
        })
    };
    VARIABLES.into_iter().filter(is_set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_none_of_the_variables() {
        let mut command = Command::new("true");
        for name in VARIABLES {
            command.env(name, "splice");
        }
        defaults(&mut command);
        assert!(command.get_envs().all(|(_, value)| value.is_none()));
        assert_eq!(command.get_envs().count(), VARIABLES.len());
    }
}
