use std::sync::Arc;

use super::*;

fn reservation(pool: &Arc<dyn MemoryPool>, name: &str, can_spill: bool) -> MemoryReservation {
    MemoryConsumer::new(name)
        .with_can_spill(can_spill)
        .register(pool)
}

#[test]
fn those_that_can_spill_share_what_the_others_leave() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(100), RaisedBy::Setting));
    let join = reservation(&pool, "HashJoinInput", false);
    join.try_grow(20).unwrap();
    let one = reservation(&pool, "one", true);
    let two = reservation(&pool, "two", true);
    one.try_grow(40).unwrap();
    assert!(one.try_grow(1).is_err());
    two.try_grow(30).unwrap();
    join.try_grow(10).unwrap();
    assert!(join.try_grow(1).is_err());
    drop(one);
    assert_eq!(pool.reserved(), 60);
    two.try_grow(40).unwrap();
    drop((join, two));
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn a_build_side_leaves_as_much_as_it_takes() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(160), RaisedBy::Setting));
    let build = |number| {
        let name = format!("{}[{number}]", spilling_join::CONSUMER);
        reservation(&pool, &name, true)
    };
    let (one, two, three) = (build(0), build(1), build(2));
    one.try_grow(80).unwrap();
    assert!(one.try_grow(1).is_err());
    two.try_grow(40).unwrap();
    assert!(two.try_grow(1).is_err());
    // It takes part in no shares.
    let sort = reservation(&pool, "sort", true);
    sort.try_grow(36).unwrap();
    // A little it gets all the same, and others give way.
    three.try_grow(10).unwrap();
    assert!(three.try_grow(1).is_err());
    assert!(sort.try_grow(1).is_err());
    drop(sort);
    three.try_grow(10).unwrap();
    assert!(three.try_grow(1).is_err());
    // All that one has counts, in however many reservations.
    let filter = three.new_empty();
    assert!(filter.try_grow(1).is_err());
    three.shrink(5);
    filter.try_grow(5).unwrap();
    assert!(filter.try_grow(1).is_err());
    drop((one, two, three, filter));
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn exchanges_have_one_share_however_many_outputs_they_have() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(100), RaisedBy::Setting));
    let sort = reservation(&pool, "ExternalSorter[0]", true);
    let outputs: Vec<_> = (0..30)
        .map(|output| reservation(&pool, &format!("RepartitionExec[{output}]"), true))
        .collect();
    for output in &outputs[..10] {
        output.try_grow(5).unwrap();
    }
    assert!(outputs[0].try_grow(1).is_err());
    assert!(outputs[20].try_grow(1).is_err());
    sort.try_grow(50).unwrap();
    assert!(sort.try_grow(1).is_err());
    outputs[0].shrink(3);
    outputs[20].try_grow(3).unwrap();
    drop(outputs);
    sort.try_grow(50).unwrap();
    drop(sort);
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn what_takes_all_it_gets_and_needs_less_leaves_some_to_others() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(100), RaisedBy::Setting));
    let merge = reservation(&pool, "ExternalSorterMerge[0]", false);
    let sort = reservation(&pool, "ExternalSorter[0]", true);
    merge.try_grow(60).unwrap();
    merge.try_grow(15).unwrap();
    assert!(merge.try_grow(1).is_err());
    // It does spill.
    let join = reservation(&pool, "SMJStream[0]", false);
    join.try_grow(12).unwrap();
    assert!(join.try_grow(1).is_err());
    let other = reservation(&pool, "AggregateStream[0]", false);
    other.try_grow(13).unwrap();
    assert!(other.try_grow(1).is_err());
    drop((join, other));
    // All merges together leave it, except what each needs to begin.
    let another = reservation(&pool, "ExternalSorterMerge[1]", false);
    another.try_grow(6).unwrap();
    assert!(another.try_grow(1).is_err());
    assert!(another.new_empty().try_grow(1).is_err());
    merge.shrink(46);
    another.try_grow(40).unwrap();
    assert!(another.try_grow(1).is_err());
    drop((merge, another, sort));
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn what_a_sort_held_can_be_merged_while_others_hold_their_shares() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(120), RaisedBy::Setting));
    let pair = |number| {
        let name = |of: &str| format!("{of}[{number}]");
        let sort = reservation(&pool, &name("ExternalSorter"), true);
        (
            sort,
            reservation(&pool, &name("ExternalSorterMerge"), false),
        )
    };
    let ((sort, merge), (other_sort, other_merge)) = (pair(0), pair(1));
    let output = reservation(&pool, "RepartitionExec[0]", true);
    for one in [&sort, &other_sort, &output] {
        one.try_grow(40).unwrap();
    }
    // Both spill at once: of what they hold, three quarters are needed to merge it.
    for _ in 0..10 {
        for (sort, merge) in [(&sort, &merge), (&other_sort, &other_merge)] {
            sort.shrink(4);
            merge.try_grow(3).unwrap();
        }
    }
    assert_eq!(pool.reserved(), 40 + 2 * 30);
}

