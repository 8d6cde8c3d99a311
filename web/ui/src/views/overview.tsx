// Work over time: small multiples of active tasks, metrics of the workers beneath, and the tasks of a fragment.
import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { Canvas, hatch, useAnimatedRange, useWidth, type Surface } from '../canvas';
import { category } from '../colour';
import { useView, type Row, type View } from '../data';
import { count, duration, plural, share, times } from '../format';
import { byOrder, isLane, isNotable, labelOfMetric, limitOf, nameOfMetric, reading } from '../metrics';
import { Choice, Panel, Tip } from '../panel';
import { title, useQuery, type PlanRow, type Query } from '../query';
import { hovered, search, select, selection, setSearch, type Range } from '../state';
import {
  dimmed, drawBrush, drawPlanning, drawTicks, fragments, fragmentTitle, LEFT, lookOf, RIGHT, scale, ScrollCanvas, Strip, Swatch, TimeAxis,
  TimeTools, useAnswered, usePointer, useTime, type Time,
} from './time';

type By = 'fragment' | 'operator' | 'worker';

/** Own time per bin of each layer of each panel. */
export interface Bins {
  from: number;
  width: number;
  length: number;
  panels: Map<number, Map<number, Float64Array>>;
  sums: Float64Array;
}

interface Activity extends Row { panel: number; layer: number; bin: number; at_ns: number; width_ns: number; active_ns: number; open_calls: number }
interface Spread extends Row { panel: number; layer: number; at_ns: number; width_ns: number; self_ns: number }
interface Reading extends Row { metric: string; worker_id: number; at_ns: number; width_ns: number; low: number; mean: number; high: number; last_at_ns: number; readings: number }
export interface Task extends Row {
  fragment_id: number; worker_id: number; partition: number; first_ns: number; last_ns: number;
  work_ns: number; cpu_ns: number | null; ready_ns: number | null; throttled_ns: number | null; blocked_ns: number | null; off_ns: number | null; involuntary_switches: number | null; output_wait_ns: number | null; input_wait_ns: number | null; rows_out: number | null; calls: number; clock_error_ns: number | null;
}

function sumUp(bins: Omit<Bins, 'sums'>): Bins {
  const sums = new Float64Array(bins.length);
  for (const layers of bins.panels.values()) for (const layer of layers.values()) for (let i = 0; i < layer.length; i++) sums[i]! += layer[i]!;
  return { ...bins, sums };
}

/** Fills the gaps between rows, and takes the time of the operators below from each operator's. */
function ownTime(query: Query, by: By, rows: Activity[], px: number): Bins | undefined {
  if (!rows[0]) return undefined;
  const width = rows[0].width_ns;
  const from = rows[0].at_ns - rows[0].bin * width;
  const active = new Map<number, Map<number, Float64Array>>();
  const open = { panel: NaN, layer: NaN, bin: 0, calls: 0 };
  let line = new Float64Array(px);
  for (const row of rows) {
    if (row.panel !== open.panel || row.layer !== open.layer) {
      line = new Float64Array(px);
      const panel = active.get(row.panel) ?? new Map<number, Float64Array>();
      active.set(row.panel, panel.set(row.layer, line));
    } else if (open.calls > 0) line.fill(open.calls * width, open.bin + 1, row.bin);
    if (row.bin < px) line[row.bin] = row.active_ns;
    [open.panel, open.layer, open.bin, open.calls] = [row.panel, row.layer, row.bin, row.open_calls];
  }
  const panels = new Map<number, Map<number, Float64Array>>();
  for (const [panel, layers] of active) {
    const own = new Map<number, Float64Array>();
    for (const [layer, line] of layers) {
      const operator = by === 'operator' ? panel : layer;
      const rest = line.slice();
      for (const child of query.childrenOf(operator)) {
        if (child.fragment_id !== query.byId.get(operator)?.fragment_id) continue;
        const below = by === 'operator' ? active.get(child.operator_id)?.get(layer) : layers.get(child.operator_id);
        if (below) for (let i = 0; i < px; i++) rest[i]! -= below[i]!;
      }
      for (let i = 0; i < px; i++) rest[i] = Math.max(rest[i]!, 0);
      own.set(layer, rest);
    }
    panels.set(panel, own);
  }
  return sumUp({ from, width, length: px, panels });
}

/** Spreads amounts evenly over their time. */
function spread(rows: Spread[], [from, to]: Range, px: number): Bins {
  const width = Math.max((to - from) / px, 1);
  const panels = new Map<number, Map<number, Float64Array>>();
  for (const row of rows) {
    const panel = panels.get(row.panel) ?? new Map<number, Float64Array>();
    panels.set(row.panel, panel);
    const line = panel.get(row.layer) ?? new Float64Array(px);
    panel.set(row.layer, line);
    const density = row.self_ns / Math.max(row.width_ns, 1);
    const [start, end] = [Math.max(row.at_ns - from, 0), Math.min(row.at_ns + Math.max(row.width_ns, 1) - from, to - from)];
    for (let bin = Math.floor(start / width); bin < px && bin * width < end; bin++) {
      line[bin]! += density * (Math.min(end, (bin + 1) * width) - Math.max(start, bin * width));
    }
  }
  return sumUp({ from, width, length: px, panels });
}

