//! A run of a statement that may have remedies.

use std::sync::Arc;
use std::time::Duration;

use skewer_optimizer::remedies::Remedies;
use skewer_profiling::{Recorder, RemedyRun};

use super::book::{Judged, Next, RemedyBook, Run};
use super::{RemedyMode, candidates};
use crate::error::Error;
use crate::session::Session;

/// A run of a statement that may have remedies.
#[derive(Debug)]
pub(crate) struct Trial {
    book: Arc<RemedyBook>,
    statement: String,
    judged: Option<Judged>,
    /// What the plan is asked for, and says that it got.
    remedies: Option<Arc<Remedies>>,
    is_applied: bool,
}

/// The remedies that the next run of a statement has, or goes without.
async fn judged(
    session: &Session,
    book: &RemedyBook,
    statement: &str,
    deadline: Option<Duration>,
) -> Result<Option<Judged>, Error> {
    let mut next = book.next(statement, deadline);
    if let Next::LookAt(query_id) = next {
        let found = candidates::of_query(session, query_id).await?;
        book.found(statement, found);
        next = book.next(statement, deadline);
    }
    Ok(match next {
        Next::Try(judged) => Some(judged),
        Next::Nothing | Next::LookAt(_) => None,
    })
}

impl Trial {
    /// Decides whether the next run of statement `sql` has remedies.
    ///
    /// # Errors
    /// If schema `sys` cannot be read.
    pub(crate) async fn begin(
        session: &Session,
        book: &Arc<RemedyBook>,
        sql: &str,
        mode: RemedyMode,
    ) -> Result<Self, Error> {
        let statement = skewer_sql::fingerprint(sql);
        let judged = match mode {
            RemedyMode::Random(seed) => {
                let candidates = candidates::random(session, &statement, seed).await?;
                Some(Judged::untried(candidates))
            }
            _ => judged(session, book, &statement, mode.deadline()).await?,
        };
        let remedies = judged
            .as_ref()
            .filter(|judged| judged.applies)
            .map(|judged| {
                let candidates = judged.candidates.iter();
                let prescriptions = candidates.map(candidates::Candidate::prescription);
                Arc::new(Remedies::new(prescriptions.collect()))
            });
        Ok(Self {
            book: Arc::clone(book),
            statement,
            judged,
            remedies,
            is_applied: false,
        })
    }

    /// What the plan is asked for.
    pub(crate) fn remedies(&self) -> Option<Arc<Remedies>> {
        self.remedies.clone()
    }

    /// The statement has been planned: `recorder` learns which remedies the plan has.
    pub(crate) fn planned(&mut self, recorder: &Recorder) {
        let applied = self.remedies.as_ref().map(|remedies| remedies.applied());
        let applied = applied.unwrap_or_default();
        self.is_applied = !applied.is_empty();
        let Some(judged) = &self.judged else {
            return;
        };
        for (place, candidate) in judged.candidates.iter().enumerate() {
            let here = applied.iter().find(|applied| applied.prescription == place);
            recorder.remedy_run(RemedyRun {
                exchange_id: here.map(|applied| applied.operator_id),
                exchange_number: candidate.exchange as i64,
                remedy: candidate.remedy.name().to_owned(),
                subject: candidate.subject.clone(),
                because: candidate.because.clone(),
                evidence_query_id: candidate.evidence_query_id,
                is_applied: here.is_some(),
                predicted_ns: candidate.predicted_ns,
                measured_ns: judged.measured_ns,
                pairs: judged.pairs as i64,
                verdict: judged.verdict.name().to_owned(),
            });
        }
    }

    /// The run has ended well.
    pub(crate) fn ran(&self, run: Run) {
        self.book.ran(&self.statement, run, self.is_applied);
    }
}
