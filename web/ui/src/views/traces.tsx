// Calls over time: for each task one row per depth of its operators, the whole run above, the shown range below.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { fitted, hatch, useWidth, type Surface } from '../canvas';
import { category } from '../colour';
import { useView, type Row } from '../data';
import { count, duration, plural, share } from '../format';
import { Choice, Panel, Tip } from '../panel';
import { title, useQuery, type Query } from '../query';
import { hovered, search, select, selection, setSearch, type Range } from '../state';
import { binsFor, Caveats, hasCalls, useBins, workerName, type Task } from './overview';
import {
  dimmed, drawBrush, drawPlanning, drawTicks, fragments, fragmentTitle, LEFT, lookOf, RIGHT, scale, ScrollCanvas, Strip, TimeAxis, TimeTools,
  useAnswered, usePointer, useTime,
} from './time';

interface Call extends Row { worker_id: number; partition: number; operator_id: number; at_ns: number; width_ns: number; busy_ns: number; calls: number; rows: number; whole: boolean }
interface Arrow extends Row { source_worker: number; destination_worker: number; partition: number; sent_ns: number; used_ns: number | null; used_partition: number | null; tuples: number; bytes: number; total: number }

const ROW = 15;
const GAP = 7;
const HEAD = 22;
/** About so many rows are asked for at most. */
const MOST = 20_000;

/** A task: its place, and the calls of each depth in order of time. */
interface Lane {
  task: Task;
  y: number;
  depth: number;
  key: string;
}
interface Group {
  name: string;
  y: number;
  lanes: Lane[];
}
/** The calls of a task at one depth, as columns. */
interface Calls {
  calls: Call[];
  at: Float64Array;
  end: Float64Array;
  /** The longest call, so that a search from the left finds what reaches into the picture. */
  longest: number;
}

const keyOf = (fragment: number, worker: number, partition: number) => `${fragment}/${worker}/${partition}`;

function byLane(query: Query, rows: Call[], depths: ReadonlyMap<number, number>): Map<string, Calls[]> {
  const lists = new Map<string, Call[][]>();
  for (const row of rows) {
    const key = keyOf(query.byId.get(row.operator_id)?.fragment_id ?? -1, row.worker_id, row.partition);
    let lane = lists.get(key);
    if (!lane) lists.set(key, (lane = []));
    (lane[depths.get(row.operator_id) ?? 0] ??= []).push(row);
  }
  const lanes = new Map<string, Calls[]>();
  for (const [key, list] of lists) {
    lanes.set(key, Array.from(list, (calls = []) => {
      calls.sort((a, b) => a.at_ns - b.at_ns);
      return {
        calls, at: Float64Array.from(calls, (call) => call.at_ns), end: Float64Array.from(calls, (call) => call.at_ns + call.width_ns),
        longest: calls.reduce((most, call) => Math.max(most, call.width_ns), 0),
      };
    }));
  }
  return lanes;
}

