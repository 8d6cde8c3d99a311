//! What workers recorded, read by the master.

use std::sync::Weak;

use async_trait::async_trait;
use skewer_net::NetError;
use skewer_net::identity::NodeId;
use skewer_profiling::{RemoteSys, RemoteSysError, WorkerRow};

use crate::master::Inner;
use crate::membership::MemberState;

/// Asks workers through the master's node.
#[derive(Debug)]
pub(crate) struct RemoteTables(pub(crate) Weak<Inner>);

#[async_trait]
impl RemoteSys for RemoteTables {
    fn workers(&self) -> Vec<WorkerRow> {
        let Some(master) = self.0.upgrade() else {
            return Vec::new();
        };
        let own = master.node.local_address();
        let mut rows = vec![WorkerRow {
            worker_id: 0,
            state: "alive".to_owned(),
            address: own.map_or_else(|_| String::new(), |address| address.to_string()),
            clock_offset_ns: 0,
            clock_error_ns: 0,
        }];
        rows.extend(master.members.list().into_iter().map(|member| {
            let clock = member.clock.unwrap_or_default();
            let address = member.address.map(|address| address.to_string());
            WorkerRow {
                worker_id: i64::from(member.number),
                // One that leaves still answers.
                state: match member.state {
                    MemberState::Lost(_) => "lost",
                    MemberState::Alive | MemberState::Leaving => "alive",
                }
                .to_owned(),
                address: address.unwrap_or_default(),
                clock_offset_ns: clock.offset_ns,
                clock_error_ns: clock.error_ns,
            }
        }));
        rows
    }

    async fn call(
        &self,
        worker_id: i64,
        method: &str,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, RemoteSysError> {
        let Some(master) = self.0.upgrade() else {
            return Err(RemoteSysError::Lost("the master is ending".to_owned()));
        };
        let number = u32::try_from(worker_id)
            .map_err(|_| RemoteSysError::Failed(format!("there is no worker {worker_id}")))?;
        let answer = master.node.call(NodeId(number), method, body).await;
        answer.map_err(|error| match error {
            NetError::Remote(failure) => RemoteSysError::Failed(failure.text),
            other => RemoteSysError::Lost(other.to_string()),
        })
    }
}
