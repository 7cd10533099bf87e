//! A bar that tells how far a command is: on the standard error stream, and only on a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that goes through some phases.
pub(super) struct Progress {
    bar: ProgressBar,
    phase: &'static str,
}

/// What a phase counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Bytes,
    Things,
}

impl Progress {
    pub(super) fn new() -> Self {
        // Where nobody looks, a bar only fills a log file.
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        Self { bar: ProgressBar::with_draw_target(None, target), phase: "" }
    }

    /// Shows that `done` of `of` are done in a phase.
    pub(super) fn show(&mut self, phase: &'static str, count: Count, done: u64, of: u64) {
        if self.phase != phase {
            self.phase = phase;
            let template = match count {
                Count::Bytes => "{msg} [{wide_bar}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left",
                Count::Things => "{msg} [{wide_bar}] {human_pos}/{human_len} {per_sec}, {eta} left",
            };
            // The templates are constants; were one wrong, the default would do.
            let style =
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            self.bar.set_style(style.progress_chars("=> "));
            self.bar.set_message(phase);
            self.bar.reset();
        }
        self.bar.set_length(of);
        self.bar.set_position(done.min(of));
    }

    /// Removes the bar.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
