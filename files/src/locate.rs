//! Which files a path, a folder or a pattern means.

use std::collections::HashSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use datafusion::datasource::listing::ListingTableUrl;
use glob::{MatchOptions, Pattern};
use skewer_compat::suggest::suggest;

use crate::error::FilesError;
use crate::file_kind::FileKind;
use crate::passes::failed;
use crate::place_store::unescaped;

/// The value of a Hive partition that stands for NULL.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A file, and what the names of its folders say.
#[derive(Debug, Clone)]
pub struct Located {
    /// Absolute.
    pub path: PathBuf,
    /// Of the file, as it was found.
    pub metadata: Metadata,
    /// `key=value` of the folders that a folder or a pattern led through, outermost first. NULL is
    /// `None`.
    pub(crate) partitions: Vec<(String, Option<String>)>,
    /// Whether it is in a folder that was to be read, rather than a name that was to match.
    pub(crate) in_folder: bool,
}

impl Located {
    /// As errors name it.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// What a location is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    File,
    Folder,
    Pattern,
}

/// The files of a location, sorted by their paths.
///
/// A path that exists is that file or folder, whatever characters it has; so is each part of a
/// pattern. Else `*`, `?` and `[…]` match within a name, `**` any folders, `{a,b}` either. Names
/// that begin with a dot are in no folder, and only match patterns that begin with one. Files in a
/// folder are those of a known format, and unless `any` is wanted also those of a pattern whose
/// last part does not say one.
///
/// # Errors
/// What cannot be read; a location that is no file.
pub(crate) fn locate(location: &str, any: bool) -> Result<(Place, Vec<Located>), FilesError> {
    let given = local_path(location)?;
    let absolute = std::path::absolute(&given).map_err(|e| failed(&given, e))?;
    let absolute = without_parents(absolute);
    let mut found = Search::default();
    let place = match std::fs::metadata(&absolute) {
        Ok(metadata) if metadata.is_dir() => {
            found.folder(&absolute, &[], &mut Vec::new())?;
            Place::Folder
        }
        Ok(metadata) if metadata.is_file() => {
            found.files.push(Located {
                path: absolute,
                metadata,
                partitions: Vec::new(),
                in_folder: false,
            });
            Place::File
        }
        Ok(_) => {
            return Err(unreadable(
                location,
                "it is not a regular file; write what it gives to one first",
            ));
        }
        Err(error) if !is_missing(&error) => return Err(failed(&given, error)),
        Err(_) => {
            let text = absolute.to_string_lossy().into_owned();
            let names_format = FileKind::of_path(&text).is_some();
            let rest = text.trim_start_matches('/');
            let ends_with_slash = location.ends_with('/');
            found.only_known = !any && !names_format;
            found.folders = ends_with_slash;
            found.pattern(Path::new("/"), rest, &[], false)?;
            match is_pattern(&text) {
                true => Place::Pattern,
                false => Place::File,
            }
        }
    };
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    found.files.dedup_by(|a, b| a.path == b.path);
    Ok((place, found.files))
}

/// The same path without `..`, as far as the folders before it exist: object stores know no other names. Links are
/// followed as the operating system follows them.
fn without_parents(path: PathBuf) -> PathBuf {
    let parts: Vec<_> = path.components().collect();
    let last = parts.iter().rposition(|part| *part == Component::ParentDir);
    let Some(last) = last else { return path };
    let (before, after) = parts.split_at(last + 1);
    match std::fs::canonicalize(before.iter().collect::<PathBuf>()) {
        Ok(before) => before.join(after.iter().collect::<PathBuf>()),
        Err(_) => path,
    }
}

/// The folder before the first part of a path that has characters of patterns.
pub(crate) fn fixed_part(location: &str) -> &str {
    let at = location
        .find(['*', '?', '[', '{'])
        .unwrap_or(location.len());
    match location[..at].rsplit_once('/') {
        Some((folder, _)) => folder,
        None => ".",
    }
}

/// Whether a path has characters of patterns.
pub(crate) fn is_pattern(location: &str) -> bool {
    location.contains(['*', '?', '[', '{'])
}

/// The error for a location without files; names what is near.
pub(crate) fn nothing(location: &str, place: Place, what: &str) -> FilesError {
    let message = match place {
        Place::Folder => format!("there are no {what} files in this folder"),
        Place::Pattern => "no file matches this pattern".to_owned(),
        Place::File => {
            let near = near(location);
            match near.is_empty() {
                true => "there is no such file".to_owned(),
                false => format!("there is no such file; did you mean {}?", near.join(" or ")),
            }
        }
    };
    unreadable(location, &message)
}

