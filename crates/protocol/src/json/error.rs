//! What can be wrong with a JSON text.

use std::fmt;

use super::parse::DEPTH_MAX;

/// Why a JSON text could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON, not even by fastjson's standards.
    #[error("at byte {at}: expected {expected}, found {found}")]
    Syntax {
        /// Where, in bytes from the start of the text.
        at: usize,
        /// What would have been right there.
        expected: &'static str,
        /// What is there: a character in quotes, or `end of text`.
        found: String,
    },
    /// Objects and arrays are nested deeper than any body of RocketMQ.
    #[error("at byte {at}: nested deeper than {DEPTH_MAX} levels")]
    TooDeep {
        /// Where the level too much begins, in bytes from the start of the text.
        at: usize,
    },
    /// The text is JSON, but a value is not what the type being read needs.
    #[error("at ${path}: {message}")]
    Shape {
        /// Which value: `.offsetTable.T@G[0]`, empty for the whole document.
        path: String,
        /// What was expected and what was found.
        message: String,
    },
    /// The text's `$ref`s repeat so much of it that reading on would be an attack on memory.
    #[error("references multiply the document beyond its limit")]
    TooManyReferences,
}

impl JsonError {
    /// A value that is not what the type being read needs.
    pub(super) fn shape(message: impl Into<String>) -> Self {
        JsonError::Shape { path: String::new(), message: message.into() }
    }

    /// What is wrong, without where.
    pub(super) fn reason(self) -> String {
        match self {
            JsonError::Shape { message, .. } => message,
            other => other.to_string(),
        }
    }

    /// Says that the wrong value lies below `segment`, which is `.name` or `[index]`.
    pub(super) fn below(self, segment: fmt::Arguments<'_>) -> Self {
        match self {
            JsonError::Shape { path, message } => {
                JsonError::Shape { path: format!("{segment}{path}"), message }
            }
            other => other,
        }
    }
}

impl serde::de::Error for JsonError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        JsonError::shape(message.to_string())
    }
}
