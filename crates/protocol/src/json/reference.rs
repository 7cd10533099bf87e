//! Resolution of fastjson's `{"$ref":"…"}` (`docs/spec/01-remoting.md` 5.2, writer item 7).
//!
//! A Java writer puts a reference where an object occurs for the second time. `$.a.b[0]` is the place of its first
//! occurrence. `$`, `..` and `@` name an object around the reference, which no body can contain, so they read as
//! `null`, like a path that leads nowhere.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use super::{JsonError, Value};

/// How many bytes of text references may repeat, in addition to the length of the document itself. Real bodies repeat
/// a data version or a map of attributes.
const REPEATED_MAX: usize = 1 << 20;

/// From how many members on an object is searched by an index.
const INDEX_FROM: usize = 32;

/// How many references may lead to each other, and how many may lie in what references name.
const CHAIN_MAX: usize = 8;

static NULL: Value<'static> = Value::Null;

/// A document together with what bounds the work of resolving references in it.
pub(super) struct Document<'v> {
    root: &'v Value<'v>,
    repeatable: Cell<usize>,
    /// Members of large objects by name, so that many references into one cost no more than one.
    index: RefCell<HashMap<*const Value<'v>, HashMap<&'v str, &'v Value<'v>>>>,
}

impl<'v> Document<'v> {
    pub(super) fn new(root: &'v Value<'v>, text_len: usize) -> Self {
        Document { root, repeatable: Cell::new(text_len + REPEATED_MAX), index: RefCell::default() }
    }

    /// `value` itself, or what it refers to; with it, how many references have been followed on the way from the
    /// document's root to it.
    pub(super) fn resolve(
        &self,
        value: &'v Value<'v>,
        followed: usize,
    ) -> Result<(&'v Value<'v>, usize), JsonError> {
        let (mut value, mut followed) = (value, followed);
        while let Some(path) = reference(value) {
            followed += 1;
            value = if followed > CHAIN_MAX { &NULL } else { self.find(path).unwrap_or(&NULL) };
        }
        if followed > 0 {
            let cost = 1 + value.as_name().map_or(0, str::len);
            let left = self.repeatable.get().checked_sub(cost).ok_or(JsonError::TooManyReferences)?;
            self.repeatable.set(left);
        }
        Ok((value, followed))
    }

    fn find(&self, path: &str) -> Option<&'v Value<'v>> {
        let mut rest = path.strip_prefix('$')?;
        if rest.is_empty() {
            return None; // the root is around every reference
        }
        let mut value = self.root;
        while !rest.is_empty() {
            let (name, behind) = next_segment(rest)?;
            value = self.member(value, &name)?;
            rest = behind;
        }
        Some(value)
    }

    fn member(&self, value: &'v Value<'v>, name: &str) -> Option<&'v Value<'v>> {
        match value {
            Value::Array(elements) => elements.get(name.parse::<usize>().ok()?),
            Value::Object(members) if members.len() < INDEX_FROM => {
                value.get(name).or_else(|| nameless(members, name))
            }
            Value::Object(members) => {
                let mut index = self.index.borrow_mut();
                let by_name = index.entry(value).or_insert_with(|| {
                    members.iter().filter_map(|(key, value)| Some((key.as_name()?, value))).collect()
                });
                by_name.get(name).copied().or_else(|| nameless(members, name))
            }
            _ => None,
        }
    }
}

/// An object that is the key of a map has the name `null` in Java's paths.
fn nameless<'v>(members: &'v [(Value<'v>, Value<'v>)], name: &str) -> Option<&'v Value<'v>> {
    let (key, _) = members.first().filter(|_| name == "null")?;
    matches!(key, Value::Object(_)).then_some(key)
}

fn reference<'v>(value: &'v Value<'v>) -> Option<&'v str> {
    match value {
        Value::Object(members) => match members.as_slice() {
            [(Value::String(key), Value::String(path))] if key == "$ref" => Some(path),
            _ => None,
        },
        _ => None,
    }
}

/// Splits `.name…` or `[0]…` behind its first segment. A backslash takes the meaning from what follows it.
fn next_segment(path: &str) -> Option<(String, &str)> {
    if let Some(rest) = path.strip_prefix('[') {
        let (index, behind) = rest.split_once(']')?;
        return Some((index.to_owned(), behind));
    }
    let rest = path.strip_prefix('.')?;
    let mut name = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '.' | '[' => return Some((name, &rest[at..])),
            '\\' => name.push(chars.next()?.1),
            c => name.push(c),
        }
    }
    Some((name, ""))
}
