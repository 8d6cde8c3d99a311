//! A section of a page in `docs/`: results with machine, date and revision.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use crate::error::BenchError;

/// Where pages are.
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");

/// The page that most results are on.
const PAGE: &str = "benchmarks.md";

/// Prints the results of the experiment `name`, and writes them to the page if wished.
pub fn publish(name: &str, results: &str, write: bool) -> Result<(), BenchError> {
    publish_in(PAGE, name, results, write)
}

/// The same for another page.
pub fn publish_in(page: &str, name: &str, results: &str, write: bool) -> Result<(), BenchError> {
    let text = format!("{}\n\n{}", circumstances(), results.trim_end());
    writeln!(std::io::stdout(), "{text}")?;
    if write {
        let path = Path::new(DOCS).join(page);
        let old = fs::read_to_string(&path).map_err(BenchError::file(&path))?;
        let new = replaced(&old, name, &text).ok_or_else(|| {
            BenchError::Unexpected(format!("{page} has no place for the results of {name}"))
        })?;
        fs::write(&path, new).map_err(BenchError::file(&path))?;
    }
    Ok(())
}

/// The page with the text between the markers of `name` replaced.
fn replaced(page: &str, name: &str, text: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- begin {name} -->\n"),
        format!("<!-- end {name} -->"),
    );
    let from = page.find(&begin)? + begin.len();
    let to = from + page[from..].find(&end)?;
    Some(format!("{}\n{text}\n\n{}", &page[..from], &page[to..]))
}

/// Machine, date and revision.
fn circumstances() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = first_value("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned());
    let memory = first_value("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map_or_else(|| "unknown".to_owned(), |kb| format!("{:.0} GB", kb / 1e6));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let dirty = if output("git", &["status", "--porcelain", "-uno"]).is_empty() {
        ""
    } else {
        " with changes"
    };
    let build = if cfg!(debug_assertions) {
        ", a debug build"
    } else {
        ""
    };
    format!(
        "{}, revision {}{dirty}{build}. {cores} cores of {cpu}, {memory} of memory, {} {}; load average at \
         the end {load}.",
        output("date", &["+%Y-%m-%d"]),
        output("git", &["rev-parse", "--short", "HEAD"]),
        std::env::consts::OS,
        output("uname", &["-r"]),
    )
}

fn first_value(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn output(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_section_is_replaced() {
        let page = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n";
        let new = replaced(page, "x", "new").unwrap();
        assert_eq!(new, "a\n<!-- begin x -->\n\nnew\n\n<!-- end x -->\nb\n");
        assert_eq!(replaced(&new, "x", "new").unwrap(), new);
        assert_eq!(replaced(page, "y", "new"), None);
    }
}
