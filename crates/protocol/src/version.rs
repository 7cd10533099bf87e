//! Who speaks: versions and languages of peers (`docs/spec/01-remoting.md` 1.8, 1.9).

/// The version that FerroMQ announces: `V5_3_3`, the release whose behaviour it follows.
pub const CURRENT: i32 = 479;

/// `V3_0_7_SNAPSHOT`: oldest consumer that can be asked for its offsets (codes 220, 221).
pub const V3_0_7_SNAPSHOT: i32 = 28;
/// `V3_0_11`: from here a registration body is a `RegisterBrokerBody`.
pub const V3_0_11: i32 = 37;
/// `V3_1_8_SNAPSHOT`: oldest consumer that answers 307 and 309.
pub const V3_1_8_SNAPSHOT: i32 = 62;
/// `V3_4_9`: from here `maxReconsumeTimes` of a header counts.
pub const V3_4_9: i32 = 121;
/// `V4_9_4`: from here routes are answered in standard JSON.
pub const V4_9_4: i32 = 401;
/// `V5_0_0`: from here the compressed registration body carries static topics.
pub const V5_0_0: i32 = 413;

/// The name of a version, e.g. `V5_3_3` (1.9). Below 4.0.0 the list is irregular and only the number is told.
pub fn name(version: i32) -> String {
    const V4_0_0: i32 = 213;
    const HIGHER: i32 = 612;
    if version >= HIGHER {
        return "HIGHER_VERSION".to_owned();
    }
    if version < V4_0_0 - 1 {
        return format!("V3_{version}");
    }
    let snapshot = (version - V4_0_0) % 2 != 0;
    let step = (version + i32::from(snapshot) - V4_0_0) / 2;
    let (major, minor, patch) = (4 + step / 100, step / 10 % 10, step % 10);
    format!("V{major}_{minor}_{patch}{}", if snapshot { "_SNAPSHOT" } else { "" })
}

/// Names of the languages, at the position that is their code.
const LANGUAGES: [&str; 14] = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
    "RUST", "NODE_JS",
];

/// The language a peer says it is written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Language(u8);

impl Language {
    /// What servers answer with.
    pub const JAVA: Self = Self(0);
    /// Switches code 222 to the C++ body form.
    pub const CPP: Self = Self(1);
    /// Our own clients.
    pub const RUST: Self = Self(12);

    /// The language with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        (usize::from(code) < LANGUAGES.len()).then_some(Self(code))
    }

    /// The language with this name, in any case.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let position = LANGUAGES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
        Some(Self(position as u8))
    }

    /// Its code in binary headers.
    pub fn code(self) -> u8 {
        self.0
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        LANGUAGES[usize::from(self.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_list() {
        assert_eq!(name(CURRENT), "V5_3_3");
        assert_eq!(name(407), "V4_9_7");
        assert_eq!(name(212), "V4_0_0_SNAPSHOT");
        assert_eq!(name(317), "V4_5_2");
        assert_eq!(name(611), "V5_9_9");
        assert_eq!(name(612), "HIGHER_VERSION");
    }

    #[test]
    fn languages_are_found_by_name_in_any_case() {
        assert_eq!(Language::from_name(b"go").map(Language::code), Some(9));
        assert_eq!(Language::from_name(b"GOLANG"), None);
        assert_eq!(Language::from_code(14), None);
    }
}
