//! Collects the events of one query.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::HashMap;
use datafusion::common::hash_map::Entry;
use parking_lot::Mutex;
use skewer_machine::readings::Counters;

use crate::chunks::{LatencyChunk, LineageChunk, MAX_RECORDS, OutputChunk};
use crate::definition::{Origin, SysRow};
use crate::edges::{Edges, EdgesOf, PendingEdges};
use crate::level::Level;
use crate::lineage_mode::LineageMode;
use crate::metrics;
use crate::query_log::QueryLog;
use crate::sampling::Sampling;
use crate::store::Store;
use crate::sys_tables::SysTables;
use crate::tables::{
    Fragment, ImpactfulSource, KeyFrequency, MicroBatch, Operator, OperatorCall, OperatorMetric,
    OperatorStats, ProfilerOverhead, RemedyRun, RunningOperator, TaskStats, TuplesSent,
    WorkerMetric, WorkerRow,
};
use crate::ticks::Scale;
use crate::timeline::{RecordedTimeline, TimelineStart};

/// What the events of one query may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecorderLimits {
    /// Bytes in memory after which chunks of events are dropped, and counted.
    pub memory_bytes: usize,
    /// Bytes of chunks of records after which they are handed to schema `sys`, which writes them,
    /// while the query runs.
    pub spill_bytes: usize,
    /// The share of the query's time that recording may take, above 0: fewer records are traced
    /// when it takes more. `None`: as long as it takes.
    pub time_share: Option<f64>,
}

impl Default for RecorderLimits {
    /// 64 MiB are handed over: some 12 million edges of lineage at their usual size. 1 GiB, should
    /// they not be written as fast as they come.
    fn default() -> Self {
        RecorderLimits {
            memory_bytes: 1 << 30,
            spill_bytes: 64 << 20,
            time_share: None,
        }
    }
}

/// Collects the events of one query on one worker. The first worker's has those of the others.
///
/// A stream keeps a buffer of its own and hands it over when it is full or at its end: that
/// takes a lock for as long as it takes to move one pointer. Nothing here is called per row.
///
/// Records that take more than a limit are handed to schema `sys` while the query runs. Events
/// beyond the limits are dropped and counted in `sys.profiler_overhead`, except the few rows that
/// describe the plan.
#[derive(Debug)]
pub struct Recorder {
    query_id: i64,
    worker_id: i64,
    level: Level,
    /// Set before the query is planned: plans say themselves what they do.
    piggyback: AtomicBool,
    /// Shared by all workers of this process.
    sampling: Arc<Sampling>,
    limits: RecorderLimits,
    memory: AtomicUsize,
    /// The most that it was.
    peak: AtomicUsize,
    /// Of `memory`, the chunks of records.
    chunks: AtomicUsize,
    /// Where chunks of records go while the query runs.
    spill: OnceLock<Weak<Store>>,
    /// Bytes of them that have gone.
    spilled: AtomicUsize,
    dropped: AtomicU64,
    overhead_ns: AtomicU64,
    given_up: Mutex<Option<String>>,
    /// Processor time at the start, at levels that read it.
    started: Option<Counters>,
    finished: AtomicBool,
    events: Mutex<Events>,
    /// The streams that have not ended, by their numbers.
    unfinished: Mutex<HashMap<u64, Arc<dyn UnfinishedStream>>>,
    /// Edges that wait for others of their kind.
    pending: Mutex<PendingEdges>,
    /// The recorders of other workers of this process.
    workers: Mutex<Vec<Arc<Recorder>>>,
    /// Held by what has something to hand over.
    streams: OpenStream,
    /// Set when it is first asked for.
    scale: OnceLock<Scale>,
    /// Where the bins of all timelines begin. Shared by all workers of this process.
    timeline_start: Arc<OnceLock<TimelineStart>>,
}