/** Bins that fit a width, in steps, so that resizing a little asks for nothing. */
export const binsFor = (width: number) => Math.min(Math.max(Math.ceil(Math.max(width - LEFT - RIGHT, 1) / 64) * 64, 128), 2048);

/** Whether calls were recorded one by one. */
export const hasCalls = (query: Query) => query.info.profile_level === 'calls' || query.info.profile_level === 'records';

/** From so many calls on, their sums in parts of the time are drawn: these are kept at all levels but `off`. */
const MANY_CALLS = 1_500_000;

/** Whether a query has too many calls to read one by one each time that the page is zoomed. */
export const hasManyCalls = (query: Query) => query.plan.reduce((sum, row) => sum + Number(row.calls ?? 0), 0) > MANY_CALLS;

/** The own time of all operators over time: in the whole run, and in the range that is asked for. */
export function useBins(query: Query, by: By, asked: Range, width: number) {
  const calls = hasCalls(query) && !hasManyCalls(query);
  const px = binsFor(width);
  const whole = useView<Activity>('activity', calls && width ? { query_id: query.id, by, px, lo: 0, hi: query.info.end_ns } : undefined);
  const focus = useView<Activity>('activity', calls && width ? { query_id: query.id, by, px, lo: Math.round(asked[0]), hi: Math.round(asked[1]) } : undefined);
  const timeline = useView<Spread>('timeline', calls ? undefined : { query_id: query.id, by });
  // Versions that kept no timelines recorded only when a task began and ended.
  const lacks = timeline.rows?.length === 0;
  const density = useView<Spread>('density', lacks ? { query_id: query.id, by } : undefined);
  const even = lacks ? density : timeline;
  const wholeAnswer = useAnswered(whole);
  const focusAnswer = useAnswered(focus);
  const wholeBins = useMemo(() => {
    if (!calls) return even.rows && spread(even.rows, [0, query.info.end_ns], px);
    return wholeAnswer && ownTime(query, (wholeAnswer.params['by'] ?? by) as By, wholeAnswer.rows, Number(wholeAnswer.params['px']));
  }, [query, wholeAnswer?.rows, even.rows, px]);
  const focusBins = useMemo(() => {
    if (!calls) return even.rows && spread(even.rows, asked, px);
    return focusAnswer && ownTime(query, (focusAnswer.params['by'] ?? by) as By, focusAnswer.rows, Number(focusAnswer.params['px']));
  }, [query, focusAnswer?.rows, even.rows, px, ...(calls ? [] : asked)]);
  return { whole: wholeBins, focus: focusBins, view: calls ? focus : even, isEven: !calls && lacks, isBinned: !calls && !lacks };
}

/** What a reader must know before trusting a drawing over time. */
export function Caveats({ query, calls }: { query: Query; calls: string }): JSX.Element | null {
  const { info } = query;
  const said: ComponentChildren[] = [];
  if (info.profile_level === 'counters') {
    said.push(<>{calls} Run <code>EXPLAIN PROFILE QUERY {info.query_id}</code>, or <code>SET profile.level = 'calls'</code> before the statement.</>);
  }
  if (info.status !== 'finished') said.push(<>The statement {info.status === 'failed' ? 'failed' : 'was cancelled'}: this is its work until then.</>);
  if (info.events_dropped > 0) said.push(<><b class="warn">Incomplete:</b> {plural(info.events_dropped, 'event')} did not fit into <code>profile.memory_bytes</code>.</>);
  if (info.lost_workers) said.push(<><b class="warn">Incomplete:</b> what worker {info.lost_workers} recorded is lost.</>);
  return said.length ? <>{said.map((part, i) => <span key={i}>{i ? ' ' : ''}{part}</span>)}</> : null;
}

const TALL = 58;

