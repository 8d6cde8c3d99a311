use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array, ListArray, StringViewArray};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use skewer_compat::operators::memory_pool::{Evictable, MemoryBudget, RaisedBy};

use super::decoded::{Decoded, bytes};
use super::{CHUNK_ROWS, CachedSegment, ColumnCache, Filling, Key};

/// Rows of the columns here, of two chunks.
const ROWS: usize = CHUNK_ROWS + 100;

/// About what one of these columns takes.
const COLUMN: usize = ROWS * 8;

fn cache(limit: Option<usize>, size: Option<usize>) -> (Arc<MemoryBudget>, Arc<ColumnCache>) {
    let memory = Arc::new(MemoryBudget::new(limit, RaisedBy::Setting));
    let cache = ColumnCache::new(&memory, size);
    (memory, cache)
}

fn chunks() -> Vec<ArrayRef> {
    let chunk = |rows| Arc::new(Int64Array::from(vec![7; rows])) as ArrayRef;
    vec![chunk(CHUNK_ROWS), chunk(ROWS - CHUNK_ROWS)]
}

fn key(segment: u64, column: usize) -> Key {
    Key {
        segment,
        row_group: 0,
        column,
    }
}

fn begin(cache: &Arc<ColumnCache>, segment: &CachedSegment, column: usize) -> Option<Filling> {
    let name = format!("c{column}");
    cache.begin(key(segment.id(), column), segment, &name, COLUMN)
}

/// Reads a column: whether it was found. If not, it is decoded, and kept if there is room.
fn read(cache: &Arc<ColumnCache>, segment: &CachedSegment, column: usize) -> bool {
    if is_there(cache, segment, column) {
        return true;
    }
    if let Some(mut filling) = begin(cache, segment, column) {
        assert!(chunks().iter().all(|chunk| filling.add(chunk)));
        filling.finish(ROWS);
    }
    false
}

fn is_there(cache: &ColumnCache, segment: &CachedSegment, column: usize) -> bool {
    cache
        .get(key(segment.id(), column), &DataType::Int64)
        .is_some()
}

/// Operators that hold so many bytes.
fn operators(memory: &Arc<MemoryBudget>, bytes: usize) -> MemoryReservation {
    let pool: Arc<dyn MemoryPool> = Arc::clone(memory) as _;
    let held = MemoryConsumer::new("HashJoinInput").register(&pool);
    held.try_grow(bytes).unwrap();
    held
}

#[test]
fn the_first_read_fills_and_the_second_finds() {
    let (memory, cache) = cache(None, Some(1 << 20));
    let segment = cache.segment(3, 1, "main.t");
    assert!(!read(&cache, &segment, 0));
    assert!(read(&cache, &segment, 0));
    let found = cache.get(key(3, 0), &DataType::Int64).unwrap();
    assert_eq!(found.chunk_at(0).unwrap().len(), CHUNK_ROWS);
    assert_eq!(found.chunk_at(CHUNK_ROWS).unwrap().len(), 100);
    // What was decoded as another type is not what somebody asks for.
    assert!(cache.get(key(3, 0), &DataType::Int32).is_none());
    let [column] = &cache.list()[..] else {
        panic!("one column")
    };
    assert_eq!((&*column.table, &*column.column), ("main.t", "c0"));
    assert_eq!((column.segment, column.row_groups, column.hits), (3, 1, 3));
    assert_eq!(column.bytes as usize, memory.cached());
    assert!((COLUMN..COLUMN + 1024).contains(&memory.cached()));
}

#[test]
fn what_nobody_finishes_leaves_nothing_and_holds_up_nobody() {
    let (memory, cache) = cache(None, Some(1 << 20));
    let segment = cache.segment(3, 1, "main.t");
    let mut one = begin(&cache, &segment, 0).unwrap();
    // Another reader reads the file meanwhile.
    assert!(begin(&cache, &segment, 0).is_none());
    assert!(!is_there(&cache, &segment, 0));
    one.add(&chunks()[0]);
    assert_eq!(memory.cached(), COLUMN);
    // It failed, or was cancelled.
    drop(one);
    assert_eq!(memory.cached(), 0);
    // It was not all of the rows.
    let mut short = begin(&cache, &segment, 0).unwrap();
    short.add(&chunks()[0]);
    short.finish(ROWS);
    assert_eq!(memory.cached(), 0);
    assert!(!read(&cache, &segment, 0));
    assert!(read(&cache, &segment, 0));
}

#[test]
fn a_segment_takes_its_entries_with_it() {
    let (memory, cache) = cache(None, Some(1 << 20));
    let (one, other) = (cache.segment(1, 1, "main.t"), cache.segment(2, 1, "main.t"));
    for segment in [&one, &other] {
        read(&cache, segment, 0);
        read(&cache, segment, 1);
    }
    let clone = one.clone();
    drop(one);
    assert_eq!(cache.list().len(), 4);
    let filling = begin(&cache, &clone, 2).unwrap();
    drop(clone);
    // Whoever fills an entry reads the segment.
    assert_eq!(cache.list().len(), 4);
    drop(filling);
    assert_eq!(cache.list().len(), 2);
    drop(other);
    assert_eq!((cache.list().len(), memory.cached()), (0, 0));
}

#[test]
fn a_scan_of_more_than_fits_leaves_what_is_there() {
    let (_, cache) = cache(None, Some(6 * COLUMN));
    let segment = cache.segment(1, 1, "main.t");
    for _ in 0..4 {
        let hits = (0..12).filter(|column| read(&cache, &segment, *column));
        let _ = hits.count();
    }
    let there: Vec<_> = (0..12)
        .filter(|column| is_there(&cache, &segment, *column))
        .collect();
    assert_eq!(there, [0, 1, 2, 3, 4]);
}

