//! Files in place as an object store: any name that the file system has.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::common::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::path::Path as Location;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures::stream::{self, BoxStream, StreamExt};

/// So much of a range is read at once.
const CHUNK: u64 = 1 << 20;

/// How plans name the store.
const URL: &str = "skewer-files://local";

/// The local file system, for reading only.
///
/// `LocalFileSystem` makes a URL of a path and refuses or changes what URLs cannot have: newlines,
/// tabs, `#1` at the end. Here a location is the absolute path, in which only what
/// [`Location`] refuses is [escaped](location).
#[derive(Debug)]
pub(crate) struct PlaceStore;

/// How plans name the store.
pub(crate) fn store_url() -> std::result::Result<ObjectStoreUrl, DataFusionError> {
    ObjectStoreUrl::parse(URL)
}

/// Lets queries of `environment` read files.
///
/// # Errors
/// None: the URL of the store is a constant.
pub fn register(environment: &RuntimeEnv) -> std::result::Result<(), DataFusionError> {
    environment.register_object_store(store_url()?.as_ref(), Arc::new(PlaceStore));
    Ok(())
}

/// The location of an absolute path. `%`, control characters and bytes that are not UTF-8 are
/// written as `%XX`.
pub(crate) fn location(path: &Path) -> Result<Location> {
    let mut text = String::new();
    for component in path.components() {
        if let Component::Normal(name) = component {
            text.push('/');
            escape(name.as_bytes(), &mut text);
        }
    }
    Ok(Location::parse(text)?)
}

fn escape(name: &[u8], text: &mut String) {
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '%' => text.push_str("%25"),
                c if c.is_ascii_control() => text.push_str(&format!("%{:02X}", c as u32)),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// The path of a location.
pub(crate) fn path_of(location: &Location) -> PathBuf {
    let mut path = b"/".to_vec();
    path.extend_from_slice(&unescaped(location.as_ref()));
    PathBuf::from(OsString::from_vec(path))
}

/// `text` with the bytes that `%XX` stands for.
pub(crate) fn unescaped(text: &str) -> Cow<'_, [u8]> {
    if !text.contains('%') {
        return Cow::Borrowed(text.as_bytes());
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%');
        let code = code.filter(|code| code.iter().all(u8::is_ascii_hexdigit));
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        out.push(code.unwrap_or(*byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    Cow::Owned(out)
}

/// A file as the store describes it.
pub(crate) fn meta(path: &Path, metadata: &std::fs::Metadata) -> Result<ObjectMeta> {
    Ok(ObjectMeta {
        location: location(path)?,
        last_modified: metadata.modified().unwrap_or(UNIX_EPOCH).into(),
        size: metadata.len(),
        e_tag: None,
        version: None,
    })
}

fn failed(path: &Path, error: io::Error) -> Error {
    let text = path.display().to_string();
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound {
            path: text,
            source: Box::new(error),
        },
        kind => Error::Generic {
            store: "file",
            source: Box::new(io::Error::new(kind, format!("{text}: {error}"))),
        },
    }
}

fn read_only<T>() -> Result<T> {
    Err(Error::NotSupported {
        source: "files in place are written by COPY only".into(),
    })
}

async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(task).await {
        Ok(result) => result,
        Err(error) => Err(Error::JoinError { source: error }),
    }
}

fn read_at(file: &File, path: &Path, range: &Range<u64>) -> Result<Bytes> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start)
        .map_err(|error| failed(path, error))?;
    Ok(bytes.into())
}

impl fmt::Display for PlaceStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("files in place")
    }
}

#[async_trait]
impl ObjectStore for PlaceStore {
    async fn put_opts(&self, _: &Location, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(
        &self,
        _: &Location,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        read_only()
    }

    async fn get_opts(&self, location: &Location, options: GetOptions) -> Result<GetResult> {
        let path = path_of(location);
        blocking(move || {
            let file = File::open(&path).map_err(|error| failed(&path, error))?;
            let metadata = file.metadata().map_err(|error| failed(&path, error))?;
            let meta = meta(&path, &metadata)?;
            options.check_preconditions(&meta)?;
            let (range, payload) = match options.range {
                None => (0..meta.size, GetResultPayload::File(file, path)),
                Some(range) => {
                    let range = range.as_range(meta.size).map_err(|source| Error::Generic {
                        store: "file",
                        source: Box::new(source),
                    })?;
                    let chunks = chunks(file, path, range.clone());
                    (range, GetResultPayload::Stream(chunks))
                }
            };
            Ok(GetResult {
                payload,
                meta,
                range,
                attributes: Default::default(),
            })
        })
        .await
    }

    async fn get_ranges(&self, location: &Location, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = path_of(location);
        let ranges = ranges.to_vec();
        blocking(move || {
            let file = File::open(&path).map_err(|error| failed(&path, error))?;
            let read = ranges.iter().map(|range| read_at(&file, &path, range));
            read.collect()
        })
        .await
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Location>>,
    ) -> BoxStream<'static, Result<Location>> {
        stream::once(async { read_only() }).boxed()
    }

    fn list(&self, _: Option<&Location>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(async { read_only() }).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Location>) -> Result<ListResult> {
        read_only()
    }

    async fn copy_opts(&self, _: &Location, _: &Location, _: CopyOptions) -> Result<()> {
        read_only()
    }
}

/// A range of a file, piece by piece.
fn chunks(file: File, path: PathBuf, range: Range<u64>) -> BoxStream<'static, Result<Bytes>> {
    stream::try_unfold((file, path, range), |(mut file, path, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        blocking(move || {
            let mut bytes = Vec::new();
            let read = file
                .seek(SeekFrom::Start(range.start))
                .and_then(|_| {
                    let wanted = CHUNK.min(range.end - range.start);
                    (&mut file).take(wanted).read_to_end(&mut bytes)
                })
                .map_err(|error| failed(&path, error))?;
            let rest = match read {
                0 => range.end..range.end,
                read => range.start + read as u64..range.end,
            };
            Ok(Some((Bytes::from(bytes), (file, path, rest))))
        })
        .await
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_keeps_every_name() {
        let names: [&[u8]; 8] = [
            b"a b",
            b"100%25",
            b"new\nline\t",
            b"#1",
            b"back\\slash",
            b"x[1]*?{a,b}",
            b"\xff\xfe",
            "数据 🦆".as_bytes(),
        ];
        for name in names {
            let mut path = b"/tmp/".to_vec();
            path.extend_from_slice(name);
            path.extend_from_slice(b"/f.csv");
            let path = PathBuf::from(OsString::from_vec(path));
            assert_eq!(path_of(&location(&path).unwrap()), path);
        }
        let plain = location(Path::new("/tmp/数据/f.csv")).unwrap();
        assert_eq!(plain.as_ref(), "tmp/数据/f.csv");
    }
}