export function Overview(): JSX.Element {
  const query = useQuery();
  const time = useTime(query);
  const [element, width] = useWidth();
  const by = (['operator', 'worker'] as const).find((name) => name === search.value['by']) ?? 'fragment';
  const { whole, focus, view, isEven, isBinned } = useBins(query, by, time.asked, width);
  const order = useMemo(() => [...fragments(query).values()].flat().map(({ row }) => row.operator_id), [query]);
  const tasks = useView<Task>('tasks', { query_id: query.id });
  const finding = useMemo(() => {
    if (!focus) return undefined;
    let [all, most, which] = [0, -1, 0];
    for (const [id, layers] of focus.panels) {
      let work = 0;
      for (const line of layers.values()) work += line.reduce((a, b) => a + b, 0);
      all += work;
      if (work > most) [most, which] = [work, id];
    }
    return all > 0 && focus.panels.size > 1 ? `${nameOf(query, by, which)} did ${share(most / all)} of the work: ${duration(most)} of ${duration(all)}` : undefined;
  }, [focus]);
  const none = query.info.profile_level === 'off' || query.plan.length === 0;
  return (
    <div ref={element}>
      <Panel
        id="activity" title="Work over time" views={none ? [] : [view]}
        tools={<>
          <Choice label="One panel for each" value={by} options={[['fragment', 'Fragment'], ['operator', 'Operator'], ['worker', 'Worker']]}
            onChange={(next) => setSearch({ by: next === 'fragment' ? undefined : next })} />
          <TimeTools time={time} />
        </>}
        note={none ? undefined : <>
          {finding && <><b>{finding}.</b> </>}Tasks that work at the same time, also while they wait for a processor, by {by === 'operator' ? 'worker' : 'operator'}; all panels have the same scales. {isBinned && <>Work is summed in parts of {duration(Math.max(...(view.rows as Spread[] | undefined ?? []).map((row) => row.width_ns), 0))} at most. </>}<Caveats query={query} calls={isEven ? "The time of each call is not known: each task's work is spread evenly between its first and its last call." : 'Single calls are not known.'} />
        </>}
        empty="No operator was called."
      >
        {none
          ? <p class="message">Level off records no work. Use <code>SET profile.level = 'calls'</code>, or <code>EXPLAIN PROFILE QUERY {query.id}</code>.</p>
          : <>
            <Strip time={time} values={whole} what="Active tasks of the whole run" planning={query.info.execution_start_ns} />
            <Multiples query={query} time={time} by={by} whole={whole} focus={focus} order={order} width={width} tasks={tasks.rows ?? []} />
            <Metrics query={query} time={time} width={width} />
          </>}
      </Panel>
      {!none && <Stragglers query={query} time={time} view={tasks} />}
    </div>
  );
}

const plain = (top: number) => String(Number(top.toPrecision(2)));

/** What a panel is. */
function nameOf(query: Query, by: By, id: number): string {
  const row = query.byId.get(id);
  return by === 'fragment' ? `Fragment ${id}` : by === 'worker' ? workerName(id) : row ? `${id} ${title(row)}` : '';
}

export function nice(most: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 1e-9)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= most * 0.999)!;
}

function Multiples({ query, time, by, whole, focus, order, width, tasks }: {
  query: Query; time: Time; by: By; whole: Bins | undefined; focus: Bins | undefined; order: number[]; width: number; tasks: Task[];
}): JSX.Element {
  const parts = useMemo(() => fragments(query), [query]);
  // The scale fits every panel. Without motion it jumps.
  const most = useMemo(() => {
    let most = 0;
    for (const layers of focus?.panels.values() ?? []) {
      const sums = new Float64Array(focus!.length);
      for (const line of layers.values()) for (let i = 0; i < line.length; i++) sums[i]! += line[i]!;
      most = Math.max(most, sums.reduce((a, b) => Math.max(a, b), 0) / focus!.width);
    }
    return nice(Math.max(most, 0.01));
  }, [focus]);
  const [, top] = useAnimatedRange([0, most]);
  const ids = by === 'fragment' ? [...parts.keys()].sort((a, b) => a - b)
    : by === 'operator' ? order
      : [...new Set(tasks.map((task) => task.worker_id))].sort((a, b) => a - b);
  const workers = [...new Set(tasks.map((task) => task.worker_id))].sort((a, b) => a - b);
  const layerOrder = by === 'operator' ? workers : [...order].reverse();
  return (
    <>
      {by === 'operator' && <Layers kind="workers" rows={workers.map((id) => ({ id, n: id, name: workerName(id) }))} />}
      {by === 'worker' && <Layers kind="operators" rows={order.map((id) => ({ id, n: lookOf(query, id), name: title(query.byId.get(id)!) }))} />}
      {ids.map((id) => (
        <Multiple key={`${by}${id}`} query={query} time={time} by={by} id={id} whole={whole} focus={focus} top={top} order={layerOrder} rows={parts.get(id) ?? []}
          width={width} tasks={by === 'fragment' ? tasks.filter((task) => task.fragment_id === id).length : by === 'worker' ? tasks.filter((task) => task.worker_id === id).length : query.byId.get(id)?.tasks ?? 0} />
      ))}
      <TimeAxis range={time.shown} />
    </>
  );
}

export const workerName = (id: number) => (id === 0 ? 'Master' : `Worker ${id}`);

/** What the colours mean; a click selects it. */
export function Layers({ kind, rows }: { kind: 'operators' | 'workers'; rows: { id: number; n: number; name: string }[] }): JSX.Element {
  return (
    <span class="layers">
      {rows.map(({ id, n, name }) => (
        <button key={id} type="button" aria-pressed={selection.value[kind].has(id)} title={`Select ${name}`}
          onClick={(event) => select(kind, id, event.shiftKey || event.ctrlKey || event.metaKey)}
          onPointerEnter={() => (hovered.value = kind === 'operators' ? { operator: id } : { worker: id })} onPointerLeave={() => (hovered.value = {})}>
          <Swatch n={n} /><span class="name">{name}</span>
        </button>
      ))}
    </span>
  );
}

