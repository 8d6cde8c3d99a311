//! The frames there are, and how long each may be.

use super::error::FrameError;

/// What a frame is. The number is the byte on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// The first frame of a connection, from both sides.
    Hello = 0x01,
    /// Request: here is a task's plan; what follows are its work units.
    SetPlan = 0x10,
    /// Request: run partitions of a task and send what they produce.
    Execute = 0x11,
    /// Request: which version of the software are you?
    Info = 0x12,
    /// Request: something that the application understands.
    Call = 0x13,
    /// Request: make me a worker of your cluster.
    Join = 0x14,
    /// Answer to [`FrameKind::SetPlan`]: the plan is in place.
    PlanSet = 0x20,
    /// A record batch, with its dictionaries, and before the first one the schema.
    Batch = 0x21,
    /// Work units for a task.
    WorkUnits = 0x22,
    /// No more work units.
    WorkUnitsEnd = 0x23,
    /// How much a task's partition has ready.
    LoadInfo = 0x24,
    /// No more of that.
    LoadInfoEnd = 0x25,
    /// A finished task's metrics.
    TaskMetrics = 0x26,
    /// Answer to [`FrameKind::Info`], [`FrameKind::Call`] and [`FrameKind::Join`].
    Reply = 0x27,
    /// The last frame: all has been said.
    End = 0x30,
    /// The last frame: it failed.
    Error = 0x3f,
}

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

impl FrameKind {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Hello,
        Self::SetPlan,
        Self::Execute,
        Self::Info,
        Self::Call,
        Self::Join,
        Self::PlanSet,
        Self::Batch,
        Self::WorkUnits,
        Self::WorkUnitsEnd,
        Self::LoadInfo,
        Self::LoadInfoEnd,
        Self::TaskMetrics,
        Self::Reply,
        Self::End,
        Self::Error,
    ];

    /// The limit of a batch's frame.
    pub(crate) const BATCH_LIMIT: usize = 256 * MIB;

    /// Reads the byte.
    ///
    /// # Errors
    /// [`FrameError::UnknownKind`] if no frame has it.
    pub fn from_byte(byte: u8) -> Result<Self, FrameError> {
        Self::ALL
            .into_iter()
            .find(|kind| *kind as u8 == byte)
            .ok_or(FrameError::UnknownKind { byte })
    }

    /// The most bytes that a frame's payload may have. Nobody has to hold more than that for a
    /// frame before knowing what it is.
    pub fn limit(self) -> usize {
        match self {
            Self::Hello => 4 * KIB,
            Self::Join => 64 * KIB,
            // A partitioning's expressions.
            Self::Execute => 4 * MIB,
            Self::Info | Self::PlanSet | Self::WorkUnitsEnd | Self::LoadInfoEnd => 0,
            Self::LoadInfo => MIB,
            // A plan over many thousand files has tens of megabytes.
            Self::SetPlan | Self::WorkUnits | Self::TaskMetrics => 128 * MIB,
            Self::Call | Self::Reply => 64 * MIB,
            // Batches are cut to a sixteenth of this where their rows allow it.
            Self::Batch => Self::BATCH_LIMIT,
            Self::End => 16,
            Self::Error => 256 * KIB,
        }
    }

    /// Whether nothing can follow it.
    pub fn is_last(self) -> bool {
        matches!(self, Self::End | Self::Error)
    }
}
