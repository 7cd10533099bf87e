//! What a setting may be.

use std::num::NonZeroU32;

use thiserror::Error;

/// Longest text that a setting may have, bytes: longer ones are mistakes, and 319 answers all of them in one frame.
const TEXT_BYTES_MAX: usize = 4096;

/// Why a setting was not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SetError {
    /// No setting has this name. The entry may be kept as unknown.
    #[error("there is no such setting")]
    UnknownKey,
    /// The value is not what it should be. (Java skips such a value without a word.)
    #[error("`{value}` is not {wanted}")]
    Malformed {
        /// What it should be.
        wanted: &'static str,
        /// What it is, cut to a readable length.
        value: String,
    },
}

/// A type that settings have.
pub trait Setting: Sized {
    /// What a text has to be, for error messages.
    const WANTED: &'static str;

    /// The value of a text.
    fn parse(text: &str) -> Option<Self>;

    /// The text of the value. `None` leaves the setting out of listings.
    fn text(&self) -> Option<String>;
}

macro_rules! number_setting {
    ($($type:ty: $wanted:literal),*) => {$(
        impl Setting for $type {
            const WANTED: &'static str = $wanted;

            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }

            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )*};
}

number_setting! {
    u16: "a port (0 to 65535)",
    i32: "a 32-bit number",
    u32: "a number from 0 up",
    NonZeroU32: "a number from 1 up"
}

impl Setting for bool {
    const WANTED: &'static str = "`true` or `false`";

    fn parse(text: &str) -> Option<Self> {
        [true, false]
            .into_iter()
            .find(|value| text.eq_ignore_ascii_case(if *value { "true" } else { "false" }))
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Setting for String {
    const WANTED: &'static str = "a text of at most 4096 bytes";

    fn parse(text: &str) -> Option<Self> {
        (text.len() <= TEXT_BYTES_MAX).then(|| text.to_owned())
    }

    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl Setting for Option<String> {
    const WANTED: &'static str = String::WANTED;

    fn parse(text: &str) -> Option<Self> {
        String::parse(text).map(Some)
    }

    fn text(&self) -> Option<String> {
        self.clone()
    }
}

/// The value of a text, or why it has none.
pub fn parse<S: Setting>(text: &str) -> Result<S, SetError> {
    S::parse(text)
        .ok_or_else(|| SetError::Malformed { wanted: S::WANTED, value: text.chars().take(64).collect() })
}

/// A default that is at least one.
pub const fn at_least_one(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}
