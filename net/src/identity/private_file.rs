//! Files that appear whole or not at all, and keys that nobody else can read.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::error::IdentityError;

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    write(path, bytes, 0o600)
}

/// Writes a file that is no secret.
pub(crate) fn write_public(path: &Path, bytes: &[u8]) -> Result<(), IdentityError> {
    write(path, bytes, 0o644)
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), IdentityError> {
    let wrong = |error: std::io::Error| IdentityError::file(path, error);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    // What a crash left may have other permissions.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .map_err(wrong)?;
    file.write_all(bytes).map_err(wrong)?;
    file.sync_all().map_err(wrong)?;
    std::fs::rename(&temporary, path).map_err(wrong)?;
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)
            .and_then(|directory| directory.sync_all())
            .map_err(wrong),
        _ => Ok(()),
    }
}

/// Refuses a secret that others may read.
pub(crate) fn check_private(path: &Path) -> Result<(), IdentityError> {
    let metadata = std::fs::metadata(path).map_err(|error| IdentityError::file(path, error))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}