/// Held for as long as a stream of an operator may hand something over.
#[derive(Debug, Clone, Default)]
pub struct OpenStream(Arc<()>);

/// A stream of an operator that has not ended, of which others may ask what it did so far.
pub trait UnfinishedStream: std::fmt::Debug + Send + Sync {
    /// What it did in its calls, with the part of the call under way that is over.
    fn so_far(&self, scale: Scale) -> StreamRecord;

    /// Of that the totals.
    fn stats_so_far(&self, scale: Scale) -> OperatorStats;
}

/// What a stream of an operator did.
#[derive(Debug, Clone)]
pub struct StreamRecord {
    /// The totals of its calls.
    pub stats: OperatorStats,
    /// When it worked.
    pub timeline: Option<RecordedTimeline>,
    /// What its task did, if the operator is the topmost one of the task.
    pub task: Option<TaskStats>,
}

impl From<OperatorStats> for StreamRecord {
    fn from(stats: OperatorStats) -> Self {
        Self {
            stats,
            timeline: None,
            task: None,
        }
    }
}

/// Timelines of an operator's runs in one partition are added up when there are so many: a recursive query may
/// run it very often.
const RUNS_KEPT: usize = 32;

/// Adds the timeline of another run; the bytes that this takes in addition.
fn add_run(runs: &mut Vec<RecordedTimeline>, timeline: RecordedTimeline) -> usize {
    let bytes =
        |runs: &[RecordedTimeline]| -> usize { runs.iter().map(RecordedTimeline::memory).sum() };
    let before = bytes(runs);
    runs.push(timeline);
    if runs.len() >= RUNS_KEPT {
        *runs = RecordedTimeline::sum(runs).into_iter().collect();
    }
    bytes(runs).saturating_sub(before)
}

/// The events of a query, in the order in which they were handed over.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) operator_stats: Vec<OperatorStats>,
    /// Where in them those of a fragment's operator and partition are.
    tasks: HashMap<(i64, i64, i64), usize>,
    /// When the operators worked, in the order of `operator_stats`; of several runs until they are added up.
    pub(crate) timelines: Vec<Vec<RecordedTimeline>>,
    pub(crate) task_stats: Vec<TaskStats>,
    /// Where in them those of a fragment and partition are.
    task_places: HashMap<(i64, i64), usize>,
    pub(crate) operator_metrics: Vec<OperatorMetric>,
    /// Where in them those of an operator, a partition and a name are.
    metric_places: HashMap<(i64, Option<i64>, String), usize>,
    pub(crate) operator_calls: Vec<Vec<OperatorCall>>,
    pub(crate) tuples_sent: Vec<Vec<TuplesSent>>,
    pub(crate) lineage: Vec<LineageChunk>,
    pub(crate) record_latency: Vec<LatencyChunk>,
    pub(crate) output_records: Vec<OutputChunk>,
    pub(crate) impactful_sources: Vec<ImpactfulSource>,
    pub(crate) key_frequencies: Vec<KeyFrequency>,
    pub(crate) remedy_runs: Vec<RemedyRun>,
    /// The micro-batch that the query is, if it is one.
    pub(crate) micro_batches: Vec<MicroBatch>,
    pub(crate) worker_metrics: Vec<WorkerMetric>,
    /// Workers in processes of their own.
    pub(crate) workers: Vec<WorkerRow>,
}

impl Events {
    /// Adds what an operator did in a partition to what it did there before, if it ran several times; the bytes
    /// that this takes in addition.
    fn add_stream(&mut self, stream: StreamRecord) -> usize {
        let StreamRecord {
            stats,
            timeline,
            task,
        } = stream;
        let more = task.map_or(0, |task| self.add_task(task));
        let task = (stats.fragment_id, stats.operator_id, stats.partition);
        let bytes = match self.tasks.entry(task) {
            Entry::Vacant(new) => {
                new.insert(self.operator_stats.len());
                self.operator_stats.push(stats);
                let bytes = timeline.as_ref().map_or(0, RecordedTimeline::memory);
                self.timelines.push(timeline.into_iter().collect());
                bytes + size_of::<OperatorStats>() + size_of::<((i64, i64, i64), usize)>()
            }
            Entry::Occupied(known) => {
                let place = *known.get();
                self.operator_stats[place].add(&stats);
                let runs = &mut self.timelines[place];
                match timeline {
                    Some(timeline) => add_run(runs, timeline),
                    None => 0,
                }
            }
        };
        bytes + more
    }

