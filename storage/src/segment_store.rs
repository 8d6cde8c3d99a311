//! Segments as an object store for DataFusion to read, with errors that name the file.

use std::fmt;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::path::Path as Location;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    OBJECT_STORE_COALESCE_DEFAULT, ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result, coalesce_ranges,
};
use futures::stream::{self, BoxStream, StreamExt};
use twox_hash::XxHash64;

use crate::StorageError;
use crate::placement::{MASTER, SegmentName};
use crate::remote::RemoteSegments;
use crate::snapshot::{Root, SegmentMeta};

/// The segments of one database, for reading only. Those of other nodes come from there if this
/// is the master, and are refused if it is a worker.
///
/// Every error carries a [`StorageError`] that names the file as its source.
#[derive(Debug)]
pub struct SegmentStore {
    /// The node's own.
    inner: Arc<dyn ObjectStore>,
    root: Arc<Root>,
}

/// Where a segment is read.
enum Place {
    /// In the node's own directory, at this place.
    Here(Location),
    /// On another node.
    There(SegmentName, Arc<dyn RemoteSegments>),
}

impl SegmentStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, root: Arc<Root>) -> Self {
        Self { inner, root }
    }

    fn place(&self, location: &Location) -> Result<Place> {
        let node = self.root.node;
        let Some(name) = SegmentName::parse(location) else {
            return Ok(Place::Here(location.clone()));
        };
        if name.owner == node {
            return Ok(Place::Here(name.at_home()));
        }
        if node != MASTER {
            return Err(carried(StorageError::WrongNode {
                location: location.to_string(),
                owner: name.owner,
                node,
            }));
        }
        let remote = self.root.remote().ok_or_else(|| {
            carried(StorageError::WorkerLost {
                worker: format!("worker {}", name.owner),
                detail: format!("it has {location}, and the database is open without workers"),
            })
        })?;
        Ok(Place::There(name, remote))
    }

    /// Part of a segment of another node. How long it is, the catalog says.
    async fn fetch(
        &self,
        name: SegmentName,
        remote: &dyn RemoteSegments,
        options: GetOptions,
    ) -> Result<GetResult> {
        let location = name.location();
        let size = self.root.sizes.lock().get(&location).copied();
        let Some(size) = size else {
            return Err(self.corrupt(&location, "no snapshot has it".to_owned()));
        };
        let range = match &options.range {
            Some(range) => range.as_range(size).map_err(|error| Error::Generic {
                store: "segment",
                source: Box::new(error),
            })?,
            None => 0..size,
        };
        let bytes = match options.head {
            true => Bytes::new(),
            false => read_exactly(name, remote, range.clone()).await?,
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::once(async move { Ok(bytes) }).boxed()),
            meta: ObjectMeta {
                location,
                // Segments do not change.
                last_modified: Default::default(),
                size,
                e_tag: None,
                version: None,
            },
            range,
            attributes: Default::default(),
        })
    }

    fn explain(&self, location: &Location, error: Error) -> Error {
        let detail = match &error {
            Error::NotFound { .. } => "the file is missing".to_owned(),
            error => error.to_string(),
        };
        self.corrupt(location, detail)
    }

    fn corrupt(&self, location: &Location, detail: String) -> Error {
        let path = self.root.path.join(location.as_ref());
        carried(StorageError::Corrupt { path, detail })
    }

    fn read_only<T>(&self) -> Result<T> {
        Err(Error::NotSupported {
            source: "segments are written by SegmentWriter only".into(),
        })
    }
}

/// An error of an object store that carries `error`.
fn carried(error: StorageError) -> Error {
    Error::Generic {
        store: "segment",
        source: Box::new(error),
    }
}

async fn read_exactly(
    name: SegmentName,
    remote: &dyn RemoteSegments,
    range: Range<u64>,
) -> Result<Bytes> {
    let read = remote.read(name, Some(range.clone())).await;
    let bytes = read.map_err(carried)?;
    if bytes.len() as u64 != range.end - range.start {
        return Err(carried(StorageError::Corrupt {
            path: name.location().as_ref().into(),
            detail: format!("the file ends before byte {}", range.end),
        }));
    }
    Ok(bytes)
}

