//! A report about a query of a cluster that has lost a worker.

use async_trait::async_trait;
use skewer_profiling::{
    Level, QueryRow, Recorder, RecorderLimits, RemoteSys, RemoteSysError, Retention, SysTables,
    WorkerRow, remote,
};
use skewer_sql::ProfileFormat;

use super::case::{MS, QUERY};
use super::{profile, written};

/// Worker 1 has recorded nothing; the workers from 2 on are gone.
#[derive(Debug)]
struct Gone {
    workers: i64,
}

#[async_trait]
impl RemoteSys for Gone {
    fn workers(&self) -> Vec<WorkerRow> {
        let workers = 1..=self.workers;
        workers
            .map(|worker_id| WorkerRow {
                worker_id,
                state: match worker_id {
                    1 => "alive".to_owned(),
                    _ => "lost".to_owned(),
                },
                address: "127.0.0.1:1".to_owned(),
                clock_offset_ns: 0,
                clock_error_ns: 0,
            })
            .collect()
    }

    async fn call(
        &self,
        worker_id: i64,
        method: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, RemoteSysError> {
        match (worker_id, method) {
            (1, remote::FINISH) => Ok(Vec::new()),
            (1, _) => SysTables::open(None, Retention::default()).answer(&body),
            _ => Err(RemoteSysError::Lost("killed".to_owned())),
        }
    }
}

/// The report about a query that ran on so many workers, as one line.
async fn report_of(workers: i64) -> String {
    let tables = SysTables::open(None, Retention::default());
    tables.set_remote(std::sync::Arc::new(Gone { workers }));
    let recorder = Recorder::new(QUERY, Level::Counters, 1.0, RecorderLimits::default());
    let others: Vec<i64> = (1..=workers).collect();
    tables.finish_on_workers(&recorder, &others).await;
    let query = QueryRow {
        sql: "SELECT count(*) FROM t".to_owned(),
        fingerprint: "SELECT count(*) FROM t".to_owned(),
        status: "finished".to_owned(),
        error: None,
        started_at: 0,
        ended_at: Some(MS),
        planning_ns: Some(0),
        execution_ns: Some(MS),
        rows_returned: Some(1),
        tables_read: None,
        quarantines: None,
        imported_from: None,
        first_row_at: None,
        queued_ns: None,
        user_name: None,
        trace_id: None,
        parent_span_id: None,
    };
    tables.finish(&recorder, query);
    let report = profile(&tables).await;
    written(&report, ProfileFormat::Text, false).join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lost_workers_recorded_is_said_to_be_missing() {
    let text = report_of(2).await;
    let says = "! Worker 2 is lost: its records are missing.";
    assert!(text.contains(says), "{text}");
    let text = report_of(3).await;
    let says = "! Workers 2, 3 are lost: their records are missing.";
    assert!(text.contains(says), "{text}");
    let text = report_of(1).await;
    assert!(!text.contains("lost"), "{text}");
}
