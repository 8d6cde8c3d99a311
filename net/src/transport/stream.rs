//! Frames on QUIC streams.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::buffer::Buffer;
use quinn::{ConnectionError, ReadError, RecvStream, SendStream, VarInt, WriteError};

use super::peers::Peer;
use crate::error::NetError;
use crate::frame::{
    Decoder, Frame, FrameError, FrameKind, LostWorker, RemoteFailure, codec, encode,
};

/// QUIC's code for a stream whose sender gave up without saying why.
const ABANDONED: VarInt = VarInt::from_u32(2);

/// How many packets' payloads are taken from a stream at a time: each taking locks the connection.
const CHUNKS: usize = 32;

/// What a node's connection died of, for a person.
pub(crate) fn reason(error: &ConnectionError) -> String {
    match error {
        ConnectionError::TimedOut => "it has stopped answering".to_owned(),
        ConnectionError::Reset => "it was restarted".to_owned(),
        ConnectionError::LocallyClosed => "this node has closed the connection".to_owned(),
        ConnectionError::ApplicationClosed(close) if !close.reason.is_empty() => {
            String::from_utf8_lossy(&close.reason).into_owned()
        }
        ConnectionError::ApplicationClosed(_) => "it has closed the connection".to_owned(),
        other => other.to_string(),
    }
}

/// The frames that come.
pub(crate) struct Inbound {
    stream: RecvStream,
    decoder: Decoder,
    chunks: [Bytes; CHUNKS],
    /// Which of the chunks are not decoded yet.
    next: usize,
    until: usize,
    whose: PeerName,
}

/// Who sends, for errors.
#[derive(Clone)]
pub(crate) enum PeerName {
    /// A node that was asked.
    Peer(Arc<Peer>),
    /// Somebody who asks, or is not known yet.
    Other(String),
}

impl PeerName {
    fn name(&self) -> &str {
        match self {
            Self::Peer(peer) => &peer.at.name,
            Self::Other(name) => name,
        }
    }

    /// What a connection's end means to those who wait for its streams.
    pub(crate) fn lost(&self, error: &ConnectionError) -> LostWorker {
        let declared = match self {
            Self::Peer(peer) => peer.lost_because(),
            Self::Other(_) => None,
        };
        LostWorker {
            name: self.name().to_owned(),
            reason: declared.map_or_else(|| reason(error), |reason| reason.to_string()),
        }
    }
}

impl Inbound {
    pub(crate) fn new(stream: RecvStream, whose: PeerName) -> Self {
        Self {
            stream,
            decoder: Decoder::default(),
            chunks: std::array::from_fn(|_| Bytes::new()),
            next: 0,
            until: 0,
            whose,
        }
    }

    /// The next frame; the last one is END. Cancel-safe.
    ///
    /// # Errors
    /// [`NetError::Remote`] if the peer says that it failed, [`NetError::Lost`] if the connection
    /// is gone, [`NetError::Protocol`] if the stream ends without END or is malformed.
    pub(crate) async fn next(&mut self) -> Result<Frame, NetError> {
        loop {
            while self.next < self.until {
                let chunk = &mut self.chunks[self.next];
                let mut rest = &chunk[..];
                let frame = self.decoder.feed(&mut rest);
                let taken = chunk.len() - rest.len();
                bytes::Buf::advance(chunk, taken);
                if chunk.is_empty() {
                    *chunk = Bytes::new();
                    self.next += 1;
                }
                match frame {
                    Ok(None) => {}
                    Ok(Some(frame)) if frame.kind == FrameKind::Error => {
                        let failure = RemoteFailure::decode(&frame.payload);
                        return Err(match failure {
                            Ok(failure) => NetError::Remote(failure),
                            Err(error) => self.wrong(error),
                        });
                    }
                    Ok(Some(frame)) => return Ok(frame),
                    Err(error) => return Err(self.wrong(error)),
                }
            }
            match self.stream.read_chunks(&mut self.chunks).await {
                Ok(Some(count)) => {
                    self.next = 0;
                    self.until = count;
                }
                Ok(None) => {
                    let error = self.decoder.finish().err();
                    return Err(self.wrong(error.unwrap_or(FrameError::AfterEnd)));
                }
                Err(ReadError::ConnectionLost(error)) => {
                    return Err(self.whose.lost(&error).into());
                }
                Err(_) => return Err(self.wrong(FrameError::Truncated)),
            }
        }
    }