function Multiple({ query, time, by, id, whole, focus, top, order, rows, width, tasks }: {
  query: Query; time: Time; by: By; id: number; whole: Bins | undefined; focus: Bins | undefined; top: number; order: number[];
  rows: { row: PlanRow; depth: number }[]; width: number; tasks: number;
}): JSX.Element {
  const tip = useSignal<{ x: number; y: number; ns: number; layer: number | undefined } | undefined>(undefined);
  const colourOf = (layer: number) => (by === 'operator' ? layer : lookOf(query, layer));
  const layers = focus?.panels.get(id);
  const ordered = order.filter((layer) => layers?.has(layer) || whole?.panels.get(id)?.has(layer));
  const layerAt = (x: number, y: number) => {
    const ns = scale(time.shown, width).ns(x);
    if (!focus) return { ns, layer: undefined };
    const bin = Math.floor((ns - focus.from) / focus.width);
    let floor = TALL - 1;
    for (const layer of ordered) {
      floor -= ((layers?.get(layer)?.[bin] ?? 0) / focus.width / top) * (TALL - 6);
      if (y >= floor) return { ns, layer };
    }
    return { ns, layer: undefined };
  };
  const choose = (layer: number, event: PointerEvent) =>
    select(by === 'operator' ? 'workers' : 'operators', layer, event.shiftKey || event.ctrlKey || event.metaKey);
  const pointer = usePointer(time, () => width, (x, y, event) => {
    const { layer } = layerAt(x, y);
    if (layer !== undefined) choose(layer, event);
  });
  const isOn = (layer: number) => {
    const { operators, workers } = selection.value;
    const lit = hovered.value;
    const [operator, worker] = by === 'operator' ? [id, layer] : by === 'worker' ? [layer, id] : [layer, undefined];
    if (lit.operator !== undefined && by !== 'operator') return lit.operator === operator;
    return (operators.size === 0 || operators.has(operator)) && (worker === undefined || workers.size === 0 || workers.has(worker));
  };
  const summary = useMemo(() => {
    let [work, peak, at] = [0, 0, 0];
    if (focus && layers) {
      for (let i = 0; i < focus.length; i++) {
        let sum = 0;
        for (const line of layers.values()) sum += line[i]!;
        work += sum;
        if (sum > peak) [peak, at] = [sum, focus.from + i * focus.width];
      }
      peak /= focus.width;
    }
    return { work, peak, at };
  }, [focus, layers]);
  const name = nameOf(query, by, id);
  const pressed = by === 'operator' ? selection.value.operators.has(id) : by === 'worker' ? selection.value.workers.has(id) : undefined;
  const sentence = `${name}: ${duration(summary.work)} of work in ${plural(tasks, 'task')}; at most ${summary.peak.toFixed(1)} work at once, at ${duration(summary.at)}`;
  return (
    <div class="multiple" onDblClick={time.reset}>
      <div class="head">
        {pressed === undefined
          ? <h3>{name}</h3>
          : <button type="button" class="choose" aria-pressed={pressed} onClick={(event) => select(by === 'operator' ? 'operators' : 'workers', id, event.shiftKey || event.ctrlKey)}>{name}</button>}
        <span class="faint">{plural(tasks, 'task')}, {duration(summary.work)} of work</span>
        {by === 'fragment' && <Layers kind="operators" rows={rows.map(({ row }) => ({ id: row.operator_id, n: lookOf(query, row.operator_id), name: title(row) }))} />}
      </div>
      <Canvas
        height={TALL} label={sentence} cursor="crosshair"
        draw={(surface) => drawMultiple(surface, time, ordered, top, [whole, focus], id, colourOf, isOn, query.info.execution_start_ns, pointer.brush)}
        onPress={pointer.onPress} onRelease={pointer.onRelease} onWheel={pointer.onWheel}
        onMove={(x, y, event) => {
          if (pointer.move(x) || x < LEFT) {
            tip.value = undefined;
            return;
          }
          const found = layerAt(x, y);
          tip.value = { x: event.clientX, y: event.clientY, ...found };
          const lit = found.layer === undefined ? {} : by === 'operator' ? { operator: id, worker: found.layer } : by === 'worker' ? { operator: found.layer, worker: id } : { operator: found.layer };
          if (lit.operator !== hovered.peek().operator || lit.worker !== hovered.peek().worker) hovered.value = lit;
        }}
        onLeave={() => {
          tip.value = undefined;
          hovered.value = {};
        }}
      />
      <Tip at={tip.value}>{tip.value && focus && <MultipleTip name={name} bins={focus} layers={layers} ns={tip.value.ns} order={ordered}
        nameOf={(layer) => (by === 'operator' ? workerName(layer) : title(query.byId.get(layer)!))} colourOf={colourOf} lit={tip.value.layer} />}</Tip>
    </div>
  );
}

function MultipleTip({ name, bins, layers, ns, order, nameOf, colourOf, lit }: {
  name: string; bins: Bins; layers: Map<number, Float64Array> | undefined; ns: number; order: number[];
  nameOf: (layer: number) => string; colourOf: (layer: number) => number; lit: number | undefined;
}): JSX.Element {
  const bin = Math.floor((ns - bins.from) / bins.width);
  const rows = order.map((layer) => ({ layer, amount: (layers?.get(layer)?.[bin] ?? 0) / bins.width })).filter((row) => row.amount > 0).reverse();
  const from = bins.from + bin * bins.width;
  return (
    <>
      <b>{name}</b> at {duration(from)} <span class="faint">({duration(bins.width)} wide)</span>
      <dl>
        {rows.slice(0, 10).map(({ layer, amount }) => [
          <dt key={`t${layer}`}><Swatch n={colourOf(layer)} /> {layer === lit ? <b>{nameOf(layer)}</b> : nameOf(layer)}</dt>,
          <dd key={`d${layer}`}>{amount.toFixed(2)} tasks</dd>,
        ])}
        {rows.length === 0 && <><dt>Nothing works</dt><dd /></>}
      </dl>
    </>
  );
}