impl fmt::Display for SegmentStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segments of {}", self.root.path.display())
    }
}

#[async_trait]
impl ObjectStore for SegmentStore {
    async fn put_opts(&self, _: &Location, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.read_only()
    }

    async fn put_multipart_opts(
        &self,
        _: &Location,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.read_only()
    }

    async fn get_opts(&self, location: &Location, options: GetOptions) -> Result<GetResult> {
        let here = match self.place(location)? {
            Place::Here(here) => here,
            Place::There(name, remote) => return self.fetch(name, &*remote, options).await,
        };
        let mut result = self
            .inner
            .get_opts(&here, options)
            .await
            .map_err(|error| self.explain(&here, error))?;
        result.meta.location = location.clone();
        let expected = self.root.sizes.lock().get(location).copied();
        match expected {
            Some(expected) if expected != result.meta.size => {
                let found = result.meta.size;
                let detail = format!("it has {found} bytes instead of {expected}");
                Err(self.corrupt(&here, detail))
            }
            _ => Ok(result),
        }
    }

    async fn get_ranges(&self, location: &Location, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let here = match self.place(location)? {
            Place::Here(here) => here,
            Place::There(name, remote) => {
                let read = |range| read_exactly(name, &*remote, range);
                return coalesce_ranges(ranges, read, OBJECT_STORE_COALESCE_DEFAULT).await;
            }
        };
        let chunks = self
            .inner
            .get_ranges(&here, ranges)
            .await
            .map_err(|error| self.explain(&here, error))?;
        for (chunk, range) in chunks.iter().zip(ranges) {
            if chunk.len() as u64 != range.end - range.start {
                let detail = format!("the file ends before byte {}", range.end);
                return Err(self.corrupt(&here, detail));
            }
        }
        Ok(chunks)
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Location>>,
    ) -> BoxStream<'static, Result<Location>> {
        let refusal = self.read_only();
        stream::once(async move { refusal }).boxed()
    }

    fn list(&self, prefix: Option<&Location>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Location>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Location, _: &Location, _: CopyOptions) -> Result<()> {
        self.read_only()
    }
}

/// Whether the file of a segment is as it was written: present, of the right length and, if
/// `thoroughly`, with the right checksum (which reads all of it).
pub(crate) async fn verify(
    store: &dyn ObjectStore,
    segment: &SegmentMeta,
    thoroughly: bool,
) -> crate::Result<()> {
    let corrupt = |detail: String| StorageError::corrupt(segment.path(), detail);
    let head = store
        .head(&segment.location)
        .await
        .map_err(|error| unwrap(error, segment))?;
    if head.size != segment.bytes {
        return Err(corrupt(format!(
            "it has {} bytes instead of {}",
            head.size, segment.bytes
        )));
    }
    if !thoroughly {
        return Ok(());
    }
    let mut hasher = XxHash64::with_seed(0);
    let mut content = store
        .get(&segment.location)
        .await
        .map_err(|error| unwrap(error, segment))?
        .into_stream();
    while let Some(chunk) = content.next().await {
        hasher.write(&chunk.map_err(|error| unwrap(error, segment))?);
    }
    if hasher.finish() != segment.checksum {
        return Err(corrupt("its checksum is wrong".to_owned()));
    }
    Ok(())
}

/// The storage error inside an object store error.
fn unwrap(error: Error, segment: &SegmentMeta) -> StorageError {
    match error {
        Error::Generic { source, .. } if source.is::<StorageError>() => {
            match source.downcast::<StorageError>() {
                Ok(error) => *error,
                Err(error) => StorageError::corrupt(segment.path(), error),
            }
        }
        error => StorageError::corrupt(segment.path(), error),
    }
}
