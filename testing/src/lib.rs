//! Golden files for the tests of all crates.
//!
//! `SKEWER_REGENERATE=1 cargo test …` writes the files anew instead of comparing. Review the difference.

use std::path::Path;

/// The variable that has golden files written anew.
const REGENERATE: &str = "SKEWER_REGENERATE";

/// Whether golden files are to be written anew.
pub fn regenerates() -> bool {
    std::env::var_os(REGENERATE).is_some()
}

/// Compares `text` with the golden file at `path`, or writes the file.
///
/// # Panics
/// If the file differs; the message has the first line that does. If the file cannot be read or written.
pub fn golden(path: &Path, text: &str) {
    if regenerates() {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        }
        return std::fs::write(path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    let expected = std::fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("{}: {e}; {REGENERATE}=1 writes it", path.display()));
    if expected == text {
        return;
    }
    let mut lines = expected.lines().zip(text.lines()).enumerate();
    let differing = lines.find(|(_, (expected, found))| expected != found);
    let place = match differing {
        Some((line, (expected, found))) => {
            format!("line {} was\n  {expected}\nand is\n  {found}", line + 1)
        }
        None => format!(
            "it had {} lines and has {}",
            expected.lines().count(),
            text.lines().count()
        ),
    };
    panic!(
        "{} is stale ({REGENERATE}=1 writes it anew): {place}\n\nAll of it:\n{text}",
        path.display()
    );
}