/// Files beside a missing one with about its name, quoted.
fn near(location: &str) -> Vec<String> {
    let (folder, name) = match location.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((folder, name)) => (folder, name),
        None => (".", location),
    };
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| FileKind::of_path(name).is_some())
        .collect();
    let near = suggest(name, names.iter().map(String::as_str));
    let base = &location[..location.len() - name.len()];
    let path = |name: String| format!("'{}{}'", base, name).replace('\n', "\\n");
    near.into_iter().map(path).collect()
}

pub(crate) fn unreadable(path: &str, message: &str) -> FilesError {
    FilesError::File {
        path: path.to_owned(),
        line: None,
        message: message.to_owned(),
    }
}

/// Whether a path cannot be of anything that exists.
fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput
    )
}

/// A location without `file://`.
fn local_path(location: &str) -> Result<PathBuf, FilesError> {
    let Some((scheme, _)) = location.split_once("://") else {
        return Ok(PathBuf::from(location));
    };
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    if scheme.is_empty() || !scheme.chars().all(is_scheme) || Path::new(location).exists() {
        return Ok(PathBuf::from(location));
    }
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(FilesError::Unsupported(format!(
            "{location}: only files of this machine's file systems are read"
        )));
    }
    let url = ListingTableUrl::parse(location)?;
    url.get_url()
        .to_file_path()
        .map_err(|()| unreadable(location, "it is not the URL of a file"))
}

/// A folder by which a walk knows that it has been there.
type Identity = (u64, u64);

#[derive(Default)]
struct Search {
    files: Vec<Located>,
    /// Whether files of no known format are passed over.
    only_known: bool,
    /// Whether folders that match stand for the files in them.
    folders: bool,
    /// Folders that patterns have been continued in, and with what.
    seen: HashSet<(PathBuf, String)>,
}

type Partitions<'a> = &'a [(String, Option<String>)];

