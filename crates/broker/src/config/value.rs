//! How the text of a value becomes a value, and back.

use std::fmt;

/// Why a text is not a value of a setting: completes the sentence "`key` must be …".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

impl Malformed {
    pub(super) fn new(wanted: impl Into<String>) -> Self {
        Self(wanted.into())
    }
}

/// A type that a setting can have. The text has no blanks around it.
pub(super) trait SettingValue: Sized {
    fn parse(text: &str) -> Result<Self, Malformed>;

    /// `None` when there is no value, which is how Java leaves out what is null.
    fn text(&self) -> Option<String>;
}

/// Java's boolean, but anything other than `true` and `false` is refused instead of being false.
impl SettingValue for bool {
    fn parse(text: &str) -> Result<Self, Malformed> {
        match text {
            _ if text.eq_ignore_ascii_case("true") => Ok(true),
            _ if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(Malformed::new("true or false")),
        }
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

macro_rules! whole_number {
    ($($type:ty, $java:ty, $least:literal;)*) => { $(
        /// What the Java type holds, and without a negative half where that has no meaning.
        impl SettingValue for $type {
            fn parse(text: &str) -> Result<Self, Malformed> {
                let number = text.parse::<$java>().ok().filter(|number| *number >= $least);
                number
                    .and_then(|number| number.try_into().ok())
                    .ok_or_else(|| Malformed::new(format!("a whole number from {} to {}", $least, <$java>::MAX)))
            }

            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )* };
}

whole_number! {
    u32, i32, 0;
    u64, i64, 0;
    i32, i32, -2_147_483_648;
    i64, i64, -9_223_372_036_854_775_808_i64;
}

impl SettingValue for f64 {
    fn parse(text: &str) -> Result<Self, Malformed> {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| Malformed::new("a number"))
    }

    fn text(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
}

impl SettingValue for String {
    fn parse(text: &str) -> Result<Self, Malformed> {
        Ok(text.to_owned())
    }

    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl SettingValue for Option<String> {
    fn parse(text: &str) -> Result<Self, Malformed> {
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    }

    fn text(&self) -> Option<String> {
        self.clone()
    }
}

/// A value that is never shown or logged.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(super) fn new(value: &str) -> Self {
        Self(value.to_owned())
    }

    fn shown(&self) -> &str {
        if matches!(self.0.as_str(), "" | "{}") { &self.0 } else { "******" }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl SettingValue for Secret {
    fn parse(text: &str) -> Result<Self, Malformed> {
        Ok(Self::new(text))
    }

    fn text(&self) -> Option<String> {
        Some(self.shown().to_owned())
    }
}

/// The delays of `messageDelayLevel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayLevels {
    text: String,
    delays_ms: Vec<i64>,
}

impl DelayLevels {
    /// Milliseconds of each level, level 1 first.
    pub fn delays_ms(&self) -> &[i64] {
        &self.delays_ms
    }
}

impl Default for DelayLevels {
    fn default() -> Self {
        const SECOND: i64 = 1000;
        const MINUTE: i64 = 60 * SECOND;
        const HOUR: i64 = 60 * MINUTE;
        let minutes = (1..=10).chain([20, 30]).map(|minutes| minutes * MINUTE);
        let seconds = [1, 5, 10, 30].into_iter().map(|seconds| seconds * SECOND);
        Self {
            text: "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h".to_owned(),
            delays_ms: seconds.chain(minutes).chain([HOUR, 2 * HOUR]).collect(),
        }
    }
}

impl SettingValue for DelayLevels {
    fn parse(text: &str) -> Result<Self, Malformed> {
        let delay_ms = |level: &str| {
            let unit_ms = match level.chars().last()? {
                's' => 1000,
                'm' => 60_000,
                'h' => 3_600_000,
                'd' => 86_400_000,
                _ => return None,
            };
            level[..level.len() - 1].parse::<i64>().ok().filter(|number| *number >= 0)?.checked_mul(unit_ms)
        };
        let delays_ms: Option<Vec<i64>> = text.split_whitespace().map(delay_ms).collect();
        let delays_ms = delays_ms.filter(|delays| !delays.is_empty());
        let delays_ms =
            delays_ms.ok_or_else(|| Malformed::new("delays such as `1s 5m 2h 1d`, separated by blanks"))?;
        Ok(Self { text: text.to_owned(), delays_ms })
    }

    fn text(&self) -> Option<String> {
        Some(self.text.clone())
    }
}

/// The hours of `deleteWhen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoursOfDay {
    text: String,
    hours: Vec<u8>,
}

impl HoursOfDay {
    /// Each hour, 0 to 23.
    pub fn hours(&self) -> &[u8] {
        &self.hours
    }
}

impl Default for HoursOfDay {
    fn default() -> Self {
        Self { text: "04".to_owned(), hours: vec![4] }
    }
}

impl SettingValue for HoursOfDay {
    fn parse(text: &str) -> Result<Self, Malformed> {
        let hour = |text: &str| text.trim().parse().ok().filter(|hour: &u8| *hour < 24);
        let hours: Option<Vec<u8>> = text.split(';').filter(|hour| !hour.is_empty()).map(hour).collect();
        let hours = hours.filter(|hours| !hours.is_empty());
        let hours = hours.ok_or_else(|| Malformed::new("hours from 0 to 23, separated by `;`"))?;
        Ok(Self { text: text.to_owned(), hours })
    }

    fn text(&self) -> Option<String> {
        Some(self.text.clone())
    }
}

macro_rules! choices {
    ($($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $variant_doc:literal])+ $variant:ident = $text:literal,)+ })*) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $variant_doc])+ $variant,)+
        }

        impl $name {
            /// Its name in configuration files.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl SettingValue for $name {
            fn parse(text: &str) -> Result<Self, Malformed> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(Malformed::new(format!("one of {}", [$($text),+].join(", ")))),
                }
            }

            fn text(&self) -> Option<String> {
                Some(self.name().to_owned())
            }
        }
    )* };
}

