//! Judging one value.

use std::fmt;

use regex::Regex;
use serde_json::Value;

use super::answer;
use super::line::{Expectation, Wanted};

/// A value that is not what was recorded.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) line: String,
    pub(crate) path: String,
    pub(crate) wanted: String,
    pub(crate) found: Option<Value>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.found.as_ref().map_or("nothing".to_owned(), Value::to_string);
        write!(f, "`{}`: {} should be {}, it is {found:.300}", self.line, self.path, self.wanted)
    }
}

/// Which of the expectations the response does not meet.
pub(crate) fn check(line: &str, expectations: &[Expectation], response: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Expectation { path, wanted } in expectations {
        let found = answer::find(response, path);
        if !wanted.is_met(found.as_ref()) {
            findings.push(Finding {
                line: line.to_owned(),
                path: path.clone(),
                wanted: wanted.to_string(),
                found,
            });
        }
    }
    findings
}

impl Wanted {
    /// Whether the value, or that there is none, is what was recorded.
    pub(crate) fn is_met(&self, found: Option<&Value>) -> bool {
        let Some(found) = found else { return matches!(self, Self::Absent) };
        match self {
            Self::Absent => false,
            Self::Equals(Value::Number(number)) => found.as_f64() == number.as_f64(),
            Self::Equals(value) => found == value,
            Self::Matches(pattern) => {
                let pattern = Regex::new(pattern).expect("a regular expression");
                pattern.is_match(found.as_str().unwrap_or(&found.to_string()))
            }
            Self::Type(name) => match name.as_str() {
                "string" => found.is_string(),
                "number" => found.is_number(),
                "boolean" => found.is_boolean(),
                other => panic!("unknown type of value: {other}"),
            },
            Self::Contains(parts) => {
                found.as_str().is_some_and(|text| parts.iter().all(|part| text.contains(part.as_str())))
            }
            Self::Members(names) => found.as_object().is_some_and(|object| object.keys().eq(names)),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(value) => write!(f, "{value}"),
            Self::Matches(pattern) => write!(f, "like {pattern}"),
            Self::Type(name) => write!(f, "a {name}"),
            Self::Absent => f.write_str("absent"),
            Self::Contains(parts) => write!(f, "a text with {}", parts.join(" ")),
            Self::Members(names) => write!(f, "an object of {}", names.join(", ")),
        }
    }
}
