// Readings of all nodes up to now: a lane for each metric, a line for each node, and the queries that ran.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { Canvas, useWidth, type Surface } from '../canvas';
import { category } from '../colour';
import { useRows, useView, type View } from '../data';
import { duration } from '../format';
import { byOrder, isLane, isNotable, labelOfMetric, limitOf, nameOfMetric, reading } from '../metrics';
import { Choice, Panel, Tip } from '../panel';
import { hovered, search, selection, setSearch } from '../state';
import { Layers, nice } from '../views/overview';
import { dimmed, LEFT, RIGHT } from '../views/time';
import { ago, oneLine, ON_OPENING } from './running';
import { nameOf } from './strip';

/** A row of the view `node_metrics`. */
export interface Bin {
  worker_id: number;
  metric: string;
  at_ns: number;
  width_ns: number;
  low: number;
  mean: number;
  high: number;
}

interface Source { worker_id: number; metric: string; unit: string; source: string; is_available: boolean; reason: string | null }

interface Span { query_id: number; sql: string; status: string; start_ns: number; end_ns: number; ago_ns: number }

const SPANS = [['300', '5 minutes'], ['3600', 'Hour'], ['86400', 'Day']] as const;
/** How often to ask again, in milliseconds. */
const EVERY: Record<string, number> = { 300: 5000, 3600: 15_000, 86400: 60_000 };
const TALL = 44;
const SPAN = 15;
const STACK = 6;

type Lane = Map<number, Bin[]>;
const highest = (lane: Lane): [worker: number, value: number] =>
  [...lane].map(([worker, bins]) => [worker, Math.max(...bins.map((bin) => bin.high))] as [number, number]).reduce((a, b) => (b[1] > a[1] ? b : a), [0, -Infinity]);

const spanOf = () => SPANS.find(([value]) => value === search.value['span'])?.[0] ?? '300';

export function useReadings(): View<Bin> {
  const seconds = spanOf();
  return useView<Bin>('node_metrics', { seconds: Number(seconds) }, EVERY[seconds]);
}

/** The newest reading of a metric of a node. */
export function newest(view: View<Bin>, worker: number, metric: string): Bin | undefined {
  return view.rows?.filter((bin) => bin.worker_id === worker && bin.metric === metric).pop();
}

export function NodeReadings({ view, total }: { view: View<Bin>; total: number }): JSX.Element {
  const seconds = spanOf();
  const spans = useView<Span>('worker_spans', { queries: 100 }, ON_OPENING);
  const sources = useView<Source>('metric_sources', {}, ON_OPENING);
  const lanes = useRows(view, (rows) => {
    const lanes = new Map<string, Lane>();
    for (const row of rows) {
      const lane = lanes.get(row.metric) ?? new Map<number, Bin[]>();
      lanes.set(row.metric, lane);
      lane.set(row.worker_id, [...(lane.get(row.worker_id) ?? []), row]);
    }
    return lanes;
  }) ?? new Map<string, Lane>();
  const named = (id: number) => nameOf({ worker_id: id }, total);
  const ids = [...new Set([...lanes.values()].flatMap((lane) => [...lane.keys()]))].sort((a, b) => a - b);
  const metrics = [...lanes.keys()].filter(isLane).sort(byOrder);
  const drawn = metrics.filter((metric) => highest(lanes.get(metric)!)[1] > 0);
  const zero = metrics.filter((metric) => !drawn.includes(metric));
  const absent = new Map<string, { metrics: Set<string>; workers: Set<number> }>();
  for (const { metric, worker_id, is_available, reason } of sources.rows ?? []) {
    if (is_available) continue;
    const entry = absent.get(reason ?? 'not known') ?? { metrics: new Set(), workers: new Set() };
    absent.set(reason ?? 'not known', entry);
    entry.metrics.add(metric);
    entry.workers.add(worker_id);
  }
  const sentence = finding(lanes, drawn, named);
  return (
    <Panel
      id="metrics" class="readings" title="Readings" views={[view, spans, sources]}
      tools={<Choice label="Time" value={seconds} options={SPANS as readonly (readonly [string, string])[]} onChange={(next) => setSearch({ span: next === '300' ? undefined : next })} />}
      note={<><b>{sentence}</b> All nodes share each lane. Bars at the top are queries; click one to open it.</>}
      empty="Nothing has been read yet. Readings are taken once a second, and kept while the process runs."
    >
      <Layers kind="workers" rows={ids.map((id) => ({ id, n: id, name: named(id) }))} />
      <Drawn lanes={lanes} drawn={drawn} seconds={Number(seconds)} spans={spans} view={view} named={named} />
      {zero.length > 0 && <p class="faint zero">Always 0: {zero.map((metric) => nameOfMetric(metric)).join('; ')}.</p>}
      {absent.size > 0 && <details class="absent">
        <summary>{absentTitle(absent)}</summary>
        <ul>{[...absent].map(([reason, { metrics, workers }]) => (
          <li key={reason}>{[...metrics].join(', ')}{workers.size < ids.length && ` on ${[...workers].sort((a, b) => a - b).map(named).join(', ')}`}: {reason}.</li>
        ))}</ul>
      </details>}
    </Panel>
  );
}