choices! {
    /// `brokerRole`.
    BrokerRole {
        /// Does not wait for its slaves.
        AsyncMaster = "ASYNC_MASTER",
        /// Waits until enough slaves have a message.
        SyncMaster = "SYNC_MASTER",
        /// Follows a master.
        Slave = "SLAVE",
    }
    /// `flushDiskType`.
    FlushDiskType {
        /// A send is answered when the message is in the system's page cache.
        AsyncFlush = "ASYNC_FLUSH",
        /// A send is answered when the message is on the disk.
        SyncFlush = "SYNC_FLUSH",
    }
    /// `defaultMessageRequestMode`.
    MessageRequestMode {
        /// Each queue belongs to one consumer.
        Pull = "PULL",
        /// Consumers share queues.
        Pop = "POP",
    }
    /// `metricsExporterType`.
    MetricsExporterType {
        /// None.
        Disable = "DISABLE",
        /// An OpenTelemetry collector.
        OtlpGrpc = "OTLP_GRPC",
        /// Prometheus.
        Prom = "PROM",
        /// The log.
        Log = "LOG",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: SettingValue + std::fmt::Debug>(text: &str) -> String {
        T::parse(text).unwrap_err().0
    }

    #[test]
    fn booleans() {
        assert_eq!(bool::parse("TRUE"), Ok(true));
        assert_eq!(bool::parse("false"), Ok(false));
        for text in ["", "yes", "1", "tru e"] {
            assert_eq!(refused::<bool>(text), "true or false");
        }
    }

    #[test]
    fn numbers_have_the_width_of_their_java_type() {
        assert_eq!(u32::parse("2147483647"), Ok(2_147_483_647));
        assert_eq!(i32::parse("-1"), Ok(-1));
        assert_eq!(u64::parse("17179869184"), Ok(17_179_869_184));
        for text in ["2147483648", "-1", "", "1 000", "1_000", "0x10", "1.0", "abc"] {
            assert_eq!(refused::<u32>(text), "a whole number from 0 to 2147483647", "{text}");
        }
        assert_eq!(f64::parse("0.8").unwrap().text().as_deref(), Some("0.8"));
        assert_eq!(refused::<f64>("NaN"), "a number");
    }

    #[test]
    fn enumerations_take_their_exact_names() {
        assert_eq!(BrokerRole::parse("SYNC_MASTER"), Ok(BrokerRole::SyncMaster));
        assert_eq!(refused::<BrokerRole>("sync_master"), "one of ASYNC_MASTER, SYNC_MASTER, SLAVE");
    }

    #[test]
    fn delay_levels() {
        assert_eq!(
            DelayLevels::parse(DelayLevels::default().text().unwrap().as_str()),
            Ok(DelayLevels::default())
        );
        assert_eq!(DelayLevels::parse("1s 1d").unwrap().delays_ms(), [1000, 86_400_000]);
        for text in ["", "1s,2s", "1", "s", "-1s", "1ö", "9223372036854775807d"] {
            assert!(refused::<DelayLevels>(text).starts_with("delays such as"), "{text}");
        }
    }

    #[test]
    fn hours() {
        assert_eq!(HoursOfDay::parse("04;16").unwrap().hours(), [4, 16]);
        for text in ["", "24", "4,5", "x"] {
            assert!(refused::<HoursOfDay>(text).starts_with("hours from"), "{text}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = Secret::parse(r#"{"password":"p"}"#).unwrap();
        assert_eq!((format!("{secret:?}").as_str(), secret.text().as_deref()), ("******", Some("******")));
        assert_eq!(Secret::new("").text().as_deref(), Some(""));
    }
}