function drawMultiple(
  surface: Surface, time: Time, order: number[], top: number, [whole, focus]: [Bins | undefined, Bins | undefined], id: number,
  colourOf: (layer: number) => number, isOn: (layer: number) => boolean, planning: number, brush: Range | undefined,
): void {
  const { context, width, height, ink } = surface;
  const right = width - RIGHT;
  const { x } = scale(time.shown, width);
  const tall = height - 6;
  drawTicks(surface, time.shown);
  drawPlanning(surface, time.shown, planning, height - 1);
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, right - LEFT, height);
  context.clip();
  // The whole run in its own resolution wherever the range has not arrived yet.
  const [a, b] = focus ? [x(focus.from), x(focus.from + focus.length * focus.width)] : [right, right];
  if (whole && focus && whole !== focus && (a > LEFT + 1 || b < right - 1)) {
    for (const [from, to] of [[LEFT, a], [b, right]] as const) {
      if (to - from < 1) continue;
      context.save();
      context.beginPath();
      context.rect(from, 0, to - from, height);
      context.clip();
      areas(context, whole, order, id, x, height - 1, tall / top, colourOf, isOn, LEFT, right, ink.panel);
      context.restore();
    }
  }
  if (focus) areas(context, focus, order, id, x, height - 1, tall / top, colourOf, isOn, LEFT, right, ink.panel);
  context.restore();
  context.fillStyle = ink.faint;
  context.fillRect(LEFT, height - 1, right - LEFT, 1);
  context.fillStyle = ink.line;
  context.fillRect(LEFT, 6, right - LEFT, 1);
  context.fillStyle = ink.faint;
  context.font = '11px system-ui, sans-serif';
  context.textAlign = 'right';
  context.fillText(plain(top), LEFT - 6, 8);
  context.fillText('0', LEFT - 6, height - 6);
  context.textAlign = 'left';
  drawBrush(surface, time.shown, brush);
}

/** Stacks the layers from the bottom, in steps: a bin is a mean, nothing is smoothed. */
function areas(
  context: CanvasRenderingContext2D, bins: Bins, order: number[], id: number, x: (ns: number) => number, floor: number, each: number,
  colourOf: (layer: number) => number, isOn: (layer: number) => boolean, left: number, right: number, ground: string,
): void {
  const layers = bins.panels.get(id);
  if (!layers) return;
  const step = x(bins.width) - x(0);
  const start = x(bins.from);
  const first = Math.max(Math.floor((left - start) / step), 0);
  const last = Math.min(Math.ceil((right - start) / step), bins.length);
  if (last <= first) return;
  const low = new Float64Array(last - first);
  for (const layer of order) {
    const line = layers.get(layer);
    if (!line) continue;
    const n = colourOf(layer);
    context.globalAlpha = dimmed(isOn(layer));
    context.fillStyle = category(n);
    const clip = n >= 8 ? new Path2D() : undefined;
    for (let i = first; i < last;) {
      // Equal neighbours are one rectangle; one by one they are several times as fast as in one path.
      const [amount, base] = [line[i]! / bins.width, low[i - first]!];
      const from = i;
      do low[i++ - first] = base + amount;
      while (i < last && line[i] === line[from] && low[i - first] === base);
      if (amount === 0) continue;
      const at = Math.round(start + from * step);
      const box = [at, floor - (base + amount) * each, Math.max(Math.round(start + i * step) - at, 1), amount * each] as const;
      context.fillRect(...box);
      clip?.rect(...box);
    }
    if (clip) {
      context.save();
      context.clip(clip);
      hatch(context, left, 0, right - left, floor, ground, 4);
      context.restore();
    }
    context.globalAlpha = 1;
  }
}

const AROUND = 2.5e9;