#[test]
fn the_second_read_evicts_what_nobody_has_used_since_the_first() {
    let (memory, cache) = cache(None, Some(6 * COLUMN));
    let segment = cache.segment(1, 1, "main.t");
    for column in 0..5 {
        read(&cache, &segment, column);
    }
    assert!(!read(&cache, &segment, 9));
    assert!(!is_there(&cache, &segment, 9));
    for column in [0, 1, 3, 4] {
        assert!(read(&cache, &segment, column));
    }
    assert!(!read(&cache, &segment, 9));
    assert!(is_there(&cache, &segment, 9));
    assert!(!is_there(&cache, &segment, 2));
    assert!(memory.cached() <= 6 * COLUMN);
}

#[test]
fn operators_get_the_memory_and_what_was_used_goes_last() {
    let (memory, cache) = cache(Some(16 * COLUMN), Some(8 * COLUMN));
    let segment = cache.segment(1, 1, "main.t");
    for column in 0..7 {
        read(&cache, &segment, column);
    }
    assert!(read(&cache, &segment, 0));
    // It fits beside the cache.
    let join = operators(&memory, 8 * COLUMN);
    assert_eq!(cache.list().len(), 7);
    join.try_grow(COLUMN * 4).unwrap();
    assert!(memory.cached() <= 4 * COLUMN);
    assert!(is_there(&cache, &segment, 0));
    assert!(!is_there(&cache, &segment, 1));
    // What is not an entry yet gives way, too.
    join.shrink(2 * COLUMN);
    let mut filling = begin(&cache, &segment, 1).unwrap();
    join.try_grow(6 * COLUMN).unwrap();
    assert!(!filling.add(&chunks()[0]));
    drop(filling);
    assert_eq!((cache.list().len(), memory.cached()), (0, 0));
    assert!(begin(&cache, &segment, 1).is_none());
    drop(join);
    assert!(begin(&cache, &segment, 1).is_some());
}

#[test]
fn the_size_follows_the_limit_and_can_be_set() {
    let (memory, cache) = cache(Some(40 * COLUMN), None);
    assert_eq!(cache.size(), 10 * COLUMN);
    let segment = cache.segment(1, 1, "main.t");
    for column in 0..20 {
        read(&cache, &segment, column);
    }
    assert_eq!(cache.list().len(), 9);
    cache.set_size(Some(4 * COLUMN));
    assert!(memory.cached() <= 4 * COLUMN);
    cache.set_size(Some(0));
    assert_eq!((cache.list().len(), memory.cached()), (0, 0));
    assert!(!read(&cache, &segment, 0));
    assert!(!read(&cache, &segment, 0));
    cache.set_size(None);
    memory.set_limit(Some(80 * COLUMN));
    assert_eq!(cache.size(), 20 * COLUMN);
    assert!(!read(&cache, &segment, 0));
    assert!(read(&cache, &segment, 0));
    // Columns that would take most of it have no place.
    cache.set_size(Some(3 * COLUMN));
    assert!(begin(&cache, &segment, 5).is_none());
}

#[test]
fn many_readers_at_once_keep_the_accounts() {
    let (memory, cache) = cache(Some(64 * COLUMN), Some(8 * COLUMN));
    let segments: Vec<_> = (0..4).map(|id| cache.segment(id, 1, "main.t")).collect();
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (cache, memory, segments) = (&cache, &memory, &segments);
            scope.spawn(move || {
                for round in 0..200 {
                    let segment = &segments[(reader + round) % 4];
                    read(cache, segment, round % 7);
                    if round % 50 == 0 {
                        drop(operators(memory, 60 * COLUMN / 4));
                    }
                    if round % 70 == 0 {
                        cache.evict(COLUMN);
                    }
                }
            });
        }
    });
    let listed: u64 = cache.list().iter().map(|column| column.bytes).sum();
    assert_eq!(listed as usize, memory.cached());
    assert!(memory.cached() <= 8 * COLUMN);
    drop(segments);
    assert_eq!((cache.list().len(), memory.cached()), (0, 0));
}

#[test]
fn memory_that_chunks_share_counts_once() {
    let text = "a text that is longer than a view";
    let texts: StringViewArray = vec![Some(text); 1000].into();
    let one: ArrayRef = Arc::new(texts);
    let two = one.slice(0, 500);
    let alone = bytes(&[Arc::clone(&one)]);
    assert!(bytes(&[one, two]) < alone + 1024);
    let nested = ListArray::from_iter_primitive::<Int64Type, _, _>(
        (0..1000).map(|row| Some(vec![Some(row); 10])),
    );
    assert!(bytes(&[Arc::new(nested)]) >= 1000 * (4 + 10 * 8));
}

#[test]
fn texts_do_not_keep_pages_that_few_refer_to() {
    let long = "a text that is longer than a view is wide".repeat(50);
    let page: ArrayRef = Arc::new(StringViewArray::from_iter_values(
        (0..100).map(|row| format!("{row}{long}")),
    ));
    let short: ArrayRef = Arc::new(StringViewArray::from_iter_values(
        (0..100).map(|row| row.to_string()),
    ));
    let mixed = concat(&[&page, &short]).unwrap();
    let only_short = mixed.slice(100, 100);
    let kept = Decoded::new(vec![Arc::clone(&only_short)], 100).unwrap();
    assert!(kept.bytes() < 10_000, "{}", kept.bytes());
    assert_eq!(kept.chunk_at(0).unwrap(), &only_short);
    // What most refer to stays where it is.
    let all = Decoded::new(vec![Arc::clone(&page)], 100).unwrap();
    assert!(all.bytes() > 100 * long.len());
    assert_eq!(all.chunk_at(0).unwrap(), &page);
}