#[test]
fn a_sort_can_merge_what_it_held_after_late_sorts_took_their_shares() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(120), RaisedBy::Setting));
    let sort = |number| reservation(&pool, &format!("ExternalSorter[{number}]"), true);
    let early: Vec<_> = (0..3).map(sort).collect();
    for sort in &early {
        sort.try_grow(40).unwrap();
    }
    // Each has a sixth now, and nothing is free.
    let late: Vec<_> = (3..6).map(sort).collect();
    for sort in &late {
        sort.try_grow(20).unwrap();
        assert!(sort.try_grow(1).is_err());
    }
    // An early one spills: it sorts its batches, which halves what it holds, and merges them.
    assert!(early[0].try_grow(1).is_err());
    early[0].shrink(20);
    let merge = reservation(&pool, "ExternalSorterMerge[0]", false);
    merge.try_grow(20).unwrap();
    // What cannot spill gets a little, as before.
    let groups = reservation(&pool, "AggregateStream[0]", false);
    groups.try_grow(7).unwrap();
    assert!(groups.try_grow(1).is_err());
}

#[test]
fn who_comes_late_can_begin_although_its_share_is_less_than_a_batch() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(160), RaisedBy::Setting));
    let merge = reservation(&pool, "ExternalSorterMerge[0]", false);
    merge.try_grow(120).unwrap();
    let spillers: Vec<_> = (0..10)
        .map(|number| reservation(&pool, &format!("ExternalSorter[{number}]"), true))
        .collect();
    for spiller in &spillers[..4] {
        spiller.try_grow(10).unwrap();
        assert!(spiller.try_grow(1).is_err());
    }
    // What there is.
    assert!(spillers[4].try_grow(5).is_err());
    spillers[4].try_grow(4).unwrap();
    spillers[0].shrink(10);
    spillers[4].try_grow(6).unwrap();
}

#[test]
fn the_limit_can_be_changed_while_memory_is_held() {
    let budget = Arc::new(MemoryBudget::new(None, RaisedBy::Setting));
    let pool: Arc<dyn MemoryPool> = Arc::clone(&budget) as _;
    let held = reservation(&pool, "held", false);
    held.try_grow(1 << 30).unwrap();
    budget.set_limit(Some(1 << 20));
    assert!(held.try_grow(1).is_err());
    budget.set_limit(None);
    held.try_grow(1).unwrap();
}

#[test]
fn a_refusal_names_the_limit_who_holds_what_and_the_ways_out() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(2 << 20), RaisedBy::Setting));
    let sort = reservation(&pool, "sort", true);
    sort.try_grow(3 << 19).unwrap();
    let groups = reservation(&pool, "AggregateStream[0]", false);
    groups.try_grow(1 << 10).unwrap();
    let Err(DataFusionError::ResourcesExhausted(text)) = groups.try_grow(1 << 20) else {
        panic!("the limit is not kept");
    };
    assert_eq!(
        text,
        "the memory limit of 2 MiB is reached: AggregateStream[0] holds 1 KiB and needs 1 MiB \
         more, while sort holds 1.5 MiB; raise it with SET memory_limit = '4 MiB'"
    );
}

#[test]
fn the_limit_of_a_worker_is_raised_where_it_is_started() {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryBudget::new(Some(2 << 20), RaisedBy::Option));
    let held = reservation(&pool, "held", false);
    let error = held.try_grow(3 << 20).unwrap_err().to_string();
    assert!(
        error.ends_with("; start the worker with --memory-limit '4 MiB' to raise it"),
        "{error}"
    );
}

#[test]
fn sizes_are_short() {
    assert_eq!(size(812), "812 B");
    assert_eq!(size(3 << 19), "1.5 MiB");
    assert_eq!(size(2 << 30), "2 GiB");
}

/// A cache that evicts exactly what it is asked for.
#[derive(Debug)]
struct Cache(MemoryReservation);

impl Evictable for Cache {
    fn evict(&self, bytes: usize) {
        self.0.shrink(bytes.min(self.0.size()));
    }
}

#[test]
fn a_cache_gives_way_to_all_others() {
    let budget = Arc::new(MemoryBudget::new(Some(100), RaisedBy::Setting));
    let pool: Arc<dyn MemoryPool> = Arc::clone(&budget) as _;
    let cache = Arc::new(Cache(reservation(&pool, CACHE, false)));
    let weak: Weak<dyn Evictable> = Arc::downgrade(&cache) as _;
    budget.set_cache(weak);
    let join = reservation(&pool, "HashJoinInput", false);
    join.try_grow(30).unwrap();
    cache.0.try_grow(70).unwrap();
    assert!(cache.0.try_grow(1).is_err());
    assert_eq!((pool.reserved(), budget.cached()), (30, 70));
    // Those that can spill have the shares that they would have without it.
    let sort = reservation(&pool, "sort", true);
    sort.try_grow(60).unwrap();
    assert_eq!(budget.cached(), 10);
    join.try_grow(10).unwrap();
    assert_eq!(budget.cached(), 0);
    let refused = join.try_grow(1).unwrap_err().to_string();
    assert!(!refused.contains(CACHE), "{refused}");
    drop(sort);
    cache.0.try_grow(60).unwrap();
    budget.set_limit(Some(50));
    assert_eq!(budget.cached(), 10);
    // Without a limit there is nothing to give way to.
    budget.set_limit(None);
    cache.0.try_grow(1 << 40).unwrap();
    join.grow(1 << 40);
    assert_eq!(budget.cached(), (1 << 40) + 10);
    drop((join, cache));
    assert_eq!((pool.reserved(), budget.cached()), (0, 0));
}
