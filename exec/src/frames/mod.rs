//! `frame_capture`: the window aggregate that makes a record of the rows in each row's frame.
//!
//! An accumulator of a window is told which rows come into the frame and which leave it, and asked
//! for the value at each row. Frames overlap: the rows before a row are in the frames of all that
//! come after it. So what is made of a frame is made of a few [parts](tree) that frames share.

mod carried;
mod logged;
mod tree;

use std::hash::{Hash, Hasher};
use std::mem::size_of_val;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, not_impl_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, ReversedUDAF, Signature, Volatility,
};
use skewer_profiling::Recorder;
use skewer_profiling::ticks::Ticks;

use crate::capture::CapturedInput;
use crate::latency_propagation::{self, CarriedInput};
use crate::record_origin::AggregateOrigin;

use carried::CarriedFrames;
use logged::LoggedFrames;
use tree::{Begin, Made, Summarize, Tree};

/// How many pairs of operator numbers a logged frame capture has: the first number is that of whole
/// frames, each further one that of a kind of parts, which are not made of parts of their own kind.
pub const OPERATOR_PAIRS: usize = Made::COUNT.div_ceil(2);

/// The records whose frames are captured, and what becomes of them.
#[derive(Debug, Clone)]
pub enum CapturedFrames {
    /// Edges are logged to the frames, which are given ids.
    Logged(Vec<CapturedInput>, Arc<AggregateOrigin>),
    /// What they carry is carried on.
    Carried(Vec<CarriedInput>),
}

/// The aggregate function `frame_capture(ids and latencies …)` of a window: the record that stands
/// for the rows of a frame, NULL for a frame without records.
#[derive(Debug)]
pub struct FrameCapture {
    name: String,
    capture: Arc<Capture>,
    signature: Signature,
}

#[derive(Debug)]
struct Capture {
    recorder: Arc<Recorder>,
    frames: CapturedFrames,
}

impl Capture {
    fn accumulator(self: &Arc<Self>, begin: Begin) -> Box<dyn Accumulator> {
        let capture = Arc::clone(self);
        match &self.frames {
            CapturedFrames::Logged(inputs, frames) => {
                let recorder = Arc::clone(&self.recorder);
                let frames = LoggedFrames::new(inputs.clone(), Arc::clone(frames), recorder);
                Box::new(Frames::new(capture, Tree::new(frames, begin)))
            }
            CapturedFrames::Carried(inputs) => {
                let frames = CarriedFrames::new(inputs.clone());
                Box::new(Frames::new(capture, Tree::new(frames, begin)))
            }
        }
    }
}

impl FrameCapture {
    /// A function of `frames`. Its name is its own in its query.
    pub fn new(name: String, recorder: Arc<Recorder>, frames: CapturedFrames) -> Self {
        Self {
            name,
            capture: Arc::new(Capture { recorder, frames }),
            signature: Signature::variadic_any(Volatility::Volatile),
        }
    }

    /// The records whose frames it captures.
    pub fn frames(&self) -> &CapturedFrames {
        &self.capture.frames
    }
}

impl PartialEq for FrameCapture {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.capture, &other.capture)
    }
}

impl Eq for FrameCapture {}

impl Hash for FrameCapture {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.capture).hash(state);
    }
}

impl AggregateUDFImpl for FrameCapture {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match &self.capture.frames {
            CapturedFrames::Logged(..) => DataType::Int64,
            CapturedFrames::Carried(_) => latency_propagation::data_type(),
        })
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.capture.accumulator(Begin::FirstRow))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(self.capture.accumulator(Begin::AnyRow))
    }

    /// It is no aggregate of groups: there is nothing to merge.
    fn state_fields(&self, _: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(Vec::new())
    }

    /// The rows of a frame are the same from either end.
    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The accumulator of one partition of the window.
#[derive(Debug)]
struct Frames<S: Summarize> {
    capture: Arc<Capture>,
    tree: Tree<S>,
    /// Spent, and not reported yet.
    ticks: u64,
    calls: u64,
}

impl<S: Summarize> Frames<S> {
    fn new(capture: Arc<Capture>, tree: Tree<S>) -> Self {
        Self {
            capture,
            tree,
            ticks: 0,
            calls: 0,
        }
    }

    fn timed<T>(&mut self, work: impl FnOnce(&mut Tree<S>) -> T) -> T {
        let began = Ticks::now();
        let done = work(&mut self.tree);
        self.ticks += Ticks::now().since(began);
        self.calls += 1;
        if self.calls.is_multiple_of(1024) {
            self.report();
        }
        done
    }

    /// Says what has been spent, on which a budget depends while the query runs.
    fn report(&mut self) {
        let recorder = &self.capture.recorder;
        let ns = recorder.scale().ns(std::mem::take(&mut self.ticks));
        recorder.overhead(Duration::from_nanos(ns.unsigned_abs()));
    }
}

impl<S: Summarize> Accumulator for Frames<S> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.timed(|tree| tree.extend(values))
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, Array::len);
        self.timed(|tree| tree.retract(rows))
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.timed(|tree| S::value(tree.frame()?))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.tree.memory()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        not_impl_err!("frames of rows have no state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        not_impl_err!("frames of rows are not merged")
    }
}

impl<S: Summarize> Drop for Frames<S> {
    fn drop(&mut self) {
        self.timed(Tree::finish);
        self.report();
    }
}
