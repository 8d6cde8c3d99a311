//! Planning the files of a partition.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::open::{Scan, open};
use super::row_groups::RowGroups;
use crate::column_cache::CachedSegment;

/// Opens the files of a partition: segments through the cache, others as the scan of Parquet does.
pub(super) struct CachedMorselizer {
    plain: Box<dyn Morselizer>,
    scan: Arc<Scan>,
}

impl CachedMorselizer {
    pub(super) fn new(plain: Box<dyn Morselizer>, scan: Scan) -> Self {
        Self {
            plain,
            scan: Arc::new(scan),
        }
    }
}

impl fmt::Debug for CachedMorselizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CachedMorselizer")
            .field(&self.plain)
            .finish()
    }
}

impl Morselizer for CachedMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let Some(segment) = file.extension::<CachedSegment>().cloned() else {
            return self.plain.plan_file(file);
        };
        Ok(Box::new(Planner::Unopened {
            scan: Arc::clone(&self.scan),
            file: Box::new(file),
            segment,
        }))
    }
}

/// Opens a segment.
enum Planner {
    Unopened {
        scan: Arc<Scan>,
        file: Box<PartitionedFile>,
        segment: CachedSegment,
    },
    /// `None` if nothing of it is left to read.
    Opened(Option<Box<RowGroups>>),
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unopened { .. } => "Unopened",
            Self::Opened(_) => "Opened",
        })
    }
}

impl MorselPlanner for Planner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        match *self {
            Self::Unopened {
                scan,
                file,
                segment,
            } => {
                let opening = async move {
                    let opened = open(scan, *file, segment).await?;
                    Ok(Box::new(Self::Opened(opened.map(Box::new))) as Box<dyn MorselPlanner>)
                };
                Ok(Some(MorselPlan::new().with_pending_planner(opening)))
            }
            Self::Opened(None) => Ok(None),
            Self::Opened(Some(row_groups)) => {
                let morsel: Box<dyn Morsel> = Box::new(RowGroupsMorsel(row_groups));
                Ok(Some(MorselPlan::new().with_morsels(vec![morsel])))
            }
        }
    }
}

/// The rows of a segment.
struct RowGroupsMorsel(Box<RowGroups>);

impl fmt::Debug for RowGroupsMorsel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowGroupsMorsel").finish_non_exhaustive()
    }
}

impl Morsel for RowGroupsMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let batches = stream::try_unfold(self.0, |mut row_groups| async move {
            let batch = row_groups.next().await?;
            Ok(batch.map(|batch| (batch, row_groups)))
        });
        batches.boxed()
    }
}