/** The first that is not before `ns`. */
function lowerBound(values: Float64Array, ns: number): number {
  let [low, high] = [0, values.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < ns) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function Traces(): JSX.Element {
  const query = useQuery();
  if (!hasCalls(query)) return <NoCalls query={query} />;
  return <WithCalls query={query} />;
}

function NoCalls({ query }: { query: Query }): JSX.Element {
  return (
    <Panel id="traces" title="Calls over time" views={[]}>
      <p class="message">
        Level {query.info.profile_level} records no single calls. Run <code>EXPLAIN PROFILE QUERY {query.id}</code>, or <code>SET profile.level = 'calls'</code> before
        the statement. <button type="button" onClick={() => setSearch({ tab: 'overview' })}>Show the work over time instead</button>
      </p>
    </Panel>
  );
}

function WithCalls({ query }: { query: Query }): JSX.Element {
  const time = useTime(query);
  const [element, width] = useWidth();
  const tip = useSignal<{ x: number; y: number; lane: Lane; call: Call | undefined; ns: number } | undefined>(undefined);
  const by = search.value['lanes'] === 'fragment' ? 'fragment' : 'worker';
  const only = search.value['only'] === '1';
  const parts = useMemo(() => fragments(query), [query]);
  const depths = useMemo(() => new Map([...parts.values()].flat().map(({ row, depth }) => [row.operator_id, depth])), [parts]);
  const tasks = useView<Task>('tasks', { query_id: query.id });

  // Half a picture more on both sides, so that moving shows calls at once. Many lanes get fewer, wider bins.
  const lines = useMemo(() => (tasks.rows ?? []).reduce((sum, task) => sum + (parts.get(task.fragment_id)?.length ?? 1), 0), [tasks.rows, parts]);
  const few = (tasks.rows ?? []).reduce((sum, task) => sum + task.calls, 0) <= MOST;
  const full = binsFor(width);
  const limited = (each: number) => (few ? full : Math.max(Math.min(full, Math.floor(MOST / each / 64) * 64), 128));
  const wholePx = limited(Math.max(lines, 1));
  const seen = useSignal(0);
  const px = limited(seen.value || Math.max(lines, 1));
  const span = time.asked[1] - time.asked[0];
  const lo = Math.round(Math.max(time.asked[0] - span / 2, 0));
  const hi = Math.round(Math.min(time.asked[1] + span / 2, query.info.end_ns));
  const ready = width > 0 && tasks.rows !== undefined;
  const whole = useView<Call>('traces', ready ? { query_id: query.id, px: wholePx, lo: 0, hi: query.info.end_ns } : undefined);
  const focus = useView<Call>('traces', ready ? { query_id: query.id, px: Math.max(Math.round((px * (hi - lo)) / span), 1), lo, hi } : undefined);
  const wholeAnswer = useAnswered(whole);
  const focusAnswer = useAnswered(focus);
  // How many rows a bin has is known once the whole run is there.
  if (wholeAnswer && !seen.peek()) seen.value = Math.max(wholeAnswer.rows.length / Number(wholeAnswer.params['px']), 1);
  const wholeLanes = useMemo(() => wholeAnswer && byLane(query, wholeAnswer.rows, depths), [query, wholeAnswer?.rows, depths]);
  const focusLanes = useMemo(() => focusAnswer && byLane(query, focusAnswer.rows, depths), [query, focusAnswer?.rows, depths]);
  const { whole: bins } = useBins(query, 'fragment', time.whole, width);

  const { operators, workers, partitions } = selection.value;
  const layout = useMemo(() => {
    const wanted = new Set([...operators].map((id) => query.byId.get(id)?.fragment_id));
    const kept = (tasks.rows ?? []).filter((task) => !only || (
      (wanted.size === 0 || wanted.has(task.fragment_id)) && (workers.size === 0 || workers.has(task.worker_id)) && (partitions.size === 0 || partitions.has(task.partition))));
    const groups = new Map<number, Task[]>();
    for (const task of kept) {
      const group = by === 'fragment' ? task.fragment_id : task.worker_id;
      groups.set(group, [...(groups.get(group) ?? []), task]);
    }
    // The busiest fragment first: nobody should have to scroll for it.
    const work = new Map<number, number>();
    for (const task of kept) work.set(task.fragment_id, (work.get(task.fragment_id) ?? 0) + task.work_ns);
    const busiest = (a: number, b: number) => work.get(b)! - work.get(a)! || a - b;
    let y = 0;
    const laid: Group[] = [...groups].sort((a, b) => (by === 'fragment' ? busiest(a[0], b[0]) : a[0] - b[0])).map(([id, tasks]) => {
      const group: Group = { name: by === 'fragment' ? `Fragment ${id}: ${fragmentTitle(parts.get(id) ?? [])}` : workerName(id), y, lanes: [] };
      y += HEAD;
      tasks.sort((a, b) => busiest(a.fragment_id, b.fragment_id) || a.worker_id - b.worker_id || a.partition - b.partition);
      for (const task of tasks) {
        const depth = Math.max(...(parts.get(task.fragment_id) ?? []).map((part) => part.depth), 0) + 1;
        group.lanes.push({ task, y, depth, key: keyOf(task.fragment_id, task.worker_id, task.partition) });
        y += depth * ROW + GAP;
      }
      return group;
    });
    return { groups: laid, lanes: laid.flatMap((group) => group.lanes), total: y };
  }, [tasks.rows, by, only, query, parts, ...(only ? [operators, workers, partitions] : [])]);

  // Batches of the selected exchange.
  const exchange = operators.size === 1 ? query.plan.find((row) => operators.has(row.operator_id) && row.kind === 'exchange') : undefined;
  const arrows = useView<Arrow>('arrows', exchange ? { query_id: query.id, exchange_id: exchange.operator_id, lo: Math.round(time.asked[0]), hi: Math.round(time.asked[1]) } : undefined);

  const covers = (params: Row | Record<string, unknown> | undefined): Range => [Number(params?.['lo'] ?? 0), Number(params?.['hi'] ?? 0)];
  const callAt = (lane: Lane, y: number, ns: number): Call | undefined => {
    const depth = Math.floor((y - lane.y) / ROW);
    const range = covers(focusAnswer?.params);
    const lists = ns >= range[0] && ns <= range[1] ? focusLanes : wholeLanes;
    const calls = lists?.get(lane.key)?.[depth];
    if (!calls) return undefined;
    // The narrowest of those that are there: half a pixel of patience finds thin ones.
    const patience = 1.5 / scale(time.shown, width).each;
    let found: Call | undefined;
    for (let i = lowerBound(calls.at, ns - calls.longest - patience); i < calls.at.length && calls.at[i]! <= ns + patience; i++) {
      if (calls.end[i]! >= ns - patience && (!found || calls.calls[i]!.width_ns <= found.width_ns)) found = calls.calls[i];
    }
    return found;
  };
  const laneAt = (y: number) => layout.lanes.find((lane) => y >= lane.y && y < lane.y + lane.depth * ROW);
  const pointer = usePointer(time, () => width, (x, y, event) => {
    const more = event.shiftKey || event.ctrlKey || event.metaKey;
    const lane = laneAt(y);
    if (!lane) return;
    if (x < LEFT) {
      select('workers', lane.task.worker_id, more);
      select('partitions', lane.task.partition, more);
      return;
    }
    const call = callAt(lane, y, scale(time.shown, width).ns(x));
    if (call) select('operators', call.operator_id, more);
  });

  const longest = useMemo(() => {
    let most: Call | undefined;
    for (const row of focusAnswer?.rows ?? []) if (row.whole && row.calls === 1 && row.width_ns > (most?.width_ns ?? 0)) most = row;
    return most;
  }, [focusAnswer?.rows]);
  const sentence = longest
    ? `The longest call took ${duration(longest.width_ns)}: ${title(query.byId.get(longest.operator_id)!)}, partition ${longest.partition} on ${workerName(longest.worker_id).toLowerCase()}`
    : `Calls of ${plural(layout.lanes.length, 'task')}`;
  const bin = focusAnswer?.rows.find((row) => !row.whole)?.width_ns;
  const error = Math.max(...(tasks.rows ?? []).map((task) => task.clock_error_ns ?? 0), 0);
  const totalArrows = arrows.rows?.[0]?.total ?? 0;

  return (
    <div ref={element}>
      <Panel
        id="traces" title="Calls over time" views={exchange ? [focus, tasks, arrows] : [focus, tasks]} empty="No call lies in this range. Show the whole run."
        tools={<>
          <Choice label="Group lanes" value={by} options={[['worker', 'By worker'], ['fragment', 'By fragment']]} onChange={(next) => setSearch({ lanes: next === 'worker' ? undefined : next })} />
          <button type="button" aria-pressed={only} title="Show only tasks of the selected operators, workers and partitions" onClick={() => setSearch({ only: only ? undefined : '1' })}>Only selected</button>
          <TimeTools time={time} />
        </>}
        note={<><b>{sentence}.</b> Each lane is a task, those of the busiest fragment first; below a call are the calls that it made. <Caveats query={query} calls="" /></>}
      >
        <Strip time={time} values={bins} what="Active tasks of the whole run" planning={query.info.execution_start_ns} />
        {layout.lanes.length === 0 && <p class="message">No task is selected. <button type="button" onClick={() => setSearch({ only: undefined })}>Show all tasks</button></p>}
        <div onDblClick={time.reset}>
          <ScrollCanvas
            total={Math.max(layout.total, 1)} most={Math.max(Math.round(innerHeight * 0.62), 280)} name="Lanes of tasks" label={sentence} cursor="crosshair"
            onPress={pointer.onPress} onRelease={pointer.onRelease} onWheel={pointer.onWheel}
            onMove={(x, y, event) => {
              const lane = pointer.move(x) ? undefined : laneAt(y);
              const ns = scale(time.shown, width).ns(x);
              const call = lane && x >= LEFT ? callAt(lane, y, ns) : undefined;
              tip.value = lane && (call || x < LEFT || nearClock(lane, ns)) ? { x: event.clientX, y: event.clientY, lane, call, ns } : undefined;
              if (call?.operator_id !== hovered.peek().operator) hovered.value = call ? { operator: call.operator_id, worker: lane!.task.worker_id, partition: lane!.task.partition } : {};
            }}
            onLeave={() => {
              tip.value = undefined;
              hovered.value = {};
            }}
            draw={(surface, top) => {
              const range = covers(focusAnswer?.params);
              draw(surface, top, {
                query, shown: time.shown, groups: layout.groups, wholeLanes, focusLanes, focusRange: focusAnswer ? range : undefined, brush: pointer.brush,
                planning: query.info.execution_start_ns, arrows: exchange && totalArrows <= 200 ? arrows.rows : undefined, exchange: exchange?.operator_id,
              });
            }}
          />
        </div>
        <TimeAxis range={time.shown} />
        <div class="key">
          <span><span class="box" style={{ background: category(0) }} aria-hidden="true" />a call</span>
          <span><span class="ramp" style={{ background: `linear-gradient(90deg, ${category(0)}20, ${category(0)})` }} aria-hidden="true" />calls shorter than {bin ? duration(bin) : 'a pixel'}: the share of time that they take, 0 to 100 %</span>
          {error > 0 && <span><span class="box hatch" aria-hidden="true" />a worker's clock may be off by this much, up to {duration(error)}: order across workers within it is not known</span>}
          {exchange && totalArrows > 0 && (totalArrows > 200
            ? <span class="warn">{count(totalArrows)} batches of {title(exchange)} in this range: zoom in to at most 200 to see them as arrows</span>
            : <span>→ {plural(totalArrows, 'batch', 'batches')} of {title(exchange)}, from sending to the first call that used it</span>)}
          {!exchange && query.plan.some((row) => row.kind === 'exchange') && <span>Select an exchange (orange) to see its batches as arrows.</span>}
        </div>
        <Tip at={tip.value}>{tip.value && <CallTip query={query} lane={tip.value.lane} call={tip.value.call} />}</Tip>
      </Panel>
    </div>
  );
}

function nearClock({ task }: Lane, ns: number): boolean {
  return Math.abs(ns - task.first_ns) <= (task.clock_error_ns ?? 0);
}

function CallTip({ query, lane: { task }, call }: { query: Query; lane: Lane; call: Call | undefined }): JSX.Element {
  const row = call && query.byId.get(call.operator_id);
  return (
    <>
      <b>{row ? title(row) : `Fragment ${task.fragment_id}`}</b>
      <dl>
        <dt>Task</dt><dd>fragment {task.fragment_id}, partition {task.partition}, {workerName(task.worker_id).toLowerCase()}</dd>
        {call?.whole && call.calls === 1 && <>
          <dt>From, to</dt><dd>{duration(call.at_ns)}, {duration(call.at_ns + call.width_ns)}</dd>
          <dt>Took</dt><dd>{duration(call.width_ns)}</dd>
          <dt>Rows</dt><dd>{call.rows ? count(call.rows) : 'none: not ready, or the end'}</dd>
        </>}
        {call && !(call.whole && call.calls === 1) && <>
          <dt>At</dt><dd>{duration(call.at_ns)}, {duration(call.width_ns)} wide</dd>
          <dt>Short calls</dt><dd>{call.calls ? `${plural(call.calls, 'call')} began here` : 'one that began just before'}</dd>
          <dt>Busy</dt><dd>{duration(call.busy_ns)} ({share(call.busy_ns / call.width_ns)})</dd>
          <dt>Rows</dt><dd>{count(call.rows)}</dd>
        </>}
        {!call && <>
          <dt>From, to</dt><dd>{duration(task.first_ns)}, {duration(task.last_ns)}</dd>
          <dt>Work</dt><dd>{duration(task.work_ns)}</dd>
        </>}
        {!!task.clock_error_ns && <><dt>Clock</dt><dd>± {duration(task.clock_error_ns)} against other workers</dd></>}
      </dl>
    </>
  );
}

interface Scene {
  query: Query;
  shown: Range;
  groups: Group[];
  wholeLanes: Map<string, Calls[]> | undefined;
  focusLanes: Map<string, Calls[]> | undefined;
  focusRange: Range | undefined;
  brush: Range | undefined;
  planning: number;
  arrows: Arrow[] | undefined;
  exchange: number | undefined;
}

function draw(surface: Surface, top: number, scene: Scene): void {
  const { context, width, height, ink } = surface;
  const { query, shown, groups } = scene;
  const right = width - RIGHT;
  const { x } = scale(shown, width);
  drawTicks(surface, shown);
  drawPlanning(surface, shown, scene.planning, height);
  const { operators, workers, partitions } = selection.value;
  const lit = hovered.value.operator;
  const looks = new Map(query.plan.map((row) => {
    const n = lookOf(query, row.operator_id);
    const on = lit !== undefined ? lit === row.operator_id || operators.has(row.operator_id) : operators.size === 0 || operators.has(row.operator_id);
    return [row.operator_id, { n, colour: category(n), dark: isDark(category(n)), name: title(row), on: dimmed(on) }];
  }));
  const visible = (y: number, tall: number) => y + tall > top && y < top + height;

  context.save();
  context.beginPath();
  context.rect(LEFT, 0, right - LEFT, height);
  context.clip();
  const [low, high] = scene.focusRange ?? [0, 0];
  // The shown range, and what is left of it and right of it in the resolution of the whole run.
  const pieces: [Map<string, Calls[]> | undefined, Range][] = [[scene.focusLanes, [Math.max(low, shown[0]), Math.min(high, shown[1])]]];
  if (shown[0] < low || shown[1] > high) {
    pieces.push([scene.wholeLanes, [shown[0], Math.min(low, shown[1])]], [scene.wholeLanes, [Math.max(high, shown[0]), shown[1]]]);
  }
  for (const [lanes, [from, to]] of pieces) {
    if (!lanes || to <= from) continue;
    const clipped = pieces.length > 1;
    if (clipped) {
      context.save();
      context.beginPath();
      context.rect(x(from), 0, x(to) - x(from), height);
      context.clip();
    }
    for (const group of groups) {
      for (const lane of group.lanes) {
        if (!visible(lane.y, lane.depth * ROW)) continue;
        const on = (workers.size === 0 || workers.has(lane.task.worker_id)) && (partitions.size === 0 || partitions.has(lane.task.partition)) ? 1 : 0.3;
        lanes.get(lane.key)?.forEach((calls, depth) => {
          if (calls) drawCalls(context, calls, from, to, x, lane.y - top + depth * ROW, on, looks, LEFT, right, ink.panel);
        });
      }
    }
    if (clipped) context.restore();
  }
  // What is not known for sure: the worker's clock against the others'.
  for (const group of groups) {
    for (const lane of group.lanes) {
      const error = lane.task.clock_error_ns ?? 0;
      if (!error || !visible(lane.y, lane.depth * ROW)) continue;
      const [a, b] = [Math.max(x(lane.task.first_ns - error), LEFT), Math.min(x(lane.task.first_ns + error), right)];
      if (b - a > 1) hatch(context, a, lane.y - top, b - a, lane.depth * ROW - 1, ink.faint, 5);
    }
  }
  if (scene.arrows) drawArrows(surface, top, scene, x);
  context.restore();

  for (const group of groups) {
    const y = group.y - top;
    if (visible(group.y, HEAD)) {
      context.fillStyle = ink.text;
      context.font = '600 12px system-ui, sans-serif';
      context.fillText(fitted(context, group.name, width), 0, y + HEAD - 9);
    }
    context.font = '11px system-ui, sans-serif';
    for (const lane of group.lanes) {
      if (!visible(lane.y, lane.depth * ROW)) continue;
      const { task } = lane;
      context.fillStyle = ink.faint;
      context.fillText(search.value['lanes'] === 'fragment' ? `w${task.worker_id} p${task.partition}` : `f${task.fragment_id} p${task.partition}`, 6, lane.y - top + ROW / 2);
      context.fillStyle = ink.line;
      context.fillRect(LEFT, lane.y - top + lane.depth * ROW + 2, right - LEFT, 1);
    }
  }
  drawBrush(surface, shown, scene.brush);
}

/** Whether white text reads on it. */
function isDark(colour: string): boolean {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return r! * 0.299 + g! * 0.587 + b! * 0.114 < 120;
}

function drawCalls(
  context: CanvasRenderingContext2D, { calls, at, end, longest }: Calls, from: number, to: number, x: (ns: number) => number, y: number, on: number,
  looks: ReadonlyMap<number, { n: number; colour: string; dark: boolean; name: string; on: number }>, left: number, right: number, ground: string,
): void {
  const tall = ROW - 1;
  let last = -1;
  let look = looks.get(calls[0]?.operator_id ?? -1);
  for (let i = lowerBound(at, from - longest); i < at.length && at[i]! < to; i++) {
    if (end[i]! <= from) continue;
    const call = calls[i]!;
    if (call.operator_id !== last) {
      last = call.operator_id;
      look = looks.get(last);
      if (look) context.fillStyle = look.colour;
    }
    if (!look) continue;
    // Whole pixels are crisp, and drawn several times as fast. Neighbours share their edge.
    const start = Math.round(Math.max(x(at[i]!), left - 2));
    const wide = Math.max(Math.round(Math.min(x(end[i]!), right + 2)) - start, 1);
    const one = call.whole && call.calls === 1;
    if (one) {
      context.globalAlpha = look.on * on;
      context.fillRect(start, y, wide > 3 ? wide - 1 : wide, tall);
      if (wide > 16) {
        const [a, b] = [Math.max(start, left), Math.min(start + wide, right)];
        if (look.n >= 8) hatch(context, a, y, b - a, tall, ground, 6);
        if (b - a > 34) {
          context.font = '11px system-ui, sans-serif';
          const text = fitted(context, look.name, b - a - 8);
          context.fillStyle = look.dark ? '#fff' : '#111';
          if (look.n >= 8 && text) {
            context.fillStyle = look.colour;
            context.fillRect(a + 2, y, context.measureText(text).width + 6, tall);
            context.fillStyle = look.dark ? '#fff' : '#111';
          }
          context.fillText(text, a + 5, y + tall / 2 + 0.5);
          context.fillStyle = look.colour;
        }
      }
    } else {
      // A column as dark as the share of it that is busy.
      context.globalAlpha = (0.12 + 0.88 * Math.min(call.busy_ns / call.width_ns, 1)) * look.on * on;
      context.fillRect(start, y, wide, tall);
    }
  }
  context.globalAlpha = 1;
}

/** From the lanes of the worker that sent to the lane that used the batch. */
function drawArrows({ context, ink }: Surface, top: number, { query, groups, arrows, exchange }: Scene, x: (ns: number) => number): void {
  const receiver = query.byId.get(exchange!);
  const senders = new Set(query.childrenOf(exchange!).map((row) => row.fragment_id));
  const lanes = groups.flatMap((group) => group.lanes);
  const gathers = /Coalesce|Merge/.test(receiver?.name ?? '');
  context.strokeStyle = context.fillStyle = ink.text;
  context.lineWidth = 1;
  for (const arrow of arrows!) {
    const targets = lanes.filter((lane) => lane.task.fragment_id === receiver?.fragment_id && lane.task.worker_id === arrow.destination_worker);
    const target = targets.find((lane) => lane.task.partition === (arrow.used_partition ?? arrow.partition)) ?? targets[0];
    const sources = lanes.filter((lane) => senders.has(lane.task.fragment_id) && lane.task.worker_id === arrow.source_worker);
    if (!target || !sources.length) continue;
    // Which task of the worker sent it is known only where rows are gathered: there `partition` counts its tasks.
    const source = (gathers ? sources[arrow.partition] : undefined) ?? sources[target.y > sources[0]!.y ? sources.length - 1 : 0]!;
    const down = target.y > source.y;
    const [x1, x2] = [x(arrow.sent_ns), x(arrow.used_ns ?? arrow.sent_ns)];
    const y1 = source.y - top + (down ? source.depth * ROW : 0);
    const y2 = target.y - top + (down ? 0 : target.depth * ROW);
    context.globalAlpha = 0.75;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
    context.stroke();
    const tip = down ? -5 : 5;
    context.beginPath();
    context.moveTo(x2, y2);
    context.lineTo(x2 - 3, y2 + tip);
    context.lineTo(x2 + 3, y2 + tip);
    context.fill();
  }
  context.globalAlpha = 1;
}