    /// The next frame, which has to be of this kind.
    pub(crate) async fn expect(
        &mut self,
        kind: FrameKind,
        expected: &'static str,
    ) -> Result<Frame, NetError> {
        let frame = self.next().await?;
        match frame.kind == kind {
            true => Ok(frame),
            false => Err(self.wrong(FrameError::Unexpected {
                found: frame.kind,
                expected,
            })),
        }
    }

    pub(crate) fn add_rows(&mut self, rows: usize) {
        self.decoder.add_rows(rows);
    }

    pub(crate) fn wrong(&self, error: FrameError) -> NetError {
        NetError::Protocol {
            peer: self.whose.name().to_owned(),
            error,
        }
    }
}

/// The frames that go. Dropped before [`Outbound::end`] or [`Outbound::fail`], it resets the
/// stream: quinn would end it as if all had been said.
pub(crate) struct Outbound {
    stream: SendStream,
    frames: u64,
    rows: u64,
    ended: bool,
}

/// The receiver has gone, or does not want more. Whoever sends has nothing to do about it but stop.
#[derive(Debug)]
pub(crate) struct ReceiverGone;

impl Outbound {
    pub(crate) fn new(stream: SendStream) -> Self {
        Self {
            stream,
            frames: 0,
            rows: 0,
            ended: false,
        }
    }

    /// Returns when the receiver has gone or does not want more.
    pub(crate) fn receiver_gone(&self) -> impl Future<Output = ReceiverGone> + Send + use<> {
        let stopped = self.stream.stopped();
        async move {
            match stopped.await {
                // All is said and received: there is nothing to stop.
                Ok(None) => std::future::pending().await,
                Ok(Some(_)) | Err(_) => ReceiverGone,
            }
        }
    }

    pub(crate) async fn frame(&mut self, kind: FrameKind, payload: &[u8]) -> Result<(), SendError> {
        let bytes = encode(kind, payload)?;
        self.chunks(&mut [bytes]).await?;
        self.frames += 1;
        Ok(())
    }

    /// A frame that has been encoded already.
    pub(crate) async fn encoded(&mut self, frame: Bytes) -> Result<(), ReceiverGone> {
        self.chunks(&mut [frame]).await?;
        self.frames += 1;
        Ok(())
    }

    /// A batch's frame, with its header.
    pub(crate) async fn batch(
        &mut self,
        frame: Vec<Buffer>,
        rows: usize,
    ) -> Result<(), ReceiverGone> {
        // Without copying: what is sent is what the operator made.
        let mut chunks: Vec<Bytes> = frame.into_iter().map(bytes_of).collect();
        self.chunks(&mut chunks).await?;
        self.frames += 1;
        self.rows += rows as u64;
        Ok(())
    }

    async fn chunks(&mut self, chunks: &mut [Bytes]) -> Result<(), ReceiverGone> {
        let stopped = self.stream.stopped();
        tokio::select! {
            biased;
            written = self.stream.write_all_chunks(chunks) => {
                written.map_err(|_: WriteError| ReceiverGone)
            }
            // A write that waits for the connection's send window does not notice by itself, and
            // what keeps the window full may be what stopped streams have not sent.
            _ = stopped => Err(ReceiverGone),
        }
    }

    /// Says that all has been said.
    pub(crate) async fn end(mut self) -> Result<(), ReceiverGone> {
        let end = codec::end(self.frames, self.rows);
        self.chunks(&mut [end]).await?;
        self.ended = true;
        self.stream.finish().map_err(|_| ReceiverGone)
    }

