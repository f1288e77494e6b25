//! Hash maps that need no random bytes.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

/// A hash map with fixed keys. The standard library takes keys from
/// `getrandom(2)`, and panics if a filter refuses that call. The keys here are
/// numbers that the kernel or the engine has assigned, not input of an
/// adversary.
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