function absentTitle(absent: Map<string, { metrics: Set<string> }>): string {
  const all = new Set([...absent.values()].flatMap(({ metrics }) => [...metrics]));
  return `${all.size === 1 ? 'One metric is' : `${all.size} metrics are`} not available, and why`;
}

/** What is conspicuous, else who was busiest. */
function finding(lanes: Map<string, Lane>, drawn: string[], named: (id: number) => string): string {
  const odd = drawn.filter((metric) => metric !== 'cpu_share' && metric !== 'rss_bytes' && isNotable(metric, highest(lanes.get(metric)!)[1]));
  const said = odd.slice(0, 2).map((metric) => {
    const [worker, value] = highest(lanes.get(metric)!);
    return `${named(worker)}: ${nameOfMetric(metric).toLowerCase()}, up to ${reading(metric, value)}.`;
  });
  const busy = lanes.get('cpu_share');
  if (!said.length && busy) {
    const [worker, value] = highest(busy);
    const limit = bound(lanes, 'cpu_share', worker);
    said.push(`${named(worker)} was busiest: up to ${reading('cpu_share', Math.min(value, limit || Infinity))}${limit ? ` of ${Number(limit.toFixed(2))}` : ''}.`);
  }
  return said.join(' ');
}

/** The most that a metric of a node can be; 0 if that is not known. */
function bound(lanes: Map<string, Lane>, metric: string, worker: number): number {
  const bins = lanes.get(limitOf(metric) ?? '')?.get(worker);
  return bins?.[bins.length - 1]?.high ?? 0;
}

function Drawn({ lanes, drawn, seconds, spans, view, named }: {
  lanes: Map<string, Lane>; drawn: string[]; seconds: number; spans: View<Span>; view: View<Bin>; named: (id: number) => string;
}): JSX.Element {
  const [box, width] = useWidth();
  const at = useSignal<{ x: number; y: number; metric: string; ns: number } | undefined>(undefined);
  const over = useSignal<{ x: number; y: number; span: Span } | undefined>(undefined);
  const window = seconds * 1e9;
  const right = Math.max(width - RIGHT, LEFT + 1);
  const x = (ns: number) => LEFT + (1 + ns / window) * (right - LEFT);
  const [first] = view.rows ?? [];
  return (
    <div class="node-lanes" ref={box}>
      <Queries spans={spans.rows ?? []} x={x} window={window} onHover={(found) => (over.value = found)} />
      {width > 0 && drawn.map((metric) => {
        const lane = lanes.get(metric)!;
        const [worker, value] = highest(lane);
        const bounds = [...lane.keys()].map((id) => bound(lanes, metric, id));
        const limit = Math.max(0, ...bounds.filter((limit) => limit <= 4 * value));
        const top = metric.includes('bytes') ? Math.max(value * 1.1, limit) : limit > 0 ? Math.max(limit, 0.1) : nice(value);
        return (
          <Canvas
            key={metric} height={TALL} label={`${nameOfMetric(metric)}: highest on ${named(worker)} with ${reading(metric, value)}`} cursor="crosshair"
            onMove={(at_x, _, event) => (at.value = at_x < LEFT ? undefined : { x: event.clientX, y: event.clientY, metric, ns: ((at_x - LEFT) / (right - LEFT) - 1) * window })}
            onLeave={() => (at.value = undefined)}
            draw={(surface) => drawLane(surface, metric, lane, x, right, top, limit, window)}
          />
        );
      })}
      <p class="node-axis faint"><span>{ago(window)}</span><span>now</span></p>
      <Tip at={at.value}>{at.value && <><b>{nameOfMetric(at.value.metric)}</b> {ago(-at.value.ns)}<dl>
        {[...(lanes.get(at.value.metric) ?? [])].map(([id, bins]) => {
          const bin = bins.reduce((best, one) => (Math.abs(one.at_ns - at.value!.ns) < Math.abs(best.at_ns - at.value!.ns) ? one : best));
          return [<dt key={`t${id}`}>{named(id)}</dt>, <dd key={`d${id}`}>{reading(at.value!.metric, bin.mean)}{bin.high > bin.low ? ` (${reading(at.value!.metric, bin.low)} to ${reading(at.value!.metric, bin.high)})` : ''}</dd>];
        })}
      </dl>{first && <span class="faint">means of {duration(first.width_ns)}</span>}</>}</Tip>
      <Tip at={over.value}>{over.value && <><b>Query {over.value.span.query_id}</b> {over.value.span.status}, {duration(over.value.span.end_ns - over.value.span.start_ns)}, {ago(over.value.span.ago_ns)}<br /><code>{oneLine(over.value.span.sql).slice(0, 120)}</code></>}</Tip>
    </div>
  );
}

