//! Remedies: plans whose exchanges spread heavy keys.
//!
//! 1. [`possible_remedies`] says of each exchange that hashes keys what can be done about its skew without changing
//!    the result. `sys.operators.remedies` has it.
//! 2. `sys.remedy_candidates` decides by what a run recorded which of these pays.
//! 3. [`with_remedies`] changes the plan of a later run.
//!
//! An exchange is known by its number: its place among the plan's exchanges that hash keys, from the root down,
//! inputs in their order. Remedies add no such exchange, so the number is the same with and without them.

mod apply;
mod classes;
mod loads;

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::repartition::RepartitionExec;
use parking_lot::Mutex;

pub use self::apply::with_remedies;
use self::classes::{Exchanges, is_hash};
use crate::instrument::StageBoundaries;

/// What changes where an exchange sends rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// Heavy keys get partitions by a map, so that loads are even; the other keys go by their hash.
    Map,
    /// Rows of a heavy key are dealt over all partitions; the matching rows of the join's other input are copied.
    Split,
    /// Rows with NULL in their key are dealt over all partitions: an outer join returns them without a partner.
    DealNulls,
    /// Rows with NULL in their key are left out: they match nothing, and the join returns only what matches.
    DropNulls,
}

impl Remedy {
    /// All of them, in the order in which `sys.operators.remedies` names them.
    pub const ALL: [Remedy; 4] = [Self::Map, Self::Split, Self::DealNulls, Self::DropNulls];

    /// Its name in schema `sys`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Split => "split",
            Self::DealNulls => "deal NULL",
            Self::DropNulls => "drop NULL",
        }
    }

    /// The one of a name in schema `sys`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|remedy| remedy.name() == name)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A key that many rows of an exchange have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeavyKey {
    /// As [`skewer_exec::exchange_hashes`] has it.
    pub hash: u64,
    /// Rows that have it.
    pub rows: f64,
    /// Whether a column of it is NULL.
    pub has_null: bool,
}

/// A remedy for one exchange, and what is known of its rows from an earlier run.
#[derive(Debug, Clone, PartialEq)]
pub struct Prescription {
    /// The exchange's number.
    pub exchange: usize,
    /// What to do.
    pub remedy: Remedy,
    /// Rows that the exchange moved.
    pub rows: f64,
    /// Its heavy keys.
    pub keys: Vec<HeavyKey>,
}

/// What can be done about skew of one exchange without changing the result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Possible(Vec<Remedy>);

impl Possible {
    /// Whether a remedy is among them.
    pub fn has(&self, remedy: Remedy) -> bool {
        self.0.contains(&remedy)
    }

    /// Their names, separated by commas.
    pub fn text(&self) -> String {
        let names: Vec<_> = self.0.iter().map(|remedy| remedy.name()).collect();
        names.join(",")
    }
}

/// What can be done about skew, for each exchange that hashes keys, by number.
///
/// # Errors
/// None that is known; those of types of expressions.
pub fn possible_remedies(
    plan: &Arc<dyn ExecutionPlan>,
    boundaries: Option<&dyn StageBoundaries>,
) -> Result<Vec<Possible>> {
    let exchanges = Exchanges::of_plan(plan, boundaries);
    let numbers = 0..exchanges.len();
    numbers.map(|number| exchanges.possible(number)).collect()
}

/// Whether an operator is an exchange that hashes keys.
pub(crate) fn hashes_keys(plan: &dyn ExecutionPlan) -> bool {
    plan.downcast_ref::<RepartitionExec>().is_some_and(is_hash)
}

/// The remedies that a plan is to have, and those that it got.
#[derive(Debug, Default)]
pub struct Remedies {
    prescriptions: Vec<Prescription>,
    applied: Mutex<Vec<Applied>>,
}

/// A remedy that a plan has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Its place among the prescriptions.
    pub prescription: usize,
    /// The exchange, by its number in `sys.operators`.
    pub operator_id: i64,
}

impl Remedies {
    /// The plan is to have these.
    pub fn new(prescriptions: Vec<Prescription>) -> Self {
        Self {
            prescriptions,
            applied: Mutex::default(),
        }
    }

    /// The remedies that the plan got.
    pub fn applied(&self) -> Vec<Applied> {
        self.applied.lock().clone()
    }

    /// `plan` with the remedies.
    ///
    /// # Errors
    /// As [`with_remedies`].
    pub(crate) fn apply(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        boundaries: Option<&dyn StageBoundaries>,
    ) -> Result<(Arc<dyn ExecutionPlan>, Vec<usize>)> {
        with_remedies(plan, &self.prescriptions, boundaries)
    }

    /// The exchanges of the plan, by their numbers here, became these operators; `applied`: the places of the
    /// prescriptions that the plan got.
    pub(crate) fn set_applied(&self, applied: Vec<usize>, operators: &[i64]) {
        let applied = applied.into_iter().filter_map(|prescription| {
            let number = self.prescriptions[prescription].exchange;
            Some(Applied {
                prescription,
                operator_id: *operators.get(number)?,
            })
        });
        *self.applied.lock() = applied.collect();
    }
}