function Metrics({ query, time, width }: { query: Query; time: Time; width: number }): JSX.Element | null {
  const lo = Math.max(Math.round(time.asked[0] - AROUND), 0);
  const hi = Math.round(time.asked[1] + AROUND);
  const view = useView<Reading>('metric_lanes', width ? { query_id: query.id, lo, hi } : undefined);
  const lanes = useMemo(() => {
    const lanes = new Map<string, Map<number, Reading[]>>();
    for (const row of view.rows ?? []) {
      const lane = lanes.get(row.metric) ?? new Map<number, Reading[]>();
      lanes.set(row.metric, lane.set(row.worker_id, [...(lane.get(row.worker_id) ?? []), row]));
    }
    return lanes;
  }, [view.rows]);
  if (view.rows?.length === 0) return <p class="message">Nothing was read of the workers' processors and memory while the statement ran.</p>;
  const workers = [...new Set([...lanes.values()].flatMap((lane) => [...lane.keys()]))].sort((a, b) => a - b);
  const highest = (metric: string) => Math.max(...[...lanes.get(metric)!.values()].flat().map((row) => row.high));
  const drawn = [...lanes.keys()].filter(isLane).sort(byOrder);
  const first = drawn.filter((metric) => isNotable(metric, highest(metric)));
  const more = drawn.length - first.length;
  const all = search.value['readings'] === 'all';
  return (
    <div class="metrics">
      <div class="multiple"><div class="head"><h3>Workers</h3><span class="faint">one reading a second and one at the end{lanes.size > 0 && !lanes.has('cpu_share') ? '; too short for a reading of the processors' : ''}</span>
        <Layers kind="workers" rows={workers.map((id) => ({ id, n: id, name: workerName(id) }))} />
        {more > 0 && <button type="button" aria-pressed={all} onClick={() => setSearch({ readings: all ? undefined : 'all' })}>{all ? 'Fewer readings' : `${plural(more, 'more reading')}`}</button>}</div></div>
      {(all ? drawn : first).map((metric) => <Lane key={metric} metric={metric} lane={lanes.get(metric)!} limits={lanes.get(limitOf(metric) ?? '')} time={time} width={width} />)}
    </div>
  );
}

function Lane({ metric, lane: read, limits, time, width }: {
  metric: string; lane: Map<number, Reading[]>; limits: Map<number, Reading[]> | undefined; time: Time; width: number;
}): JSX.Element {
  const tip = useSignal<{ x: number; y: number; ns: number } | undefined>(undefined);
  const name = nameOfMetric(metric);
  const text = (value: number) => reading(metric, value);
  const limitOn = (worker: number) => Math.max(...(limits?.get(worker) ?? []).map((row) => row.high)) || 0;
  // Clocks of two readings differ a little: no more cores are busy than there are.
  const lane = useMemo(() => new Map([...read].map(([worker, rows]) => {
    const most = metric === 'cpu_share' && limitOn(worker) > 0 ? limitOn(worker) : Infinity;
    return [worker, rows.map((row) => ({ ...row, low: Math.min(row.low, most), mean: Math.min(row.mean, most), high: Math.min(row.high, most) }))] as const;
  })), [read, limits]);
  const all = [...lane.values()].flat();
  const most = all.reduce((most, row) => Math.max(most, row.high), 0);
  const bound = Math.max(0, ...[...lane.keys()].map(limitOn).filter((limit) => limit > 0 && limit <= 4 * most));
  const top = metric.includes('bytes') ? Math.max(most * 1.1, bound) || 1 : Math.max(nice(Math.max(most, 0.01)), bound);
  const busiest = [...lane].map(([id, rows]) => [id, Math.max(...rows.map((row) => row.high))] as const).sort((a, b) => b[1] - a[1])[0];
  const isOn = (worker: number) => (hovered.value.worker === undefined
    ? selection.value.workers.size === 0 || selection.value.workers.has(worker) : hovered.value.worker === worker);
  const sentence = busiest ? `${name}: highest on ${workerName(busiest[0])} with ${text(busiest[1])}${limitOn(busiest[0]) > 0 ? ` of ${text(limitOn(busiest[0]))}` : ''}` : name;
  const pointer = usePointer(time, () => width);
  return (
    <div class="multiple" onDblClick={time.reset}>
      <Canvas
        height={44} label={sentence} cursor="crosshair" onPress={pointer.onPress} onRelease={pointer.onRelease} onWheel={pointer.onWheel}
        onMove={(x, _, event) => (tip.value = pointer.move(x) || x < LEFT ? undefined : { x: event.clientX, y: event.clientY, ns: scale(time.shown, width).ns(x) })}
        onLeave={() => (tip.value = undefined)}
        draw={(surface) => {
          const { context, height, ink } = surface;
          const { x } = scale(time.shown, surface.width);
          const right = surface.width - RIGHT;
          // The last reading is a moment after the end.
          const moment = (ns: number) => x(Math.min(ns, time.whole[1])) - (ns >= time.whole[1] ? 2 : 0);
          const y = (value: number) => height - 1 - (value / top) * (height - 8);
          drawTicks(surface, time.shown);
          if (bound > 0) {
            context.fillStyle = ink.faint;
            for (let at = LEFT; at < right; at += 8) context.fillRect(at, y(bound), 4, 1);
          }
          context.save();
          context.beginPath();
          context.rect(LEFT, 0, right - LEFT, height);
          context.clip();
          for (const [worker, rows] of lane) {
            context.globalAlpha = dimmed(isOn(worker));
            context.strokeStyle = context.fillStyle = category(worker);
            context.lineWidth = 1.75;
            context.setLineDash(worker >= 8 ? [5, 3] : []);
            context.beginPath();
            rows.forEach((row, i) => {
              // A share is a mean since the reading before; an amount is one at its moment.
              const before = rows[i - 1]?.last_at_ns ?? 0;
              if (/_share$|_per_second$/.test(metric)) context.lineTo(x(before), y(row.mean));
              context.lineTo(moment(row.last_at_ns), y(row.mean));
            });
            context.stroke();
            context.setLineDash([]);
            for (const row of rows) {
              if (row.high > row.low) context.fillRect(x(row.at_ns), y(row.high), Math.max(x(row.width_ns) - x(0), 1), Math.max(y(row.low) - y(row.high), 1));
              else if (rows.length < 60) context.fillRect(moment(row.last_at_ns) - 2, y(row.mean) - 2, 4, 4);
            }
          }
          context.restore();
          context.globalAlpha = 1;
          context.fillStyle = ink.faint;
          context.fillRect(LEFT, height - 1, right - LEFT, 1);
          context.font = '11px system-ui, sans-serif';
          context.textAlign = 'right';
          context.fillText(metric.includes('bytes') ? text(top).replace('/s', '') : metric.startsWith('psi_') ? share(top) : plain(top), LEFT - 6, 8);
          context.fillText(labelOfMetric(metric), LEFT - 6, 23);
          context.fillText('0', LEFT - 6, height - 6);
          context.textAlign = 'left';
          drawBrush(surface, time.shown, pointer.brush);
        }}
      />
      <Tip at={tip.value}>{tip.value && <><b>{name}</b><dl>{[...lane].map(([worker, rows]) => {
        const row = rows.find((row) => row.last_at_ns >= tip.value!.ns) ?? rows[rows.length - 1]!;
        return [<dt key={`t${worker}`}><Swatch n={worker} /> {workerName(worker)}</dt>, <dd key={`d${worker}`}>{text(row.mean)}{row.readings > 1 ? ` (${text(row.low)} to ${text(row.high)})` : ''}</dd>];
      })}</dl></>}</Tip>
    </div>
  );
}

