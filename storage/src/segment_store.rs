//! Segments as an object store for DataFusion to read, with errors that name the file.

use std::fmt;
use std::hash::Hasher;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::object_store::path::Path as Location;
use datafusion::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use futures::stream::{self, BoxStream, StreamExt};
use twox_hash::XxHash64;

use crate::StorageError;
use crate::snapshot::{Root, SegmentMeta, SegmentSizes};

/// The segments of one database, for reading only.
///
/// Every error carries a [`StorageError`] that names the file as its source.
#[derive(Debug)]
pub struct SegmentStore {
    inner: Arc<dyn ObjectStore>,
    root: PathBuf,
    sizes: SegmentSizes,
}

impl SegmentStore {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, root: &Root) -> Self {
        Self {
            inner,
            root: root.path.clone(),
            sizes: Arc::clone(&root.sizes),
        }
    }

    fn explain(&self, location: &Location, error: Error) -> Error {
        let detail = match &error {
            Error::NotFound { .. } => "the file is missing".to_owned(),
            error => error.to_string(),
        };
        self.corrupt(location, detail)
    }

    fn corrupt(&self, location: &Location, detail: String) -> Error {
        let path = self.root.join(location.as_ref());
        Error::Generic {
            store: "segment",
            source: Box::new(StorageError::Corrupt { path, detail }),
        }
    }

    fn read_only<T>(&self) -> Result<T> {
        Err(Error::NotSupported {
            source: "segments are written by SegmentWriter only".into(),
        })
    }
}

impl fmt::Display for SegmentStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segments of {}", self.root.display())
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
        let result = self
            .inner
            .get_opts(location, options)
            .await
            .map_err(|error| self.explain(location, error))?;
        let expected = self.sizes.lock().get(location).copied();
        match expected {
            Some(expected) if expected != result.meta.size => {
                let found = result.meta.size;
                let detail = format!("it has {found} bytes instead of {expected}");
                Err(self.corrupt(location, detail))
            }
            _ => Ok(result),
        }
    }

    async fn get_ranges(&self, location: &Location, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let chunks = self
            .inner
            .get_ranges(location, ranges)
            .await
            .map_err(|error| self.explain(location, error))?;
        for (chunk, range) in chunks.iter().zip(ranges) {
            if chunk.len() as u64 != range.end - range.start {
                let detail = format!("the file ends before byte {}", range.end);
                return Err(self.corrupt(location, detail));
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