function drawLane({ context, height, ink }: Surface, metric: string, lane: Lane, x: (ns: number) => number, right: number, top: number, limit: number, window: number): void {
  const y = (value: number) => height - 1 - (Math.min(value, top) / top) * (height - 8);
  context.fillStyle = ink.line;
  for (let part = 1; part < 5; part++) context.fillRect(Math.round(x((-window * part) / 5)), 0, 1, height);
  if (limit > 0) {
    context.fillStyle = ink.faint;
    for (let at = LEFT; at < right; at += 8) context.fillRect(at, y(limit), 4, 1);
  }
  for (const [worker, bins] of lane) {
    const { workers } = selection.value;
    const lit = hovered.value.worker;
    context.globalAlpha = dimmed(lit === undefined ? workers.size === 0 || workers.has(worker) : lit === worker);
    context.strokeStyle = context.fillStyle = category(worker);
    context.lineWidth = 1.5;
    context.setLineDash(worker >= 8 ? [5, 3] : []);
    context.beginPath();
    let before: Bin | undefined;
    for (const bin of bins) {
      // Where nothing was read, nothing is drawn.
      if (before && bin.at_ns - before.at_ns < 3 * bin.width_ns) context.lineTo(x(bin.at_ns), y(bin.mean));
      else context.moveTo(x(bin.at_ns), y(bin.mean));
      before = bin;
    }
    context.stroke();
    const alpha = context.globalAlpha;
    context.globalAlpha = alpha * 0.25;
    for (const bin of bins) if (bin.high > bin.low) context.fillRect(x(bin.at_ns) - 1, y(bin.high), 2, Math.max(y(bin.low) - y(bin.high), 1));
    context.globalAlpha = alpha;
  }
  context.setLineDash([]);
  context.globalAlpha = 1;
  context.fillStyle = ink.faint;
  context.fillRect(LEFT, height - 1, right - LEFT, 1);
  context.font = '11px system-ui, sans-serif';
  context.textAlign = 'right';
  context.fillText(reading(metric, top).replace(/( cores|\/s)$/, ''), LEFT - 6, 8);
  context.fillText(labelOfMetric(metric), LEFT - 6, 23);
  context.fillText('0', LEFT - 6, height - 6);
  context.textAlign = 'left';
}

/** The queries as links: arrow keys go from one to the next. */
function Queries({ spans, x, window, onHover }: {
  spans: Span[]; x: (ns: number) => number; window: number; onHover: (found: { x: number; y: number; span: Span } | undefined) => void;
}): JSX.Element {
  const ends: number[] = [];
  const placed = spans.filter((span) => span.ago_ns < window).map((span) => {
    const from = x(-span.ago_ns);
    const width = Math.max(x(-span.ago_ns + span.end_ns - span.start_ns) - from, 7);
    let row = ends.findIndex((end) => end <= from);
    if (row < 0) row = ends.length < STACK ? ends.length : ends.indexOf(Math.min(...ends));
    ends[row] = from + width + 1;
    return { span, from, width, row };
  });
  return (
    <div class="spans" role="group" aria-label="Queries, in the order in which they started" style={{ height: `${Math.max(ends.length, 1) * SPAN + 4}px` }} onKeyDown={(event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const links = [...event.currentTarget.querySelectorAll('a')];
      event.preventDefault();
      links[links.indexOf(document.activeElement as HTMLAnchorElement) + by]?.focus();
    }}>
      {placed.length === 0 && <span class="faint">No query ran in this time.</span>}
      {placed.map(({ span, from, width, row }, i) => (
        <a
          key={span.query_id} href={`/q/${span.query_id}`} data-to={`/q/${span.query_id}`} class={span.status === 'finished' ? '' : 'not'} tabIndex={i === placed.length - 1 ? 0 : -1}
          aria-label={`Query ${span.query_id}, ${span.status}, ${duration(span.end_ns - span.start_ns)}`}
          style={{ left: `${from}px`, width: `${width}px`, top: `${row * SPAN}px` }}
          onPointerMove={(event) => onHover({ x: event.clientX, y: event.clientY, span })} onPointerLeave={() => onHover(undefined)}
          onFocus={(event) => { const box = event.currentTarget.getBoundingClientRect(); onHover({ x: box.left, y: box.bottom, span }); }} onBlur={() => onHover(undefined)}
        >{width > 8 * String(span.query_id).length + 2 ? span.query_id : ''}</a>
      ))}
    </div>
  );
}