impl Search {
    /// All files of known formats in a folder and those below. Links are followed, but not around
    /// in a circle.
    fn folder(
        &mut self,
        folder: &Path,
        partitions: Partitions<'_>,
        above: &mut Vec<Identity>,
    ) -> Result<(), FilesError> {
        let metadata = std::fs::metadata(folder).map_err(|e| failed(folder, e))?;
        let identity = (metadata.dev(), metadata.ino());
        if above.contains(&identity) {
            return Ok(());
        }
        above.push(identity);
        for name in names(folder)? {
            if name.starts_with('.') {
                continue;
            }
            let path = folder.join(&name);
            let known = FileKind::of_path(&name).is_some();
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => {
                    let partitions = with_partition(partitions, &name);
                    self.folder(&path, &partitions, above)?;
                }
                Ok(metadata) if metadata.is_file() && known => self.files.push(Located {
                    path,
                    metadata,
                    partitions: partitions.to_vec(),
                    in_folder: true,
                }),
                Ok(_) => {}
                Err(error) if known => return Err(failed(&path, error)),
                Err(_) => {}
            }
        }
        above.pop();
        Ok(())
    }

    /// The files in `base` that `rest` matches. `found` tells whether a pattern led to `base`.
    fn pattern(
        &mut self,
        base: &Path,
        rest: &str,
        partitions: Partitions<'_>,
        found: bool,
    ) -> Result<(), FilesError> {
        let rest = rest.trim_start_matches('/');
        let (name, after) = match rest.split_once('/') {
            Some((name, after)) => (name, after.trim_start_matches('/')),
            None => (rest, ""),
        };
        if name.is_empty() {
            return self.reached(base, partitions);
        }
        let literal = base.join(name);
        match std::fs::metadata(&literal) {
            Ok(_) => {
                let partitions = match found {
                    true if literal.is_dir() => with_partition(partitions, name),
                    _ => partitions.to_vec(),
                };
                return self.pattern(&literal, after, &partitions, found);
            }
            Err(error) if !is_missing(&error) => return Err(failed(&literal, error)),
            Err(_) => {}
        }
        if let Some((before, alternatives, behind)) = braces(rest) {
            for alternative in alternatives {
                let rest = format!("{before}{alternative}{behind}");
                self.pattern(base, &rest, partitions, true)?;
            }
            return Ok(());
        }
        if name == "**" {
            // As the last part it means all files below.
            if after.is_empty() && self.folders {
                return self.reached(base, partitions);
            }
            let after = if after.is_empty() { "*" } else { after };
            return self.below(base, after, partitions, &mut Vec::new());
        }
        let Ok(pattern) = Pattern::new(name) else {
            return Ok(());
        };
        let options = MatchOptions {
            require_literal_leading_dot: true,
            ..MatchOptions::new()
        };
        if !is_pattern(name) || !base.is_dir() {
            return Ok(());
        }
        for name in names(base)? {
            if !pattern.matches_with(&name, options) {
                continue;
            }
            let path = base.join(&name);
            match std::fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => {
                    if !after.is_empty() || self.folders {
                        let partitions = with_partition(partitions, &name);
                        self.pattern(&path, after, &partitions, true)?;
                    }
                }
                Ok(_) if after.is_empty() && !self.folders => self.reached(&path, partitions)?,
                Ok(_) => {}
                Err(error) if after.is_empty() => return Err(failed(&path, error)),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// `**/rest`: `rest` in a folder and all below.
    fn below(
        &mut self,
        folder: &Path,
        rest: &str,
        partitions: Partitions<'_>,
        above: &mut Vec<Identity>,
    ) -> Result<(), FilesError> {
        let Ok(metadata) = std::fs::metadata(folder) else {
            return Ok(());
        };
        let identity = (metadata.dev(), metadata.ino());
        if !metadata.is_dir()
            || above.contains(&identity)
            || !self.seen.insert((folder.to_owned(), rest.to_owned()))
        {
            return Ok(());
        }
        above.push(identity);
        self.pattern(folder, rest, partitions, true)?;
        for name in names(folder)? {
            let path = folder.join(&name);
            if !name.starts_with('.') && path.is_dir() {
                let partitions = with_partition(partitions, &name);
                self.below(&path, rest, &partitions, above)?;
            }
        }
        above.pop();
        Ok(())
    }

    /// What a pattern came to at its end.
    fn reached(&mut self, path: &Path, partitions: Partitions<'_>) -> Result<(), FilesError> {
        let metadata = std::fs::metadata(path).map_err(|e| failed(path, e))?;
        if metadata.is_dir() {
            // A name that is no pattern is a folder by itself.
            return self.folder(path, partitions, &mut Vec::new());
        }
        let known = FileKind::of_path(&path.to_string_lossy()).is_some();
        if metadata.is_file() && (known || !self.only_known) {
            self.files.push(Located {
                path: path.to_owned(),
                metadata,
                partitions: partitions.to_vec(),
                in_folder: false,
            });
        }
        Ok(())
    }
}

/// The names in a folder, sorted. Names that are not UTF-8 cannot be matched and are left to paths.
fn names(folder: &Path) -> Result<Vec<String>, FilesError> {
    let entries = std::fs::read_dir(folder).map_err(|e| failed(folder, e))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|e| failed(folder, e))?.file_name();
        match name.into_string() {
            Ok(name) => names.push(name),
            Err(name) if FileKind::of_path(&name.to_string_lossy()).is_some() => {
                return Err(unreadable(
                    &folder.join(name).display().to_string(),
                    "its name is not UTF-8",
                ));
            }
            Err(_) => {}
        }
    }
    names.sort();
    Ok(names)
}

/// `partitions` and what the name of a folder adds to them.
fn with_partition(partitions: Partitions<'_>, name: &str) -> Vec<(String, Option<String>)> {
    let mut partitions = partitions.to_vec();
    if let Some((key, value)) = name.split_once('=')
        && !key.is_empty()
    {
        let text = |escaped: &str| String::from_utf8_lossy(&unescaped(escaped)).into_owned();
        let value = (value != HIVE_NULL).then(|| text(value));
        partitions.push((text(key), value));
    }
    partitions
}

/// `a{b,c}d` → (`a`, [`b`, `c`], `d`): the first braces with a comma in them.
fn braces(text: &str) -> Option<(&str, Vec<&str>, &str)> {
    let open = text.find('{')?;
    let mut depth = 0;
    let mut begin = open + 1;
    let mut alternatives = Vec::new();
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at < open) {
        match c {
            '{' => depth += 1,
            ',' if depth == 1 => {
                alternatives.push(&text[begin..at]);
                begin = at + 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    alternatives.push(&text[begin..at]);
                    return Some((&text[..open], alternatives, &text[at + 1..]));
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
