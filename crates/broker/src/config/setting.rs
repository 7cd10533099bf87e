//! What is known about each key, and the macro that makes it and [`BrokerConfig`] out of the
//! tables in `table/`.

use super::BrokerConfig;
use super::value::Malformed;

/// One key of `broker.conf`.
#[derive(Debug)]
pub struct Setting {
    /// As it is written in the file.
    pub key: &'static str,
    /// Heading that it belongs under.
    pub theme: &'static str,
    /// What it means, one sentence.
    pub doc: &'static str,
    /// Who may change it and when.
    pub change: Change,
    /// Whether `-m` shows it.
    pub important: bool,
    /// The least and the most, for numbers with narrow limits.
    pub range: Option<(u64, u64)>,
    /// How its default is computed, as source text.
    pub default_source: &'static str,
    pub(super) get: fn(&BrokerConfig) -> Option<String>,
    pub(super) set: fn(&mut BrokerConfig, &str) -> Result<(), Malformed>,
}

/// Who may change a setting, and when that takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// UPDATE_BROKER_CONFIG changes it, with effect at once.
    Live,
    /// It is read when the broker starts; UPDATE_BROKER_CONFIG refuses it and says so.
    Restart,
    /// Like [`Change::Restart`], and no client may ever change it, because it names a path, a class, a store, or who is
    /// let in.
    Sealed,
    /// Accepted, kept and shown, because configuration files and tools have it, but FerroMQ does not (or not yet) act
    /// on it.
    Unused,
}

macro_rules! settings {
    ([] $(
        $theme:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $kind:ty = $default:expr; $change:ident $key:literal
                    $([$important:ident])? $(in $least:literal..=$most:literal)?;
            )*
        }
    )*) => {
        /// The settings of a broker: every key of `broker.conf`, under its name in snake case.
        ///
        /// Times are milliseconds and sizes bytes unless the name or the text says otherwise.
        #[derive(Clone, Debug)]
        pub struct BrokerConfig {
            $($(
                $(#[doc = $doc])+
                pub $field: $kind,
            )*)*
            /// Keys that nobody knows, kept because tools show them.
            pub unknown: BTreeMap<String, String>,
            /// How this process writes the headers of its requests and answers. In RocketMQ that is a property of the
            /// process (`ROCKETMQ_SERIALIZE_TYPE`), not a key of the file.
            pub header_encoding: HeaderEncoding,
        }

        impl Default for BrokerConfig {
            fn default() -> Self {
                Self { $($($field: $default,)*)* unknown: BTreeMap::new(), header_encoding: HeaderEncoding::Json }
            }
        }

        /// Every key, by theme.
        pub static SETTINGS: &[Setting] = &[$($(
            Setting {
                key: $key,
                theme: $theme,
                doc: concat!($($doc),+),
                change: settings!(@change $change),
                important: settings!(@important $($important)?),
                range: settings!(@range $($least $most)?),
                default_source: stringify!($default),
                get: |config| SettingValue::text(&config.$field),
                set: |config, text| {
                    config.$field = SettingValue::parse(text)?;
                    Ok(())
                },
            },
        )*)*];
    };
    (@change live) => { Change::Live };
    (@change restart) => { Change::Restart };
    (@change sealed) => { Change::Sealed };
    (@change unused) => { Change::Unused };
    (@important important) => { true };
    (@important) => { false };
    (@range $least:literal $most:literal) => { Some(($least, $most)) };
    (@range) => { None };
}