const BAR = 18;
/** Parts of a task's time: how they are called, their colour, and how far their lines are apart. */
const PARTS = [
  ['work', 'on a processor', 0, 0], ['ready', 'waits for a processor', 5, 4], ['throttled', 'throttled by its quota', 3, 3],
  ['blocked', 'blocked: disk, lock or page', 2, 6], ['off', 'without a processor', 5, 4], ['input', 'waits for input', 4, 5],
  ['output', 'waits for its output to be taken', 1, 3], ['rest', 'not called', 7, 0],
] as const;

/** What kept a task from a processor while it was called, in words. */
function kept(task: Task): string {
  const causes = [
    [task.ready_ns, 'waited for a processor'], [task.throttled_ns, 'was throttled by its quota'], [task.blocked_ns, 'was blocked'], [task.off_ns, 'was without a processor'],
  ] as const;
  const said = causes.filter(([ns]) => (ns ?? 0) > 0.1 * task.work_ns).map(([ns, what]) => `${what} for ${duration(ns)}`);
  return said.length ? `; it ${said.join(' and ')}` : '';
}

function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

function Stragglers({ query, time, view }: { query: Query; time: Time; view: View<Task> }): JSX.Element {
  const tip = useSignal<{ x: number; y: number; task: Task } | undefined>(undefined);
  const parts = useMemo(() => fragments(query), [query]);
  const rows = view.rows ?? [];
  // What the selected operators belong to; else where most of the work is.
  const chosen = [...selection.value.operators].map((id) => query.byId.get(id)?.fragment_id).find((id) => id !== undefined);
  const heaviest = useMemo(() => {
    const work = new Map<number, number>();
    for (const row of rows) work.set(row.fragment_id, (work.get(row.fragment_id) ?? 0) + row.work_ns);
    return [...work].sort((a, b) => b[1] - a[1])[0]?.[0] ?? 0;
  }, [rows]);
  const asked = search.value['f'];
  const fragment = asked !== undefined && parts.has(Number(asked)) ? Number(asked) : chosen ?? heaviest;
  const tasks = useMemo(() => rows.filter((row) => row.fragment_id === fragment).sort((a, b) => b.last_ns - a.last_ns), [rows, fragment]);
  const split = (task: Task) => {
    const wall = Math.max(task.last_ns - task.first_ns, 1);
    const busy = Math.min(task.work_ns, wall);
    const [ready, throttled, blocked, off] = [task.ready_ns ?? 0, task.throttled_ns ?? 0, task.blocked_ns ?? 0, task.off_ns ?? 0];
    const fits = Math.min(1, busy / Math.max(ready + throttled + blocked + off, 1));
    const output = Math.min(task.output_wait_ns ?? 0, wall - busy);
    const input = Math.min(task.input_wait_ns ?? 0, wall - busy - output);
    return {
      wall, work: busy - fits * (ready + throttled + blocked + off), ready: fits * ready, throttled: fits * throttled, blocked: fits * blocked, off: fits * off,
      input, output, rest: wall - busy - input - output,
    };
  };
  const last = tasks[0];
  const sentence = useMemo(() => {
    if (!last) return `Fragment ${fragment} has no tasks`;
    const name = `partition ${last.partition} on ${workerName(last.worker_id).toLowerCase()}`;
    if (tasks.length === 1) return `Fragment ${fragment} is one task, ${name}: ${duration(last.last_ns - last.first_ns)}, of which it was called for ${share(last.work_ns / Math.max(last.last_ns - last.first_ns, 1))}${kept(last)}`;
    const late = last.last_ns - median(tasks.map((task) => task.last_ns));
    const usual = median(tasks.map((task) => task.work_ns));
    return `The last of ${tasks.length} tasks of fragment ${fragment}, ${name}, ended ${duration(late)} after the median task and was called for ${duration(last.work_ns)}${usual > 0 ? `, ${times(last.work_ns / usual)} the median` : ''}${kept(last)}`;
  }, [tasks]);
  const isOn = (task: Task) => {
    const { workers, partitions } = selection.value;
    return (workers.size === 0 || workers.has(task.worker_id)) && (partitions.size === 0 || partitions.has(task.partition));
  };
  // Systems and versions that do not tell what a thread waited for.
  const isUnsplit = tasks.every((task) => task.ready_ns === null);
  const taskAt = (y: number) => tasks[Math.floor(y / BAR)];
  return (
    <Panel
      id="stragglers" title="Tasks of a fragment" views={[view]} empty="No task was recorded."
      tools={<select aria-label="Fragment" value={String(fragment)} onChange={(event) => setSearch({ f: event.currentTarget.value })}>
        {[...parts.keys()].sort((a, b) => a - b).map((id) => <option key={id} value={String(id)}>Fragment {id}: {fragmentTitle(parts.get(id)!)}</option>)}
      </select>}
      note={<><b>{sentence}.</b> The latest is on top. The parts of a bar are sums, not in the order of time.</>}
    >
      <ScrollCanvas
          total={Math.max(tasks.length, 1) * BAR} most={BAR * 24} name="Tasks" label={sentence} cursor="pointer"
          onPress={(_, y, event) => {
            const task = taskAt(y);
            if (!task) return;
            const more = event.shiftKey || event.ctrlKey || event.metaKey;
            select('workers', task.worker_id, more);
            select('partitions', task.partition, more);
          }}
          onMove={(_, y, event) => {
            const task = taskAt(y);
            tip.value = task && { x: event.clientX, y: event.clientY, task };
          }}
          onLeave={() => (tip.value = undefined)}
          draw={(surface, top) => {
            const { context, height, ink } = surface;
            const { x } = scale(time.whole, surface.width);
            const right = surface.width - RIGHT;
            drawTicks(surface, time.whole);
            context.font = '11px system-ui, sans-serif';
            for (let i = Math.floor(top / BAR); i < Math.min(Math.ceil((top + height) / BAR), tasks.length); i++) {
              const task = tasks[i]!;
              const y = i * BAR - top;
              const parts = split(task);
              context.globalAlpha = isOn(task) ? 1 : 0.35;
              context.fillStyle = ink.text;
              context.fillText(`w${task.worker_id} p${task.partition}`, 0, y + BAR / 2);
              context.save();
              context.beginPath();
              context.rect(LEFT, y, right - LEFT, BAR);
              context.clip();
              let at = task.first_ns;
              for (const [key, , n, gap] of PARTS) {
                const [from, to] = [x(at), x(at + parts[key])];
                at += parts[key];
                if (to <= LEFT || from >= right || to - from < 0.05) continue;
                context.fillStyle = category(n);
                if (key === 'work') context.fillRect(from, y + 2, to - from, BAR - 4);
                else if (key === 'rest') context.fillRect(from, y + BAR / 2 - 1, to - from, 2);
                else {
                  context.globalAlpha *= 0.35;
                  context.fillRect(from, y + 4, to - from, BAR - 8);
                  context.globalAlpha = isOn(task) ? 1 : 0.35;
                  hatch(context, Math.max(from, LEFT), y + 4, Math.min(to, right) - Math.max(from, LEFT), BAR - 8, category(n), gap);
                }
              }
              context.restore();
            }
            context.globalAlpha = 1;
            drawBrush(surface, time.whole, time.isWhole ? undefined : time.shown);
          }}
        />
      <TimeAxis range={time.whole} />
      <div class="key">
        {PARTS.filter(([key]) => (key === 'off' ? isUnsplit : !isUnsplit || !['ready', 'throttled', 'blocked'].includes(key))).map(([key, name, n]) => <span key={key}><span class={`box part-${key}`} style={{ '--colour': category(n) }} aria-hidden="true" />{name}</span>)}
      </div>
      <Tip at={tip.value}>{tip.value && (() => {
        const { task } = tip.value;
        const parts = split(task);
        return <><b>Partition {task.partition} on {workerName(task.worker_id).toLowerCase()}</b><dl>
          <dt>From, to</dt><dd>{duration(task.first_ns)}, {duration(task.last_ns)}</dd>
          <dt>Wall time of calls</dt><dd>{duration(task.work_ns)}</dd><dt>Processor time</dt><dd>{duration(task.cpu_ns)}</dd>
          {PARTS.filter(([key]) => parts[key] > 0).map(([key, name]) => [<dt key={`t${key}`}>{name}</dt>, <dd key={`d${key}`}>{duration(parts[key])} ({share(parts[key] / parts.wall)})</dd>])}
          <dt>Rows out</dt><dd>{count(task.rows_out)}</dd>
        </dl></>;
      })()}</Tip>
    </Panel>
  );
}
