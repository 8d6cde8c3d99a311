use super::*;

/// The files of a location, relative to `folder`, with their partitions.
fn found(folder: &Path, location: &str) -> Vec<String> {
    let location = format!("{}/{location}", folder.display());
    let (_, files) = locate(&location, false).unwrap();
    let files = files.into_iter().map(|file| {
        let path = file.path.strip_prefix(folder).unwrap();
        let values = file.partitions.iter().map(|(key, value)| {
            let value = value.as_deref().unwrap_or("NULL");
            format!(" {key}:{value}")
        });
        format!("{}{}", path.display(), values.collect::<String>())
    });
    files.collect()
}

fn folder(files: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "n\n1\n").unwrap();
    }
    folder
}

#[test]
fn folders_are_walked_and_hidden_names_left_out() {
    let folder = folder(&["a.csv", "b/c.csv", "b/.d.csv", ".e/f.csv", "notes.txt"]);
    assert_eq!(found(folder.path(), ""), ["a.csv", "b/c.csv"]);
    assert_eq!(found(folder.path(), "b"), ["b/c.csv"]);
    assert_eq!(found(folder.path(), "b/.*.csv"), ["b/.d.csv"]);
}

#[test]
fn patterns_match_names_and_folders() {
    let folder = folder(&["a1.csv", "a2.csv", "b/a3.csv", "b/c/a4.csv", "b/a5.txt"]);
    let path = folder.path();
    assert_eq!(found(path, "*.csv"), ["a1.csv", "a2.csv"]);
    assert_eq!(found(path, "a[2-9].csv"), ["a2.csv"]);
    assert_eq!(found(path, "?1.csv"), ["a1.csv"]);
    assert_eq!(found(path, "*/*.csv"), ["b/a3.csv"]);
    assert_eq!(found(path, "**/a4.csv"), ["b/c/a4.csv"]);
    let all = ["a1.csv", "a2.csv", "b/a3.csv", "b/c/a4.csv"];
    assert_eq!(found(path, "**/*.csv"), all);
    assert_eq!(found(path, "**"), all);
    assert_eq!(found(path, "**/**/*.csv"), all);
    assert_eq!(found(path, "{a1,b/a3}.csv"), ["a1.csv", "b/a3.csv"]);
    assert_eq!(found(path, "b/*"), ["b/a3.csv"]);
    assert_eq!(found(path, "*/"), ["b/a3.csv", "b/c/a4.csv"]);
    assert!(found(path, "x*.csv").is_empty());
}

#[test]
fn a_name_that_exists_is_no_pattern() {
    let folder = folder(&["s*/a.csv", "st/b.csv", "{a,b}/c.csv", "a/d.csv", "x[1].csv"]);
    assert_eq!(found(folder.path(), "s*/*.csv"), ["s*/a.csv"]);
    assert_eq!(found(folder.path(), "{a,b}/*.csv"), ["{a,b}/c.csv"]);
    assert_eq!(found(folder.path(), "x[1].csv"), ["x[1].csv"]);
}

#[test]
fn partitions_are_of_folders_that_were_not_named() {
    let folder = folder(&[
        "p/y=2024/m=1/a.csv",
        "p/y=2025/b.csv",
        "p/y=__HIVE_DEFAULT_PARTITION__/c.csv",
        "p/y=a%20b/d.csv",
    ]);
    let path = folder.path();
    assert_eq!(
        found(path, "p/"),
        [
            "p/y=2024/m=1/a.csv y:2024 m:1",
            "p/y=2025/b.csv y:2025",
            "p/y=__HIVE_DEFAULT_PARTITION__/c.csv y:NULL",
            "p/y=a%20b/d.csv y:a b",
        ]
    );
    assert_eq!(found(path, "p/y=2024/m=1/a.csv"), ["p/y=2024/m=1/a.csv"]);
    assert_eq!(found(path, "p/y=2024/*/*.csv"), ["p/y=2024/m=1/a.csv m:1"]);
    assert_eq!(
        found(path, "p/*/m=1/*.csv"),
        ["p/y=2024/m=1/a.csv y:2024 m:1"]
    );
    assert_eq!(
        found(path, "p/y={2025,2026}/*.csv"),
        ["p/y=2025/b.csv y:2025"]
    );
}

#[test]
fn a_link_in_a_circle_ends() {
    let folder = folder(&["a/b.csv"]);
    std::os::unix::fs::symlink(folder.path(), folder.path().join("a/up")).unwrap();
    assert_eq!(found(folder.path(), ""), ["a/b.csv"]);
    assert_eq!(found(folder.path(), "**/b.csv"), ["a/b.csv"]);
}
