//! Maps that need no random bytes.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

/// Hashed by fixed keys. The standard library takes its keys from
/// `getrandom(2)`, and panics where a filter refuses that. What is hashed here
/// are numbers that the kernel or the engine has given out.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
