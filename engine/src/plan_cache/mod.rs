//! Plans of queries that have run, for their next runs.
//!
//! A query that comes again gets the plan of its last run, if nothing has changed that decided the plan: its tables, the
//! settings, and what earlier queries counted of its relations. Then neither the logical plan is optimized nor a physical
//! one made: its operators are copied ([`ReusablePlan`]).
//!
//! A plan is kept when its query comes for the second time. A plan holds the segments of its tables, whose files stay as
//! long as that. So each commit drops the plans of tables that it changes.

mod key;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use parking_lot::Mutex;
use skewer_compat::rules::join_sides::JoinEstimates;
use skewer_optimizer::ReusablePlan;
use skewer_optimizer::join_order::plan_relations::PlanRelations;
use skewer_optimizer::join_order::{CorrectedEstimate, FeedbackUsed, KnownRows};
use skewer_storage::Snapshot;

pub(crate) use self::key::{OptionsHash, PlanKey, PlanSettings};

/// Plans that are kept: the ones that were used last.
const PLANS: usize = 256;
/// Queries that are remembered to have come once.
const SEEN: usize = 1024;
/// Plans of queries whose text is longer, in bytes, are not kept.
pub(crate) const LONGEST_TEXT: usize = 64 << 10;

/// A query that has been optimized.
#[derive(Debug)]
pub(crate) struct OptimizedQuery {
    pub(crate) plan: LogicalPlan,
    /// The relations that its operators return.
    pub(crate) relations: Option<PlanRelations>,
    /// What its joins get, for the rule that chooses their sides.
    pub(crate) estimates: Option<JoinEstimates>,
    /// Estimates that earlier queries corrected.
    pub(crate) corrected: Vec<CorrectedEstimate>,
    /// What earlier queries counted, as far as that decided the plan.
    pub(crate) feedback: Option<FeedbackUsed>,
    /// Its operators, if the plan is kept.
    pub(crate) operators: Option<ReusablePlan>,
}

impl OptimizedQuery {
    /// A query without joins that could be in another order.
    pub(crate) fn in_one_order(plan: LogicalPlan) -> Self {
        Self {
            plan,
            relations: None,
            estimates: None,
            corrected: Vec::new(),
            feedback: None,
            operators: None,
        }
    }

    /// The same with a place for its operators.
    pub(crate) fn with_place_for_operators(mut self) -> Self {
        self.operators = Some(ReusablePlan::default());
        self
    }
}

/// What the cache has of a query.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// Its plan.
    Kept(Arc<OptimizedQuery>),
    /// Nothing. The query came before, so its plan is worth keeping.
    CameBefore,
    /// Nothing.
    New,
}

/// Plans of a database's queries.
#[derive(Debug, Default)]
pub(crate) struct PlanCache(Mutex<Plans>);

#[derive(Debug, Default)]
struct Plans {
    /// Those used last are at the end.
    kept: Vec<(PlanKey, Arc<OptimizedQuery>)>,
    /// Hashes of queries that came once.
    seen: VecDeque<u64>,
}

impl PlanCache {
    /// The plan of a query, if what is `known` of its relations would not change it.
    pub(crate) fn get(&self, key: &PlanKey, known: &KnownRows) -> Lookup {
        let mut plans = self.0.lock();
        if let Some(place) = plans.kept.iter().position(|(kept, _)| kept == key) {
            let entry = plans.kept.remove(place);
            let feedback = entry.1.feedback.as_ref();
            if feedback.is_some_and(|feedback| !feedback.still_holds(known)) {
                drop(plans);
                // What is dropped may remove files.
                drop(entry);
                return Lookup::CameBefore;
            }
            let query = Arc::clone(&entry.1);
            plans.kept.push(entry);
            return Lookup::Kept(query);
        }
        if plans.seen.contains(&key.hash()) {
            return Lookup::CameBefore;
        }
        if plans.seen.len() == SEEN {
            plans.seen.pop_front();
        }
        plans.seen.push_back(key.hash());
        Lookup::New
    }

    /// Keeps the plan of a query. `now` gives the database as it is.
    pub(crate) fn keep(
        &self,
        key: PlanKey,
        query: Arc<OptimizedQuery>,
        now: impl FnOnce() -> Arc<Snapshot>,
    ) {
        let mut plans = self.0.lock();
        // A later commit waits for the lock, and drops it.
        if !key.is_current(&now()) {
            return;
        }
        let before = plans.kept.iter().position(|(kept, _)| *kept == key);
        let oldest = (plans.kept.len() == PLANS).then_some(0);
        let dropped = before.or(oldest).map(|place| plans.kept.remove(place));
        plans.kept.push((key, query));
        drop(plans);
        drop(dropped);
    }

    /// Drops the plans whose tables are no more as they were.
    pub(crate) fn drop_outdated(&self, now: &Snapshot) {
        let mut plans = self.0.lock();
        let kept = mem::take(&mut plans.kept).into_iter();
        let (kept, dropped) = kept.partition(|(key, _)| key.is_current(now));
        plans.kept = kept;
        drop(plans);
        drop::<Vec<_>>(dropped);
    }

    /// How many plans are kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().kept.len()
    }
}

#[cfg(test)]
mod tests;
