//! The progress bar: on standard error, for what takes longer than half a second.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use skewer::Progress;

use crate::units;

/// Shorter statements show no bar: it would only flicker.
const PATIENCE: Duration = Duration::from_millis(500);
/// Redraws per second.
const FRAMES: u8 = 10;
/// Steps of the bar's scale.
const SCALE: u64 = 1_000;

/// Drawn while a statement runs; disappears when dropped.
pub struct ProgressLine {
    enabled: bool,
    colours: bool,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    /// Nothing is drawn yet, and never if not `enabled`.
    pub fn new(enabled: bool, colours: bool) -> ProgressLine {
        ProgressLine {
            enabled,
            colours,
            started: Instant::now(),
            bar: None,
        }
    }

    /// How often to call [`ProgressLine::update`].
    pub fn interval() -> Duration {
        Duration::from_secs(1) / u32::from(FRAMES)
    }

    /// Draws `progress`.
    pub fn update(&mut self, progress: Progress) {
        if !self.enabled || self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::term_like_with_hz(Box::new(StandardError), FRAMES);
            ProgressBar::with_draw_target(None, target)
        });
        let Progress {
            rows,
            fraction,
            queued,
        } = progress;
        let mut message = units::duration(self.started.elapsed());
        if rows > 0 {
            message = format!("{} · {message}", units::counted(rows, "row"));
        }
        if queued {
            message = format!("waiting for other queries to end · {message}");
        }
        match fraction {
            Some(fraction) => {
                bar.set_style(style(self.colours, true));
                bar.set_length(SCALE);
                bar.set_position((fraction.clamp(0.0, 1.0) * SCALE as f64) as u64);
            }
            None => bar.set_style(style(self.colours, false)),
        }
        bar.set_message(message);
        bar.tick();
    }

    /// Takes the bar off the screen, as before results are written.
    pub fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Standard error, a little narrower than it is: a terminal echoes Ctrl-C as `^C` behind the
/// bar, and where that does not fit on the line, clearing the line would leave the bar.
#[derive(Debug)]
struct StandardError;

/// Columns of `^C`, and one more, since some terminals wrap when the last column is written.
const ECHO: u16 = 3;

impl StandardError {
    fn write(text: &str) -> io::Result<()> {
        io::stderr().write_all(text.as_bytes())
    }

    fn move_by(n: usize, direction: char) -> io::Result<()> {
        if n == 0 {
            return Ok(());
        }
        Self::write(&format!("\x1b[{n}{direction}"))
    }
}

impl TermLike for StandardError {
    fn width(&self) -> u16 {
        let size = terminal_size::terminal_size_of(io::stderr());
        size.map_or(80, |(width, _)| width.0).saturating_sub(ECHO)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        Self::move_by(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        Self::move_by(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        Self::move_by(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        Self::move_by(n, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        Self::write(&format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        Self::write(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        Self::write("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn style(colours: bool, share_known: bool) -> ProgressStyle {
    let template = match (share_known, colours) {
        (true, true) => "{bar:40.cyan/dim} {percent:>3} % · {msg} · Ctrl-C cancels",
        (true, false) => "{bar:40} {percent:>3} % · {msg} · Ctrl-C cancels",
        (false, true) => "{spinner:.cyan} {msg} · Ctrl-C cancels",
        (false, false) => "{spinner} {msg} · Ctrl-C cancels",
    };
    let base = if share_known {
        ProgressStyle::default_bar()
    } else {
        ProgressStyle::default_spinner()
    };
    match base.clone().template(template) {
        Ok(style) => style.progress_chars("━╸─"),
        Err(_) => base,
    }
}
