//! How a worker joins a cluster with a token.

use std::path::Path;
use std::sync::Arc;

use skewer_net::identity::{Clock, Credentials, IdentityError, JoinToken, SystemClock};
use skewer_net::{NetError, join};

use super::{MASTER, WorkerOptions};
use crate::error::Error;

/// Whether a worker that has joined may use a token: one of its cluster that renews its own
/// certificate. Another cluster's would put that cluster's identity in place of its own.
pub(super) fn may_renew(
    token: &JoinToken,
    options: &WorkerOptions,
    identity: &Path,
) -> Result<(), Error> {
    let credentials = Credentials::load(identity).map_err(NetError::from)?;
    let own = credentials.identity();
    if !token.is_of(credentials.authority()) {
        let data = options.data.display();
        return Err(Error::Invalid(format!(
            "the join token is of another cluster than the worker in {data}, which is of cluster {}",
            own.cluster
        )));
    }
    match token.renews {
        Some(worker) if worker == own.node => Ok(()),
        Some(worker) => Err(NetError::from(IdentityError::TokenOfOther {
            expected: worker,
            found: own.node,
        })
        .into()),
        None => Err(Error::Invalid(format!(
            "the worker in {} has joined a cluster already: start it without a token, or renew its \
             certificate with one of `skewer cluster token --worker {}`",
            options.data.display(),
            own.node.0
        ))),
    }
}

/// Joins with a token; keeps the certificate and where the master is.
pub(super) async fn enter(
    token: &JoinToken,
    options: &WorkerOptions,
    identity: &Path,
) -> Result<(), Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let name = options.name.as_deref();
    let joined = join(token, name, options.wait, &options.net, &clock).await?;
    // The token is used up: what it was good for must not get lost.
    joined.credentials.write(identity).map_err(NetError::from)?;
    let path = identity.join(MASTER);
    std::fs::write(&path, format!("{}\n", token.address)).map_err(|error| Error::File {
        file: path.display().to_string(),
        error,
    })?;
    let worker = joined.credentials.identity();
    tracing::info!(
        worker = worker.node.0,
        name = worker.name,
        "joined the cluster"
    );
    Ok(())
}
