//! The immutable state a reader sees.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::object_store::path::Path as Location;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::lock::DirectoryLock;
use crate::placement::{Partitioning, SegmentName, Shard};
use crate::quarantine::QuarantineMeta;
use crate::remote::RemoteSegments;
use crate::streams::{ContinuousQueryMeta, StreamMeta};

/// Name of the hidden column with row ids, physically the last of every segment.
pub const ROW_ID: &str = "_row_id";

/// Within the directory of a database, or of a node: the directory of its segments.
pub(crate) const SEGMENTS: &str = "segments";

/// Identity of a table; never reused, and kept when the table is renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableId(pub u64);

impl std::fmt::Display for TableId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a database's files are, and the lock on them. Whatever needs the files holds this, so the
/// lock is released only when the last snapshot is gone.
#[derive(Debug)]
pub(crate) struct Root {
    /// Directory of the database; empty for one in memory.
    pub(crate) path: PathBuf,
    /// Whose directory it is: files in it are segments of this owner.
    pub(crate) node: u32,
    pub(crate) disk: Arc<dyn Disk>,
    /// The segments of other owners.
    pub(crate) remote: RwLock<Option<Arc<dyn RemoteSegments>>>,
    /// Tables whose directory is known to be durable.
    pub(crate) durable_dirs: Mutex<HashSet<TableId>>,
    pub(crate) sizes: SegmentSizes,
    pub(crate) _lock: Option<DirectoryLock>,
}

/// Lengths of the files of all live segments, for finding truncated ones when they are opened.
pub(crate) type SegmentSizes = Arc<Mutex<HashMap<Location, u64>>>;

impl Root {
    pub(crate) fn new(
        path: PathBuf,
        node: u32,
        disk: Arc<dyn Disk>,
        lock: Option<DirectoryLock>,
    ) -> Arc<Self> {
        Arc::new(Self {
            path,
            node,
            disk,
            remote: RwLock::default(),
            durable_dirs: Mutex::default(),
            sizes: SegmentSizes::default(),
            _lock: lock,
        })
    }

    pub(crate) fn remote(&self) -> Option<Arc<dyn RemoteSegments>> {
        self.remote.read().clone()
    }

    pub(crate) fn segments_dir(&self) -> PathBuf {
        self.path.join(SEGMENTS)
    }

    pub(crate) fn table_dir(&self, table: TableId) -> PathBuf {
        self.segments_dir().join(table.to_string())
    }

    pub(crate) fn segment_path(&self, table: TableId, segment: u64) -> PathBuf {
        self.table_dir(table).join(format!("{segment}.parquet"))
    }
}

/// A file that is removed when it is no longer needed: its last holder is gone, and no
/// transaction published it (or one unpublished it). That of another node is its owner's to
/// remove, which is told.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    root: Arc<Root>,
    name: SegmentName,
    path: PathBuf,
    published: AtomicBool,
}

