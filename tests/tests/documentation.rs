//! What the documentation points at exists.

use std::path::{Path, PathBuf};

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut pages = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    for entry in std::fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    assert!(pages.len() > 5);
    pages
}

/// The targets of Markdown links in `text`, outside code blocks.
fn links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let mut rest = if in_code { "" } else { line };
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let end = rest.find(')').unwrap_or(rest.len());
            links.push(&rest[..end]);
        }
    }
    links
}

#[test]
fn relative_links_lead_to_files() {
    let mut checked = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let target = page.parent().unwrap().join(file);
            assert!(target.exists(), "{}: no {link}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 5, "only {checked} links found");
}

#[test]
fn the_gate_runs_the_test_command_of_the_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let commands = readme.lines().filter(|line| line.starts_with("cargo test"));
    assert_eq!(commands.collect::<Vec<_>>(), ["cargo test --workspace"]);
}

#[test]
fn the_page_on_explain_profile_shows_the_report_of_figure_5() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/explain-profile.md")).unwrap();
    let golden = root.join("report/tests/golden/figure_5.txt");
    let golden = std::fs::read_to_string(golden).unwrap();
    let blocks = page.split("```text\n").skip(1);
    let blocks: Vec<_> = blocks
        .filter_map(|rest| Some(rest.split_once("```")?.0))
        .collect();
    assert!(
        blocks.contains(&golden.as_str()),
        "docs/explain-profile.md does not show report/tests/golden/figure_5.txt:\n{golden}"
    );
}

/// Files and folders in backticks that begin with the folder of a crate.
fn files(text: &str) -> Vec<&str> {
    let is_path = |piece: &&str| {
        let in_crate = piece.split_once('/').is_some_and(|(folder, rest)| {
            rest.starts_with("src/") || rest.starts_with("tests/") || folder == "docs"
        });
        in_crate
            && piece
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "/_-.".contains(c))
    };
    text.split('`').filter(is_path).collect()
}

#[test]
fn files_that_pages_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut checked = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for file in files(&text) {
            assert!(root.join(file).exists(), "{}: {file}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}