    /// Says that it failed.
    pub(crate) async fn fail(mut self, failure: &RemoteFailure) -> Result<(), ReceiverGone> {
        if let Ok(bytes) = encode(FrameKind::Error, &failure.encode()) {
            self.chunks(&mut [bytes]).await?;
            self.ended = true;
            self.stream.finish().map_err(|_| ReceiverGone)?;
        }
        Ok(())
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        if !self.ended {
            // Already closed is fine.
            let _ = self.stream.reset(ABANDONED);
        }
    }
}

/// A frame could not be sent.
#[derive(Debug)]
pub(crate) enum SendError {
    ReceiverGone,
    Frame(FrameError),
}

impl From<ReceiverGone> for SendError {
    fn from(_: ReceiverGone) -> Self {
        Self::ReceiverGone
    }
}

impl From<FrameError> for SendError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

fn bytes_of(buffer: Buffer) -> Bytes {
    struct Owner(Buffer);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(buffer))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::SystemTime;

    use quinn::{ClientConfig, Connection, Endpoint, ServerConfig};

    use super::*;
    use crate::identity::authority::NODE_LIFETIME;
    use crate::identity::{Authority, Credentials, NodeId, Revocations, Trust, tls};

    /// Both ends of a connection, with what keeps them open.
    async fn pair() -> (Connection, Connection, [Endpoint; 2]) {
        let now = SystemTime::now();
        let authority = Authority::create(now).unwrap();
        let trust = Trust::new(authority.certificate(), Arc::new(Revocations::in_memory()));
        let trust = trust.unwrap();
        let credentials = |node| {
            Credentials::issued_by(&authority, NodeId(node), "node", now, NODE_LIFETIME).unwrap()
        };
        let server = tls::server(&credentials(1), &trust, 1).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = ServerConfig::with_crypto(Arc::new(server));
        let server = Endpoint::server(server, here).unwrap();
        let client = Endpoint::client(here).unwrap();
        let (config, _) = tls::client(&credentials(2), &trust, NodeId(1), 1).unwrap();
        let config = ClientConfig::new(Arc::new(config));
        let address = server.local_addr().unwrap();
        let calling = client
            .connect_with(config, address, tls::SERVER_NAME)
            .unwrap();
        let (caller, called) =
            tokio::join!(calling, async { server.accept().await.unwrap().await });
        (caller.unwrap(), called.unwrap(), [client, server])
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_that_its_sender_drops_or_ends_without_end_is_cut_off_and_not_complete() {
        let (caller, called, _endpoints) = pair().await;
        for dropped in [true, false] {
            let (send, _receive) = called.open_bi().await.unwrap();
            let mut out = Outbound::new(send);
            out.frame(FrameKind::Reply, b"one of two").await.unwrap();
            let (_send, receive) = caller.accept_bi().await.unwrap();
            let mut inbound = Inbound::new(receive, PeerName::Other("worker 1".to_owned()));
            let first = inbound.next().await.unwrap();
            assert_eq!(first.payload.as_slice(), b"one of two");
            if !dropped {
                // As quinn ends streams that are dropped.
                out.stream.finish().unwrap();
                out.ended = true;
            }
            drop(out);
            match inbound.next().await {
                Err(NetError::Protocol { peer, error }) => {
                    assert_eq!((peer.as_str(), error), ("worker 1", FrameError::Truncated));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sender_learns_that_nobody_wants_more() {
        let (caller, called, _endpoints) = pair().await;
        let (send, _receive) = called.open_bi().await.unwrap();
        let mut out = Outbound::new(send);
        out.frame(FrameKind::Reply, b"first").await.unwrap();
        let (_send, receive) = caller.accept_bi().await.unwrap();
        let mut inbound = Inbound::new(receive, PeerName::Other("worker 1".to_owned()));
        inbound.next().await.unwrap();
        let receiver_gone = out.receiver_gone();
        drop(inbound);
        let ReceiverGone = receiver_gone.await;
        let refused = out.frame(FrameKind::Reply, b"second").await;
        assert!(matches!(refused, Err(SendError::ReceiverGone)));
    }
}
