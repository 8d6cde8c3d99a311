//! What standard output and standard error are connected to.

use std::io::{IsTerminal, stderr, stdin, stdout};

use nu_ansi_term::Style;

/// Decided once at start.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// Standard input is a terminal: there is a person to prompt.
    pub input: bool,
    /// Standard output is a terminal: results are laid out to its width.
    pub output: bool,
    /// Standard error is a terminal: progress may be drawn.
    pub error: bool,
    /// `NO_COLOR` is unset or empty and `TERM` is not `dumb`.
    colours_allowed: bool,
}

/// Columns assumed when the terminal does not say.
const DEFAULT_WIDTH: usize = 100;

impl Terminal {
    /// Looks at the process's standard streams and environment.
    pub fn detect() -> Terminal {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Terminal {
            input: stdin().is_terminal(),
            output: stdout().is_terminal(),
            error: stderr().is_terminal(),
            colours_allowed: !no_color && !dumb,
        }
    }

    /// Styles for standard output.
    pub fn output_palette(&self) -> Palette {
        Palette::new(self.output && self.colours_allowed)
    }

    /// Styles for standard error.
    pub fn error_palette(&self) -> Palette {
        Palette::new(self.error && self.colours_allowed)
    }

    /// Columns of the terminal that shows the output; it may change while the process runs.
    pub fn width(&self) -> usize {
        terminal_size::terminal_size().map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0))
    }
}

/// The few styles in use; every one of them plain when colour is off.
#[derive(Debug, Clone, Copy, Default)]
pub struct Palette {
    /// Whether escape sequences may be written.
    pub enabled: bool,
    /// Headings.
    pub heading: Style,
    /// What the eye should find first.
    pub strong: Style,
    /// Secondary text.
    pub dim: Style,
    /// Good news.
    pub good: Style,
    /// Trouble.
    pub bad: Style,
    /// SQL keywords.
    pub keyword: Style,
    /// SQL strings.
    pub string: Style,
    /// SQL numbers.
    pub number: Style,
}

impl Palette {
    /// Colours, or none.
    pub fn new(enabled: bool) -> Palette {
        use nu_ansi_term::Color::{Cyan, Green, Red, Yellow};
        if !enabled {
            return Palette::default();
        }
        Palette {
            enabled,
            heading: Cyan.bold(),
            strong: Style::new().bold(),
            dim: Style::new().dimmed(),
            good: Green.bold(),
            bad: Red.bold(),
            keyword: Cyan.normal(),
            string: Green.normal(),
            number: Yellow.normal(),
        }
    }
}