    /// Adds what a task did; the bytes that this takes in addition.
    fn add_task(&mut self, task: TaskStats) -> usize {
        match self.task_places.entry((task.fragment_id, task.partition)) {
            Entry::Vacant(new) => {
                new.insert(self.task_stats.len());
                self.task_stats.push(task);
                size_of::<TaskStats>() + size_of::<((i64, i64), usize)>()
            }
            Entry::Occupied(known) => {
                self.task_stats[*known.get()].add(&task);
                0
            }
        }
    }

    /// Adds what an operator counted itself; the bytes that this takes in addition.
    fn add_metric(&mut self, metric: OperatorMetric, sum: fn(i64, i64) -> i64) -> usize {
        let place = (metric.operator_id, metric.partition, metric.metric.clone());
        match self.metric_places.entry(place) {
            Entry::Vacant(new) => {
                new.insert(self.operator_metrics.len());
                let bytes = size_of::<OperatorMetric>() + 2 * metric.text_bytes();
                self.operator_metrics.push(metric);
                bytes + size_of::<((i64, Option<i64>, String), usize)>()
            }
            Entry::Occupied(known) => {
                let value = &mut self.operator_metrics[*known.get()].value;
                *value = sum(*value, metric.value);
                0
            }
        }
    }

    /// Adds up what operators did in several runs.
    fn add_up(&mut self) {
        for runs in self.timelines.iter_mut().filter(|runs| runs.len() > 1) {
            *runs = RecordedTimeline::sum(runs).into_iter().collect();
        }
    }

    /// Takes out the chunks of records.
    fn take_chunks(&mut self) -> Events {
        Events {
            lineage: std::mem::take(&mut self.lineage),
            record_latency: std::mem::take(&mut self.record_latency),
            output_records: std::mem::take(&mut self.output_records),
            ..Events::default()
        }
    }

    /// What the chunks of records take.
    fn chunk_bytes(&self) -> usize {
        let lineage = self.lineage.iter().map(LineageChunk::memory);
        let latencies = self.record_latency.iter().map(LatencyChunk::memory);
        let outputs = self.output_records.iter().map(OutputChunk::memory);
        lineage.chain(latencies).chain(outputs).sum()
    }

    /// Sets all times back by `offset_ns`, from the worker's clock to the master's. Each time column of
    /// `tables.rs` must be listed here.
    pub(crate) fn correct_times(&mut self, offset_ns: i64) {
        if offset_ns == 0 {
            return;
        }
        let back = |time: &mut i64| *time = time.saturating_sub(offset_ns);
        for stats in &mut self.operator_stats {
            let times = [&mut stats.first_call_at, &mut stats.last_call_at];
            times.into_iter().flatten().for_each(back);
        }
        for timeline in self.timelines.iter_mut().flatten() {
            timeline.set_back(offset_ns);
        }
        for task in &mut self.task_stats {
            back(&mut task.started_at);
            back(&mut task.ended_at);
        }
        for call in self.operator_calls.iter_mut().flatten() {
            back(&mut call.started_at);
            back(&mut call.ended_at);
        }
        for sent in self.tuples_sent.iter_mut().flatten() {
            sent.sent_at.iter_mut().for_each(back);
        }
        for metric in &mut self.worker_metrics {
            back(&mut metric.at);
        }
    }
}

