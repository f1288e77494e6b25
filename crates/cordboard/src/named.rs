//! Enums whose values have names, a line each.

/// Defines an enum, the list of its values, and the name of each.
macro_rules! named {
    (
        $(#[$meta:meta])*
        pub enum $Enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }
        $(#[$all_doc:meta])* ALL
        $(#[$name_doc:meta])* name
    ) => {
        $(#[$meta])*
        pub enum $Enum {
            $($(#[$doc])* $variant,)*
        }

        impl $Enum {
            $(#[$all_doc])*
            pub const ALL: &'static [$Enum] = &[$($Enum::$variant,)*];

            $(#[$name_doc])*
            pub fn name(self) -> &'static str {
                match self {
                    $($Enum::$variant => $name,)*
                }
            }
        }
    };
}

pub(crate) use named;
