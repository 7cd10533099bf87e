//! One line that tells how far a run has got.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// How often a line is printed when the output is not a terminal.
const PLAIN_INTERVAL: Duration = Duration::from_secs(2);

enum Output {
    Quiet,
    Plain,
    Line(ProgressBar),
}

/// Shows messages and their rate on the standard error stream.
pub(super) struct Progress {
    output: Output,
    title: String,
    shown: u64,
    shown_at: Duration,
}

impl Progress {
    pub(super) fn new(title: &str, quiet: bool) -> Self {
        let output = if quiet {
            Output::Quiet
        } else if std::io::stderr().is_terminal() {
            let line = ProgressBar::new_spinner();
            line.set_style(
                ProgressStyle::with_template("{spinner} {msg}").expect("the template is a constant"),
            );
            Output::Line(line)
        } else {
            Output::Plain
        };
        Self { output, title: title.to_owned(), shown: 0, shown_at: Duration::ZERO }
    }

    /// Shows that `messages` have gone through within `elapsed`.
    pub(super) fn update(&mut self, messages: u64, elapsed: Duration) {
        let interval = elapsed.saturating_sub(self.shown_at);
        let is_due = match self.output {
            Output::Quiet => false,
            Output::Plain => interval >= PLAIN_INTERVAL,
            Output::Line(_) => !interval.is_zero(),
        };
        if !is_due {
            return;
        }
        let rate = ((messages - self.shown) as f64 / interval.as_secs_f64()) as u64;
        let text = format!(
            "{}  {:.0} s  {} messages  {} /s",
            self.title,
            elapsed.as_secs_f64(),
            HumanCount(messages),
            HumanCount(rate)
        );
        match &self.output {
            Output::Quiet => {}
            Output::Plain => eprintln!("{text}"),
            Output::Line(line) => {
                line.set_message(text);
                line.tick();
            }
        }
        (self.shown, self.shown_at) = (messages, elapsed);
    }

    /// Removes the line.
    pub(super) fn finish(self) {
        if let Output::Line(line) = self.output {
            line.finish_and_clear();
        }
    }
}
