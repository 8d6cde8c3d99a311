//! The interactive shell.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use nu_ansi_term::{Color, Style};
use reedline::{
    DefaultHinter, EditCommand, Emacs, FileBackedHistory, IdeMenu, MenuBuilder, Prompt,
    PromptEditMode, PromptHistorySearch, PromptHistorySearchStatus, Reedline, ReedlineEvent,
    ReedlineMenu, Signal, ValidationResult, Validator, default_emacs_keybindings,
};
use reedline::{KeyCode, KeyModifiers};

use crate::complete::SqlCompleter;
use crate::error::ShellError;
use crate::highlight::SqlHighlighter;
use crate::script::{self, Script};
use crate::shell::{Flow, Shell};
use crate::terminal::Palette;

/// Entries kept in the history file.
const HISTORY: usize = 10_000;
/// The name that ties the key to the menu.
const COMPLETION_MENU: &str = "completion";

/// Between the prompt and what is typed.
const INDICATOR: &str = "> ";

/// Reads statements and runs them, until `.quit` or Ctrl-D.
pub async fn run(shell: &mut Shell, path: Option<&Path>) -> Result<(), ShellError> {
    let palette = shell.terminal.output_palette();
    shell.interactive = true;
    shell.timer = true;
    shell.refresh_names();
    greet(path, &palette);
    let mut editor = editor(shell, &palette);
    let prompt = SqlPrompt;
    loop {
        let read = editor.read_line(&prompt);
        let typed = match read.map_err(ShellError::Start) {
            Ok(Signal::Success(typed)) => typed,
            Ok(Signal::CtrlD) => return Ok(()),
            Ok(_) => continue,
            Err(error) => return Err(error),
        };
        if script::is_farewell(&typed) {
            return Ok(());
        }
        // Now rather than at the end, which may be a crash. Without history one can work on.
        let _ = editor.sync_history();
        shell.forget_interrupts().await;
        match shell.run_steps(Script::steps(&typed), None).await {
            Ok(Flow::Continue) => {}
            Ok(Flow::Quit) => return Ok(()),
            Err(error) => report(&error, &shell.terminal.error_palette()),
        }
    }
}

/// Writes an error to standard error.
pub fn report(error: &ShellError, palette: &Palette) {
    if error.is_told() {
        return;
    }
    eprintln!("{} {error}", palette.bad.paint("error:"));
}

/// Says on standard error what went wrong beside the statements.
pub fn warn(error: &ShellError, palette: &Palette) {
    eprintln!("{} {error}", palette.bad.paint("warning:"));
}

fn greet(path: Option<&Path>, palette: &Palette) {
    let place = match path {
        Some(path) => path.display().to_string(),
        None => "in memory: nothing is kept".to_owned(),
    };
    eprintln!(
        "{} {} · {place} · .help for help, .quit to leave",
        palette.heading.paint("skewer"),
        env!("CARGO_PKG_VERSION"),
    );
}

fn editor(shell: &Shell, palette: &Palette) -> Reedline {
    let menu = IdeMenu::default()
        .with_name(COMPLETION_MENU)
        .with_default_border()
        // What stands before the text while the menu is open: the same as without it.
        .with_marker(INDICATOR)
        .with_max_completion_height(12)
        .with_text_style(Style::new())
        .with_match_text_style(Style::new().bold())
        .with_description_text_style(Style::new().dimmed());
    let mut keys = default_emacs_keybindings();
    keys.add_binding(
        KeyModifiers::NONE,
        KeyCode::Tab,
        ReedlineEvent::UntilFound(vec![
            ReedlineEvent::Menu(COMPLETION_MENU.to_owned()),
            ReedlineEvent::MenuNext,
        ]),
    );
    keys.add_binding(
        KeyModifiers::SHIFT,
        KeyCode::BackTab,
        ReedlineEvent::MenuPrevious,
    );
    keys.add_binding(
        KeyModifiers::ALT,
        KeyCode::Enter,
        ReedlineEvent::Edit(vec![EditCommand::InsertNewline]),
    );
    let hint = if palette.enabled {
        Style::new().fg(Color::DarkGray)
    } else {
        Style::new()
    };
    let editor = Reedline::create()
        .with_completer(Box::new(SqlCompleter::new(shell.names())))
        .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
        .with_edit_mode(Box::new(Emacs::new(keys)))
        .with_highlighter(Box::new(SqlHighlighter::new(*palette)))
        .with_validator(Box::new(UntilSemicolon))
        .with_hinter(Box::new(DefaultHinter::default().with_style(hint)))
        .with_quick_completions(true)
        .with_partial_completions(true)
        .use_bracketed_paste(true)
        .with_ansi_colors(palette.enabled);
    match history() {
        Ok(history) => editor.with_history(Box::new(history)),
        Err(error) => {
            eprintln!(
                "{}",
                palette.dim.paint(format!("history is not kept: {error}"))
            );
            editor
        }
    }
}

/// `$XDG_STATE_HOME/skewer/history`, by default in `~/.local/state`.
fn history() -> Result<FileBackedHistory, Box<dyn std::error::Error>> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local/state")))
        .ok_or("neither XDG_STATE_HOME nor HOME is set")?;
    Ok(FileBackedHistory::with_file(
        HISTORY,
        state.join("skewer/history"),
    )?)
}

/// Enter runs what ends with a semicolon, and begins a new line otherwise.
struct UntilSemicolon;

impl Validator for UntilSemicolon {
    fn validate(&self, typed: &str) -> ValidationResult {
        if script::is_complete(typed) {
            ValidationResult::Complete
        } else {
            ValidationResult::Incomplete
        }
    }
}

struct SqlPrompt;

impl Prompt for SqlPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("skewer")
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed(INDICATOR)
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed("   ...> ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let failing = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "nothing like ",
        };
        Cow::Owned(format!(" ({failing}{}) ", search.term))
    }

    fn get_prompt_color(&self) -> Color {
        Color::Cyan
    }
}
