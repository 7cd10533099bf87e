//! What comes out of a run: for people, or as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::HumanCount;
use serde::Serialize;

use super::driver::Measured;

const MIB: f64 = 1024.0 * 1024.0;

/// Latencies in microseconds.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
    mean: f64,
    samples: u64,
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Self {
        let at = |percent| nanos.value_at_percentile(percent) as f64 / 1000.0;
        Self {
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max: nanos.max() as f64 / 1000.0,
            mean: nanos.mean() / 1000.0,
            samples: nanos.len(),
        }
    }
}

/// What the server used.
#[derive(Debug, Serialize)]
pub(super) struct Server {
    /// CPU time per message, microseconds.
    cpu_us_per_message: f64,
    /// Cores that were busy on average.
    cpu_cores: f64,
    /// Memory without a file behind it, before the load.
    anonymous_bytes_before: u64,
    /// The same at its peak.
    anonymous_bytes_peak: u64,
    /// All memory at its peak, mapped files included.
    resident_bytes_peak: u64,
}

/// The result of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// What was done, in words.
    title: String,
    /// Length of the measurement.
    seconds: f64,
    /// Messages within it.
    messages: u64,
    messages_per_second: f64,
    /// Good answers within it.
    answers: u64,
    mebibytes_per_second: f64,
    /// From the time at which a request was due until its answer.
    latency_us: Latency,
    /// Answers other than SUCCESS, by their code.
    errors: BTreeMap<i32, u64>,
    /// Cores that the load generator kept busy; near the count of its threads it was the limit.
    generator_cpu_cores: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Server>,
    /// What must not be. Empty, or the run counts as failed.
    problems: Vec<String>,
}

impl Report {
    pub(super) fn new(title: String, measured: Measured) -> Self {
        let Measured { tally, elapsed, generator_cpu, server } = measured;
        let seconds = elapsed.as_secs_f64();
        let cores = |cpu: Duration| if seconds > 0.0 { cpu.as_secs_f64() / seconds } else { 0.0 };
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let mut problems = tally.problems;
        if tally.sent != tally.answered {
            problems.push(format!("{} requests were sent and {} answers came", tally.sent, tally.answered));
        }
        if tally.messages == 0 {
            problems.push("no message went through within the measurement".to_owned());
        }
        let server = server.map(|server| Server {
            cpu_us_per_message: server.cpu.as_secs_f64() * 1e6 / (tally.messages.max(1) as f64),
            cpu_cores: cores(server.cpu),
            anonymous_bytes_before: server.before.anonymous_bytes,
            anonymous_bytes_peak: server.peak.anonymous_bytes,
            resident_bytes_peak: server.peak.resident_bytes,
        });
        Self {
            title,
            seconds,
            messages: tally.messages,
            messages_per_second: per_second(tally.messages),
            answers: tally.answers,
            mebibytes_per_second: per_second(tally.bytes) / MIB,
            latency_us: Latency::of(&tally.latency),
            errors: tally.errors,
            generator_cpu_cores: cores(generator_cpu),
            server,
            problems,
        }
    }

    /// Prints the result and says whether the run counts.
    pub(super) fn publish(&self, as_json: bool) -> ExitCode {
        if as_json {
            match serde_json::to_string_pretty(self) {
                Ok(json) => println!("{json}"),
                Err(error) => eprintln!("the result can't be written as JSON: {error}"),
            }
        } else {
            print!("{self}");
        }
        if self.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { latency_us: latency, .. } = self;
        writeln!(f, "{}", self.title)?;
        writeln!(
            f,
            "  throughput  {} messages/s  {:.1} MiB/s  ({} messages, {} answers in {:.2} s)",
            HumanCount(self.messages_per_second as u64),
            self.mebibytes_per_second,
            HumanCount(self.messages),
            HumanCount(self.answers),
            self.seconds
        )?;
        writeln!(
            f,
            "  latency     p50 {}  p90 {}  p99 {}  p99.9 {}  max {}",
            Micros(latency.p50),
            Micros(latency.p90),
            Micros(latency.p99),
            Micros(latency.p999),
            Micros(latency.max)
        )?;
        writeln!(f, "  generator   {:.2} cores busy", self.generator_cpu_cores)?;
        if let Some(server) = &self.server {
            writeln!(
                f,
                "  server      {:.2} us CPU/message  {:.2} cores busy  anonymous memory {:.0} MiB, before {:.0} MiB  resident {:.0} MiB",
                server.cpu_us_per_message,
                server.cpu_cores,
                server.anonymous_bytes_peak as f64 / MIB,
                server.anonymous_bytes_before as f64 / MIB,
                server.resident_bytes_peak as f64 / MIB
            )?;
        }
        for (code, count) in &self.errors {
            writeln!(f, "  error       code {code}: {} answers", HumanCount(*count))?;
        }
        for problem in &self.problems {
            writeln!(f, "  PROBLEM     {problem}")?;
        }
        Ok(())
    }
}

/// Microseconds, told in a fitting unit.
struct Micros(f64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            micros if micros < 1_000.0 => write!(f, "{micros:.0} us"),
            micros if micros < 1_000_000.0 => write!(f, "{:.2} ms", micros / 1_000.0),
            micros => write!(f, "{:.2} s", micros / 1_000_000.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::driver::ServerUse;
    use crate::bench::process::Memory;
    use crate::bench::tally::{Tally, Window};

    fn measured() -> Measured {
        let mut tally = Tally::new(Window { from_ns: 0, until_ns: u64::MAX });
        for micros in 1..=1000 {
            tally.sent += 1;
            tally.answer(0, micros * 1000);
            tally.success(1, 1024, micros * 1000);
        }
        let memory = Memory { resident_bytes: 64 << 20, anonymous_bytes: 32 << 20 };
        let server = ServerUse { cpu: Duration::from_millis(2), before: memory, peak: memory };
        Measured {
            tally,
            elapsed: Duration::from_millis(500),
            generator_cpu: Duration::ZERO,
            server: Some(server),
        }
    }

    #[test]
    fn percentiles_rates_and_costs_are_told() {
        let report = Report::new("load".to_owned(), measured());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["messages"], 1000);
        assert_eq!(json["messages_per_second"], 2000.0);
        assert_eq!(json["server"]["cpu_us_per_message"], 2.0);
        assert!(
            json["errors"].as_object().unwrap().is_empty() && json["problems"].as_array().unwrap().is_empty()
        );
        for (name, micros) in
            [("p50", 500.0), ("p90", 900.0), ("p99", 990.0), ("p999", 999.0), ("max", 1000.0)]
        {
            let value = json["latency_us"][name].as_f64().unwrap();
            assert!((value - micros).abs() <= micros / 500.0, "{name}: {value}");
        }
        let text = report.to_string();
        assert!(
            text.contains("2,000 messages/s  1.0 MiB/s") || text.contains("2,000 messages/s  2.0 MiB/s"),
            "{text}"
        );
        assert!(text.contains("p50 500 us"), "{text}");
    }

    #[test]
    fn missing_answers_are_a_problem() {
        let mut measured = measured();
        measured.tally.sent += 1;
        measured.tally.error(2, 5);
        let report = Report::new("load".to_owned(), measured);
        assert!(report.to_string().contains("PROBLEM     1001 requests were sent and 1000 answers came"));
        assert!(report.to_string().contains("code 2: 1 answers"));
        assert_eq!(report.publish(true), ExitCode::FAILURE);
    }
}
