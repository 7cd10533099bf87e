//! What a group may be called (`docs/spec/03-broker.md` 4.7).

use ferromq_protocol::names::has_legal_characters;
use thiserror::Error;

/// Longest name, characters: with `%RETRY%` before it, it is the name of a topic.
const LENGTH_MAX: usize = 120;

/// Which rule a group's name breaks; the text is the remark that clients get.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum GroupNameError {
    /// Nothing but white space.
    #[error("The specified group is blank.")]
    Blank,
    /// A character outside of the set.
    #[error("The specified group: {0}, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")]
    IllegalCharacters(String),
    /// More than [`LENGTH_MAX`] characters.
    #[error("The specified group: {0}, is longer than group max length: {LENGTH_MAX}")]
    TooLong(String),
}

/// Checks the name of a group that is to be created.
pub(crate) fn check_group(group: &str) -> Result<(), GroupNameError> {
    // Longer names are not repeated in full.
    let shown = || group.chars().take(2 * LENGTH_MAX).collect();
    if group.trim().is_empty() {
        Err(GroupNameError::Blank)
    } else if !has_legal_characters(group) {
        Err(GroupNameError::IllegalCharacters(shown()))
    } else if group.len() > LENGTH_MAX {
        Err(GroupNameError::TooLong(shown()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_in_the_order_of_the_rules() {
        let remark = |group: &str| check_group(group).map_err(|error| error.to_string());
        assert_eq!(remark(" "), Err("The specified group is blank.".into()));
        assert_eq!(
            remark("a b"),
            Err("The specified group: a b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
                .into())
        );
        let long = "g".repeat(121);
        assert_eq!(
            remark(&long),
            Err(format!("The specified group: {long}, is longer than group max length: 120"))
        );
        assert_eq!(remark(&long[1..]), Ok(()));
        assert_eq!(remark("GID_a-b|c%d"), Ok(()));
    }
}