/// The worker that plans a query and returns its rows; the only one of most embedded databases.
const FIRST_WORKER: i64 = 0;

impl Recorder {
    /// A recorder for the query, at a level. `sample_rate` is the share of base records that
    /// are traced, 0 to 1.
    pub fn new(
        query_id: i64,
        level: Level,
        sample_rate: f64,
        limits: RecorderLimits,
    ) -> Arc<Recorder> {
        Self::on_worker(FIRST_WORKER, query_id, level, sample_rate, limits)
    }

    /// A recorder for the part of the query that worker `worker_id` runs in a process of its own.
    pub fn on_worker(
        worker_id: i64,
        query_id: i64,
        level: Level,
        sample_rate: f64,
        limits: RecorderLimits,
    ) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder {
            query_id,
            worker_id,
            level,
            piggyback: AtomicBool::new(false),
            sampling: Arc::new(Sampling::new(sample_rate, limits.time_share)),
            limits,
            memory: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            spill: OnceLock::new(),
            spilled: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            overhead_ns: AtomicU64::new(0),
            given_up: Mutex::default(),
            started: (level > Level::Off).then(Counters::recent),
            finished: AtomicBool::new(false),
            events: Mutex::default(),
            unfinished: Mutex::default(),
            pending: Mutex::default(),
            workers: Mutex::default(),
            streams: OpenStream::default(),
            scale: OnceLock::new(),
            timeline_start: Arc::default(),
        });
        if level > Level::Off {
            metrics::watch(&recorder);
        }
        recorder
    }

    /// The recorder of a worker that runs tasks of the same query in this process: always the
    /// same for a number, and this one for its own. What it collects becomes readable together
    /// with the rest of the query.
    pub fn of_worker(self: &Arc<Self>, worker_id: i64) -> Arc<Recorder> {
        if worker_id == self.worker_id {
            return Arc::clone(self);
        }
        let mut workers = self.workers.lock();
        if let Some(worker) = workers.iter().find(|w| w.worker_id == worker_id) {
            return Arc::clone(worker);
        }
        let worker = Arc::new(Recorder {
            query_id: self.query_id,
            worker_id,
            level: self.level,
            piggyback: AtomicBool::new(self.piggyback.load(Ordering::Relaxed)),
            sampling: Arc::clone(&self.sampling),
            limits: self.limits,
            memory: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            chunks: AtomicUsize::new(0),
            spill: self.spill.clone(),
            spilled: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            overhead_ns: AtomicU64::new(0),
            given_up: Mutex::default(),
            // Readings of the process are told once.
            started: None,
            finished: AtomicBool::new(false),
            events: Mutex::default(),
            unfinished: Mutex::default(),
            pending: Mutex::default(),
            workers: Mutex::default(),
            streams: OpenStream::default(),
            scale: OnceLock::new(),
            timeline_start: Arc::clone(&self.timeline_start),
        });
        workers.push(Arc::clone(&worker));
        worker
    }

    /// How many hold this recorder, or one of its workers', besides the caller: operators that
    /// may still have something to hand over.
    pub fn holders(self: &Arc<Self>) -> usize {
        let workers = self.workers.lock();
        let of_workers = workers.iter().map(|w| Arc::strong_count(w) - 1);
        Arc::strong_count(self) - 1 + of_workers.sum::<usize>()
    }

    /// A stream begins that will hand something over.
    pub fn open_stream(&self) -> OpenStream {
        self.streams.clone()
    }

    /// How many streams may still have something to hand over. Plans hold recorders, too, and may
    /// be kept for longer than they run.
    pub fn open_streams(&self) -> usize {
        Arc::strong_count(&self.streams.0) - 1
    }

    /// A stream with a number begins. Its totals count even if it has not ended when the query does.
    pub fn stream_began(&self, number: u64, stream: Arc<dyn UnfinishedStream>) {
        self.unfinished.lock().insert(number, stream);
    }

    /// A stream has ended, and did this. It is not recorded if the query has ended before.
    pub fn stream_ended(&self, number: u64, record: StreamRecord) {
        let mut unfinished = self.unfinished.lock();
        if unfinished.remove(&number).is_some() {
            self.stream(record);
        }
    }

    /// Where the bins of all timelines of the query begin: when this was asked for first.
    pub fn timeline_start(&self) -> TimelineStart {
        *self.timeline_start.get_or_init(TimelineStart::now)
    }

    /// The execution of the query began at `wall_ns`, nanoseconds since 1970 by the master's clock: before anybody
    /// asks when it did.
    pub fn began_at(&self, wall_ns: i64) {
        self.timeline_start
            .get_or_init(|| TimelineStart::at_wall(wall_ns));
    }

    /// What ticks are in nanoseconds: the same for all events of the query on this worker.
    pub fn scale(&self) -> Scale {
        *self.scale.get_or_init(Scale::now)
    }

    /// The recorders of the other workers.
    pub(crate) fn workers(&self) -> Vec<Arc<Recorder>> {
        self.workers.lock().clone()
    }

    /// The query whose events these are.
    pub fn query_id(&self) -> i64 {
        self.query_id
    }

    /// The worker that records: 0 for the one that returns the query's rows.
    pub fn worker_id(&self) -> i64 {
        self.worker_id
    }

    /// How much is recorded.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Sets how level `records` keeps what it learns, before the query is planned.
    pub fn set_lineage_mode(&self, mode: LineageMode) {
        let piggyback = mode == LineageMode::Piggyback;
        self.piggyback.store(piggyback, Ordering::Relaxed);
    }

    /// How level `records` keeps what it learns.
    pub fn lineage_mode(&self) -> LineageMode {
        match self.piggyback.load(Ordering::Relaxed) {
            true => LineageMode::Piggyback,
            false => LineageMode::Log,
        }
    }

    /// Share of base records that are traced, 0 to 1; with a budget of time it may fall.
    pub fn sample_rate(&self) -> f64 {
        self.sampling.rate()
    }

    /// Which base records are traced.
    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// What the events may take.
    pub fn limits(&self) -> RecorderLimits {
        self.limits
    }

    /// Bytes that the events take.
    pub fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Number of events that were dropped since the memory limit was reached.
    pub fn events_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Records a fragment of the plan.
    pub fn fragment(&self, fragment: Fragment) {
        self.reserve(size_of::<Fragment>() + fragment.text_bytes());
        self.events.lock().fragments.push(fragment);
    }

    /// Records an operator of the plan.
    pub fn operator(&self, operator: Operator) {
        self.reserve(size_of::<Operator>() + operator.text_bytes());
        self.events.lock().operators.push(operator);
    }

    /// Records the totals of one operator and partition at the end of its stream. A recursive query
    /// runs its operators once in each iteration: what they did then adds up.
    pub fn operator_stats(&self, stats: OperatorStats) {
        self.stream(stats.into());
    }

    /// Records all that a stream of an operator did.
    pub fn stream(&self, record: StreamRecord) {
        let bytes = self.events.lock().add_stream(record);
        self.reserve(bytes);
    }

    /// Adds to the totals of a fragment's operator and partition what memory it took and what it
    /// spilled.
    pub fn operator_memory(&self, place: (i64, i64, i64), peak_bytes: i64, spilled_bytes: i64) {
        let events = &mut *self.events.lock();
        if let Some(place) = events.tasks.get(&place)
            && let Some(stats) = events.operator_stats.get_mut(*place)
        {
            stats.peak_memory_bytes = stats.peak_memory_bytes.max(peak_bytes);
            stats.spilled_bytes += spilled_bytes;
        }
    }

    /// Adds what operators counted themselves to what they counted before; `sum` tells how.
    pub fn operator_metrics(&self, metrics: Vec<OperatorMetric>, sum: fn(i64, i64) -> i64) {
        let mut events = self.events.lock();
        let bytes = metrics
            .into_iter()
            .map(|metric| events.add_metric(metric, sum))
            .sum();
        drop(events);
        self.reserve(bytes);
    }

    /// Rows of `sys.running_operators`: what the operators of the query did so far, on all workers of this
    /// process.
    pub fn running_operators(&self) -> Vec<RecordBatch> {
        let operators = self.events.lock().operators.clone();
        let own = self.running_on_worker(&operators);
        let others = self.workers().into_iter();
        let others = others.map(|worker| worker.running_on_worker(&operators));
        std::iter::once(own).chain(others).collect()
    }

    fn running_on_worker(&self, operators: &[Operator]) -> RecordBatch {
        let known: HashMap<i64, &Operator> = operators
            .iter()
            .map(|operator| (operator.operator_id, operator))
            .collect();
        let unfinished: Vec<Arc<dyn UnfinishedStream>> =
            self.unfinished.lock().values().map(Arc::clone).collect();
        // The query's own scale is taken as late as possible: it gets better.
        let scale = Scale::now();
        let mut tasks: HashMap<(i64, i64, i64), (OperatorStats, bool)> = HashMap::new();
        let mut add = |stats: OperatorStats, has_ended: bool| {
            let task = (stats.fragment_id, stats.operator_id, stats.partition);
            match tasks.entry(task) {
                Entry::Vacant(new) => {
                    new.insert((stats, has_ended));
                }
                Entry::Occupied(mut known) => {
                    let (sum, all_have_ended) = known.get_mut();
                    sum.add(&stats);
                    *all_have_ended &= has_ended;
                }
            }
        };
        for stats in self.events.lock().operator_stats.iter().cloned() {
            add(stats, true);
        }
        for stream in unfinished {
            add(stream.stats_so_far(scale), false);
        }
        let mut rows: Vec<RunningOperator> = tasks
            .into_values()
            .map(|(stats, has_ended)| {
                let operator = known.get(&stats.operator_id).copied();
                RunningOperator::of_stats(&stats, operator, has_ended)
            })
            .collect();
        rows.sort_by_key(|row| (row.operator_id, row.partition));
        RunningOperator::batch(&self.origin(), &rows)
    }

    /// What each partition of the operators of this process returned so far: the operator, and a number of rows.
    pub fn rows_returned(&self) -> Vec<(i64, u64)> {
        let events = self.events.lock();
        let stats = events.operator_stats.iter();
        let rows = |rows| u64::try_from(rows).unwrap_or_default();
        stats
            .map(|stats| (stats.operator_id, rows(stats.rows_out)))
            .collect()
    }

    /// Notes the relations of which operators have returned all rows.
    pub fn name_relations(&self, name: impl Fn(i64) -> Option<String>) {
        let mut bytes = 0;
        for operator in &mut self.events.lock().operators {
            operator.relation = name(operator.operator_id);
            bytes += operator.relation.as_ref().map_or(0, String::len);
        }
        self.reserve(bytes);
    }

    /// Takes over the calls that one stream has buffered.
    pub fn operator_calls(&self, calls: Vec<OperatorCall>) {
        let bytes = calls.capacity() * size_of::<OperatorCall>();
        if self.admit(calls.len(), bytes) {
            self.events.lock().operator_calls.push(calls);
        }
    }

    /// Takes over what one stream has buffered about batches that crossed an exchange.
    pub fn tuples_sent(&self, sent: Vec<TuplesSent>) {
        let bytes = sent.capacity() * size_of::<TuplesSent>();
        if self.admit(sent.len(), bytes) {
            self.events.lock().tuples_sent.push(sent);
        }
    }

    /// Takes over edges of lineage.
    ///
    /// # Panics
    /// In debug builds, if the chunk's columns differ in length.
    pub fn lineage(&self, chunk: LineageChunk) {
        debug_assert_eq!(chunk.output_ids.len(), chunk.input_ids.len());
        debug_assert_eq!(chunk.output_ids.len(), chunk.latency.len());
        let bytes = chunk.memory();
        if self.admit(chunk.len(), bytes) {
            self.keep_chunk(bytes, |events| events.lineage.push(chunk));
        }
    }

    /// Takes over edges that come a few at a time: they become a chunk with others of their kind.
    pub fn edges(&self, of: EdgesOf, edges: Edges) {
        self.reserve(edges.bytes());
        let most = self.limits.spill_bytes / 4;
        let ready = self.pending.lock().add(of, edges, most);
        self.seal(ready);
    }

    /// Makes chunks of edges that have waited for others.
    fn seal(&self, edges: HashMap<EdgesOf, Edges>) {
        for (of, edges) in edges {
            self.memory.fetch_sub(edges.bytes(), Ordering::Relaxed);
            self.lineage(edges.into_chunk(of));
        }
    }

    /// Takes over latencies of records.
    ///
    /// # Panics
    /// In debug builds, if the chunk's columns differ in length.
    pub fn record_latency(&self, chunk: LatencyChunk) {
        debug_assert_eq!(chunk.row_ids.len(), chunk.latency.len());
        let bytes = chunk.memory();
        if self.admit(chunk.len(), bytes) {
            self.keep_chunk(bytes, |events| events.record_latency.push(chunk));
        }
    }

    /// Takes over the records of result rows.
    ///
    /// # Panics
    /// In debug builds, if the chunk's columns differ in length.
    pub fn output_records(&self, chunk: OutputChunk) {
        debug_assert_eq!(chunk.record_ids.len(), chunk.latency.len());
        let bytes = chunk.memory();
        if self.admit(chunk.len(), bytes) {
            self.keep_chunk(bytes, |events| events.output_records.push(chunk));
        }
    }

    /// Takes over the sources of result rows, and how many result rows' sources were forgotten.
    pub fn impactful_sources(&self, sources: Vec<ImpactfulSource>, forgotten: u64) {
        let texts: usize = sources.iter().map(SysRow::text_bytes).sum();
        let bytes = sources.capacity() * size_of::<ImpactfulSource>() + texts;
        self.dropped.fetch_add(forgotten, Ordering::Relaxed);
        if self.admit(sources.len(), bytes) {
            self.events.lock().impactful_sources.extend(sources);
        }
    }

    /// Records a heavy key of an exchange.
    pub fn key_frequency(&self, key: KeyFrequency) {
        self.reserve(size_of::<KeyFrequency>() + key.text_bytes());
        self.events.lock().key_frequencies.push(key);
    }

    /// Records a remedy that was considered.
    pub fn remedy_run(&self, run: RemedyRun) {
        self.reserve(size_of::<RemedyRun>() + run.text_bytes());
        self.events.lock().remedy_runs.push(run);
    }

    /// Records that the query is a micro-batch.
    pub fn micro_batch(&self, batch: MicroBatch) {
        self.reserve(size_of::<MicroBatch>() + batch.text_bytes());
        self.events.lock().micro_batches.push(batch);
    }

    /// Records a reading of the process.
    pub fn worker_metric(&self, metric: WorkerMetric) {
        self.reserve(size_of::<WorkerMetric>() + metric.text_bytes());
        self.events.lock().worker_metrics.push(metric);
    }

    /// Records a worker that took part in a process of its own.
    pub(crate) fn worker(&self, worker: WorkerRow) {
        self.reserve(size_of::<WorkerRow>() + worker.text_bytes());
        self.events.lock().workers.push(worker);
    }

    /// Adds to the time that was spent on recording itself.
    pub fn overhead(&self, spent: Duration) {
        let ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
        self.overhead_ns.fetch_add(ns, Ordering::Relaxed);
        self.sampling.spend(spent);
    }

    /// The plan lacks these shortcuts, since every row has to be seen.
    pub fn set_disabled_optimizations(&self, shortcuts: &[&str]) {
        *self.given_up.lock() = Some(shortcuts.join(", ")).filter(|all| !all.is_empty());
    }

    /// What the rows of this query have in common.
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            query_id: self.query_id,
            worker_id: self.worker_id(),
            profile_level: self.level.name().to_owned(),
            sample_rate: self.sample_rate(),
            lineage: (self.level == Level::Records).then(|| self.lineage_mode().name().to_owned()),
        }
    }

    /// What recording cost so far.
    pub(crate) fn cost(&self) -> ProfilerOverhead {
        ProfilerOverhead {
            time_ns: as_i64(self.overhead_ns.load(Ordering::Relaxed)),
            peak_memory_bytes: as_i64(self.peak.load(Ordering::Relaxed) as u64),
            bytes_written: 0,
            events_dropped: as_i64(self.events_dropped()),
            sample_rate: Some(self.sample_rate()),
            given_up: self.given_up.lock().clone(),
        }
    }

    /// Whether the events have been taken out.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }

    /// Takes all events out; the memory stays counted.
    pub(crate) fn take(&self) -> Events {
        if let Some(started) = self.started
            && !self.finished.swap(true, Ordering::Relaxed)
        {
            metrics::finish(self, started);
        }
        let mut unfinished = self.unfinished.lock();
        for (_, stream) in unfinished.drain() {
            self.stream(stream.so_far(self.scale()));
        }
        drop(unfinished);
        let pending = self.pending.lock().take();
        self.seal(pending);
        let mut events = std::mem::take(&mut *self.events.lock());
        events.add_up();
        events
    }

    fn reserve(&self, bytes: usize) -> usize {
        let memory = self.memory.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(memory, Ordering::Relaxed);
        memory
    }

    /// From now on chunks of records that take more than the limit are handed to `sys`.
    pub fn spill_to(&self, sys: &SysTables) {
        // Of two, the first has what there is.
        let _ = self.spill.set(Arc::downgrade(sys.store()));
    }

    /// Whether chunks were handed over while the query ran.
    pub(crate) fn has_spilled(&self) -> bool {
        self.spilled.load(Ordering::Relaxed) > 0
    }

    /// Keeps a chunk of records of so many bytes, and hands all over if they are too many.
    fn keep_chunk(&self, bytes: usize, push: impl FnOnce(&mut Events)) {
        let chunks = self.chunks.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut events = self.events.lock();
        push(&mut events);
        if chunks < self.limits.spill_bytes {
            return;
        }
        let Some(store) = self.spill.get().and_then(Weak::upgrade) else {
            return;
        };
        // Written more slowly than they come, or so many that the log would forget the first of them:
        // they wait here, and count as this query's.
        let spilled = self.spilled.load(Ordering::Relaxed) as u64;
        if store.buffered_bytes() >= self.limits.memory_bytes / 2
            || spilled + chunks as u64 > store.retention().bytes / 2
        {
            return;
        }
        let spilled = events.take_chunks();
        drop(events);
        let bytes = spilled.chunk_bytes();
        self.chunks.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
        self.spilled.fetch_add(bytes, Ordering::Relaxed);
        store.push(vec![QueryLog::spilled(self, spilled, bytes)]);
    }

    /// Whether there is room for `events` events of together `bytes` bytes, at most as many as a
    /// chunk may have. If so they are
    /// counted as memory, if not as dropped.
    fn admit(&self, events: usize, bytes: usize) -> bool {
        if events == 0 {
            return false;
        }
        let room = self.reserve(bytes) <= self.limits.memory_bytes;
        if !room || events > MAX_RECORDS {
            self.memory.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(events as u64, Ordering::Relaxed);
            return false;
        }
        true
    }
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
