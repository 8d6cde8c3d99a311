//! Which file was to blame when reading failed.
//!
//! Readers say that a value could not be decoded, seldom in which file and on which line. When a
//! statement has failed in this way, and only then, the files that it read are gone through one by
//! one until the mistake is found again.

use skewer_files::first_mistake;

use super::statement::StatementCatalog;
use crate::error::Error;

impl StatementCatalog {
    /// Adds to an error about unreadable data which file, and which line of it, is to blame.
    pub(crate) async fn diagnose(&self, error: Error) -> Error {
        match &error {
            Error::Corrupt { path, message } if path.is_empty() => {
                let found = self.damaged_segment().await;
                found.or(self.damaged_file(message).await).unwrap_or(error)
            }
            // A file that is not there may be a segment.
            Error::File {
                path, line: None, ..
            } if !path.is_empty() => self.damaged_segment().await.unwrap_or(error),
            Error::File { path, message, .. } if path.is_empty() => {
                self.damaged_file(message).await.unwrap_or(error)
            }
            // A value that was cast after it was read as text.
            Error::Execution(message) | Error::InvalidCast(message)
                if self.touched().files.iter().any(|f| f.csv.null.is_some()) =>
            {
                match self.damaged_file(message).await {
                    Some(found @ Error::File { line: Some(_), .. }) => found,
                    _ => error,
                }
            }
            _ => error,
        }
    }

    /// The first segment of the statement's tables that cannot be read from end to end.
    async fn damaged_segment(&self) -> Option<Error> {
        for table in self.touched().tables {
            if let Err(error) = self.storage().verify_table(&table).await {
                return Some(error.into());
            }
        }
        None
    }

    /// The first of the statement's files, and the line in it, that cannot be read.
    async fn damaged_file(&self, message: &str) -> Option<Error> {
        let files = self.touched().files;
        let mut only = None;
        for table in &files {
            let Ok(listed) = table.files() else {
                continue;
            };
            // Types that were found in the files fit them; others may not.
            let given = table.given(self.base()).await.ok().flatten();
            let is_only = files.len() == 1 && listed.len() == 1;
            for file in listed {
                if let Some(error) = first_mistake(table, given.as_ref(), &file.path) {
                    return Some(error.into());
                }
                only = only.or_else(|| is_only.then(|| file.name()));
            }
        }
        only.map(|path| Error::File {
            path,
            line: None,
            message: message.to_owned(),
        })
    }
}