impl SegmentFile {
    pub(crate) fn new(root: &Arc<Root>, name: SegmentName, published: bool) -> Self {
        let path = match name.owner == root.node {
            true => root.segment_path(name.table, name.id),
            false => PathBuf::from(name.location().as_ref()),
        };
        Self {
            root: Arc::clone(root),
            name,
            path,
            published: AtomicBool::new(published),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn set_published(&self, published: bool) {
        self.published.store(published, Ordering::Release);
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        if self.published.load(Ordering::Acquire) {
            return;
        }
        let SegmentName { owner, table, id } = self.name;
        if owner != self.root.node {
            if let Some(remote) = self.root.remote() {
                remote.dropped(owner, table, &[id]);
            }
            return;
        }
        // Not being able to remove it loses space until the next open, nothing else.
        if let Err(error) = self.root.disk.remove(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove segment");
        }
    }
}

/// One immutable Parquet file of a table.
///
/// Holding one keeps its file readable.
#[derive(Debug)]
pub struct SegmentMeta {
    /// Unique in the database.
    pub id: u64,
    /// The node that has the file.
    pub owner: u32,
    /// What the hashes of all of its rows have in common, if its table is divided by hash.
    pub shard: Option<Shard>,
    /// Where to find it in [`crate::Storage::object_store`].
    pub location: Location,
    /// Number of rows.
    pub rows: u64,
    /// Length of the file.
    pub bytes: u64,
    /// Smallest row id in it.
    pub min_row_id: i64,
    /// Largest row id in it. Other segments may have ids in between.
    pub max_row_id: i64,
    /// XXH64 (seed 0) of the file.
    pub checksum: u64,
    /// What readers have made of its footer.
    pub kept: Kept,
    pub(crate) file: SegmentFile,
}

/// What readers of a segment keep as long as the segment, one value of a type: its file never changes.
#[derive(Default)]
pub struct Kept(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Kept {
    /// The `T` that is kept.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let kept = self.0.lock();
        kept.iter()
            .find_map(|kept| Arc::clone(kept).downcast().ok())
    }

    /// The `T` that is kept; what `make` makes if none is.
    pub fn get_or_put<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut kept = self.0.lock();
        let found = kept
            .iter()
            .find_map(|kept| Arc::clone(kept).downcast().ok());
        found.unwrap_or_else(|| {
            let made = Arc::new(make());
            kept.push(Arc::clone(&made) as _);
            made
        })
    }

    /// Keeps `value` in place of another `T`.
    pub fn put<T: Any + Send + Sync>(&self, value: Arc<T>) {
        let mut kept = self.0.lock();
        kept.retain(|kept| !kept.is::<T>());
        kept.push(value);
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

impl Drop for SegmentMeta {
    fn drop(&mut self) {
        self.file.root.sizes.lock().remove(&self.location);
    }
}

/// What the catalog stores about a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentNumbers {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) min_row_id: i64,
    pub(crate) max_row_id: i64,
    pub(crate) checksum: u64,
}

impl SegmentMeta {
    pub(crate) fn new(n: SegmentNumbers, shard: Option<Shard>, file: SegmentFile) -> Self {
        let location = file.name.location();
        let sizes = &file.root.sizes;
        sizes.lock().insert(location.clone(), n.bytes);
        Self {
            id: file.name.id,
            owner: file.name.owner,
            shard,
            location,
            rows: n.rows,
            bytes: n.bytes,
            min_row_id: n.min_row_id,
            max_row_id: n.max_row_id,
            checksum: n.checksum,
            kept: Kept::default(),
            file,
        }
    }

    /// Path of the file, for messages. (In memory and on other nodes, its name in the object
    /// store.)
    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

/// A table as of one snapshot.
#[derive(Debug, Clone)]
pub struct TableMeta {
    /// Identity, kept when the table is renamed.
    pub id: TableId,
    /// Schema the table is in.
    pub schema_name: String,
    /// Name within the schema.
    pub name: String,
    /// The user's columns. Older segments lack columns added later: those read as NULL.
    pub schema: SchemaRef,
    /// Segments in the order in which they were committed.
    pub segments: Vec<Arc<SegmentMeta>>,
    /// How new rows are divided among owners.
    pub partitioning: Partitioning,
    /// Its quarantines, by name.
    pub quarantines: BTreeMap<String, Arc<QuarantineMeta>>,
    pub(crate) physical: SchemaRef,
    /// The next row id to hand out; shared by all snapshots and writers of the table.
    pub(crate) next_row_id: Arc<AtomicI64>,
}

impl TableMeta {
    pub(crate) fn new(
        id: TableId,
        schema_name: &str,
        name: &str,
        schema: SchemaRef,
        next_row_id: i64,
    ) -> Self {
        Self {
            id,
            schema_name: schema_name.to_owned(),
            name: name.to_owned(),
            physical: with_row_id(&schema),
            schema,
            segments: Vec::new(),
            partitioning: Partitioning::RoundRobin,
            quarantines: BTreeMap::new(),
            next_row_id: Arc::new(AtomicI64::new(next_row_id)),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.segments.iter().map(|segment| segment.rows).sum()
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The user's columns and `_row_id` last: the schema of segments written now.
    pub fn physical_schema(&self) -> SchemaRef {
        Arc::clone(&self.physical)
    }

    /// `schema.table`
    pub fn qualified_name(&self) -> String {
        format!("{}.{}", self.schema_name, self.name)
    }

    /// The numbers of the nodes that have segments of it, ascending.
    pub fn owners(&self) -> BTreeSet<u32> {
        self.segments.iter().map(|segment| segment.owner).collect()
    }

    /// Who has which shard, as far as segments say: `None` for a shard without rows. `None` if no
    /// segment is of a shard, or if they disagree about the number of shards or an owner.
    /// Segments of no shard do not count.
    pub fn owners_of_shards(&self) -> Option<Vec<Option<u32>>> {
        let mut owners: Vec<Option<u32>> = Vec::new();
        for segment in &self.segments {
            let Some(shard) = segment.shard else { continue };
            if owners.is_empty() {
                owners.resize(shard.of as usize, None);
            }
            let known = owners.get_mut(shard.index as usize)?;
            if *known.get_or_insert(segment.owner) != segment.owner {
                return None;
            }
            if owners.len() != shard.of as usize {
                return None;
            }
        }
        (!owners.is_empty()).then_some(owners)
    }

    /// Gives out row ids: the first of `rows` consecutive ones that no row has had. Committed
    /// with whatever is committed next to the table.
    pub fn reserve_row_ids(&self, rows: u64) -> i64 {
        self.next_row_id
            .fetch_add(rows.cast_signed(), Ordering::AcqRel)
    }

    pub(crate) fn set_schema(&mut self, schema: SchemaRef) {
        self.physical = with_row_id(&schema);
        self.schema = schema;
    }
}

pub(crate) fn with_row_id(schema: &Schema) -> SchemaRef {
    let mut fields = schema.fields().to_vec();
    fields.push(Arc::new(Field::new(ROW_ID, DataType::Int64, false)));
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// A view: a name for a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewMeta {
    /// Schema the view is in.
    pub schema_name: String,
    /// Name within the schema.
    pub name: String,
    /// The query, as the creator of the view wrote it.
    pub sql: String,
}

/// All of the database at one commit. Cheap to keep; what it refers to stays readable.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub(crate) version: u64,
    pub(crate) schemas: BTreeMap<String, Arc<SchemaContents>>,
    /// Schema and name of each table.
    pub(crate) names: BTreeMap<TableId, (String, String)>,
    /// What makes tables streams.
    pub(crate) streams: BTreeMap<TableId, Arc<StreamMeta>>,
    /// Continuous queries by their ids.
    pub(crate) queries: BTreeMap<u64, Arc<ContinuousQueryMeta>>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SchemaContents {
    pub(crate) tables: BTreeMap<String, Arc<TableMeta>>,
    pub(crate) views: BTreeMap<String, Arc<ViewMeta>>,
}

impl Snapshot {
    /// Number of commits before it, since the database was created.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Names of the schemas, sorted.
    pub fn schemas(&self) -> Vec<String> {
        self.schemas.keys().cloned().collect()
    }

    /// Whether there is a schema of this name.
    pub fn has_schema(&self, schema: &str) -> bool {
        self.schemas.contains_key(schema)
    }

    /// Tables of a schema, sorted by name; none if there is no such schema.
    pub fn tables(&self, schema: &str) -> Vec<Arc<TableMeta>> {
        self.schemas
            .get(schema)
            .map(|contents| contents.tables.values().cloned().collect())
            .unwrap_or_default()
    }

    /// A table by name.
    pub fn table(&self, schema: &str, name: &str) -> Option<Arc<TableMeta>> {
        self.schemas.get(schema)?.tables.get(name).cloned()
    }

    /// A table by identity.
    pub fn table_by_id(&self, id: TableId) -> Option<Arc<TableMeta>> {
        let (schema, name) = self.names.get(&id)?;
        self.table(schema, name)
    }

    /// Views of a schema, sorted by name; none if there is no such schema.
    pub fn views(&self, schema: &str) -> Vec<Arc<ViewMeta>> {
        self.schemas
            .get(schema)
            .map(|contents| contents.views.values().cloned().collect())
            .unwrap_or_default()
    }

    /// A view by name.
    pub fn view(&self, schema: &str, name: &str) -> Option<Arc<ViewMeta>> {
        self.schemas.get(schema)?.views.get(name).cloned()
    }

    /// Segments of its tables that `now` does not have.
    pub fn segments_not_in(&self, now: &Snapshot) -> Vec<Arc<SegmentMeta>> {
        let mut gone = Vec::new();
        for table in self.all_tables() {
            let present = now.table_by_id(table.id);
            let present: HashSet<(u32, u64)> = match &present {
                Some(present) if Arc::ptr_eq(present, table) => continue,
                Some(present) => present.segments.iter().map(|s| (s.owner, s.id)).collect(),
                None => HashSet::new(),
            };
            let segments = table.segments.iter();
            let missing =
                segments.filter(|segment| !present.contains(&(segment.owner, segment.id)));
            gone.extend(missing.cloned());
        }
        gone
    }

    /// Bytes of all segments of its tables.
    pub fn bytes(&self) -> u64 {
        self.all_tables().map(|table| table.bytes()).sum()
    }

    pub(crate) fn all_tables(&self) -> impl Iterator<Item = &Arc<TableMeta>> {
        self.schemas
            .values()
            .flat_map(|contents| contents.tables.values())
    }

    pub(crate) fn insert_table(&mut self, table: Arc<TableMeta>) {
        let key = (table.schema_name.clone(), table.name.clone());
        self.names.insert(table.id, key);
        let contents = self.schemas.entry(table.schema_name.clone()).or_default();
        Arc::make_mut(contents)
            .tables
            .insert(table.name.clone(), table);
    }

    pub(crate) fn remove_table(&mut self, id: TableId) -> Option<Arc<TableMeta>> {
        let (schema, name) = self.names.remove(&id)?;
        let contents = self.schemas.get_mut(&schema)?;
        Arc::make_mut(contents).tables.remove(&name)
    }
}
