// The workers: how they are, what they did while queries ran, and which differs from the others.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { Canvas, fitted, hatch, timeTicks, useWidth, type Surface } from '../canvas';
import { useRows, useView, type View } from '../data';
import { bytes, duration, plural, share, times } from '../format';
import { Choice, Panel, Tip } from '../panel';
import { hovered, search, select, selection, setSearch } from '../state';
import { State } from './progress';
import { ago, oneLine, ON_OPENING } from './running';
import { nameOf, useWorkers, type Worker } from './strip';
import { pieces, toTime, toX, type Piece } from './time_scale';
import './cluster.css';

interface Node {
  worker_id: number;
  name: string;
  state: string;
  reason: string | null;
  version: string;
  segments: number;
  rows: number;
  bytes: number;
  since_ns: number;
  heartbeat_ns: number;
}

interface Reading {
  worker_id: number;
  metric: string;
  bin: number;
  width_ns: number;
  at_ns: number;
  low: number;
  mean: number;
  high: number;
}

interface Span {
  query_id: number;
  sql: string;
  status: string;
  profile_level: string;
  start_ns: number;
  end_ns: number;
  ago_ns: number;
}

interface Part {
  query_id: number;
  worker_id: number;
  self_ns: number;
  rows: number;
  share: number;
  work_ratio: number;
  rows_ratio: number;
  row_time_ratio: number;
}

interface Score {
  worker_id: number;
  queries: number;
  self_ns: number;
  share: number;
  work_ratio: number;
  rows_ratio: number;
  row_time_ratio: number;
  work_z: number;
  rows_z: number;
  row_time_z: number;
}

const COUNTS = [['10', '10 queries'], ['30', '30 queries'], ['100', '100 queries']] as const;

export function Cluster(): JSX.Element {
  const queries = Number(search.value['n'] ?? 10);
  const workers = useWorkers();
  const isCluster = (workers.rows?.length ?? 0) > 1;
  // Workers within one process are in no list of nodes.
  const hasNodes = isCluster && workers.rows?.some((worker) => worker.worker_id > 0 && worker.address !== 'in process');
  const nodes = useView<Node>('cluster_nodes', hasNodes ? {} : undefined, 3000);
  const spans = useView<Span>('worker_spans', { queries }, ON_OPENING);
  const scores = useView<Score>('worker_scores', isCluster ? { queries } : undefined, ON_OPENING);
  const parts = useView<Part>('worker_queries', isCluster ? { queries } : undefined, ON_OPENING);
  // Bins so that all time with queries has some hundred; a power of two, so that few widths are asked for.
  const width = useRows(spans, (rows) => 2 ** Math.max(Math.ceil(Math.log2(rows.reduce((sum, row) => sum + row.end_ns - row.start_ns, 1) / 600)), 20));
  const readings = useView<Reading>('worker_metrics', width ? { queries, width } : undefined, ON_OPENING);
  const all = workers.rows ?? [];
  const ids = all.map((worker) => worker.worker_id);
  const lost = all.filter((worker) => worker.state === 'lost');
  return (
    <>
      <h1 class="visually-hidden">Cluster</h1>
      <Panel
        id="workers" class="workers" title={isCluster ? 'Workers' : 'Process'} views={[workers, ...(hasNodes ? [nodes] : []), ...(isCluster ? [scores, parts] : [])]}
        tools={<Choice label="Newest queries" value={String(queries)} options={COUNTS as readonly (readonly [string, string])[]} onChange={(n) => setSearch({ n: n === '10' ? undefined : n })} />}
        note={lost.length ? <span class="bad">{lost.map((worker) => nameOf(worker, all.length)).join(', ')}: lost. What it recorded is missing.</span> : isCluster ? verdict(scores.rows ?? [], queries) : 'There are no workers: this process runs all queries by itself.'}
      >
        <WorkerTable workers={all} nodes={nodes.rows ?? []} scores={scores.rows ?? []} parts={parts.rows ?? []} isCluster={isCluster} />
      </Panel>
      <Metrics spans={spans} readings={readings} ids={ids} total={all.length} />
    </>
  );
}

const WORST = 3.5;

/** What is odd about a worker, and how odd: rows and time per row tell the data from the machine. */
function judge(score: Score): { z: number; text: string; odd: boolean } {
  const far = (z: number, ratio: number) => Math.abs(z) >= WORST && (ratio >= 1.2 || ratio <= 1 / 1.2);
  const texts: string[] = [];
  if (far(score.row_time_z, score.row_time_ratio)) texts.push(score.row_time_ratio > 1 ? `takes ${times(score.row_time_ratio)} the time per row (a slower or busier machine, or dearer rows)` : `takes ${times(score.row_time_ratio)} the time per row`);
  if (far(score.rows_z, score.rows_ratio)) texts.push(score.rows_ratio > 1 ? `gets ${times(score.rows_ratio)} the rows (the data is uneven)` : `gets ${times(score.rows_ratio)} the rows`);
  if (!texts.length && far(score.work_z, score.work_ratio)) texts.push(`works ${times(score.work_ratio)} as long as the others`);
  const z = [score.row_time_z, score.rows_z, score.work_z].reduce((most, one) => (Math.abs(one) > Math.abs(most) ? one : most), 0);
  if (score.queries < 3) return { z, text: 'too few queries to compare', odd: false };
  return { z: texts.length ? z : 0, text: texts.join(' and ') || 'as the others', odd: texts.length > 0 };
}

function verdict(scores: Score[], queries: number): string {
  const judged = scores.map((score) => ({ score, ...judge(score) })).filter((one) => one.odd).sort((a, b) => Math.abs(b.z) - Math.abs(a.z));
  const worst = judged[0];
  if (worst) return `Worker ${worst.score.worker_id} ${worst.text}, in the median of ${plural(worst.score.queries, 'query', 'queries')}.`;
  const used = scores[0]?.queries ?? 0;
  return used ? `No worker differs from the others, over ${plural(used, 'query', 'queries')} of the newest ${queries}.` : 'No query of several workers is among the newest: nothing can be compared.';
}

function WorkerTable({ workers, nodes, scores, parts, isCluster }: { workers: Worker[]; nodes: Node[]; scores: Score[]; parts: Part[]; isCluster: boolean }): JSX.Element {
  const most = Math.max(...scores.map((score) => score.share), 0.01);
  return (
    <div class="scroll">
      <table class="plain">
        <thead><tr>
          <th scope="col">Worker</th><th scope="col">State</th><th scope="col" class="number">Clock ahead</th><th scope="col" class="number">Cores busy</th><th scope="col" class="number">Memory</th>
          {isCluster && <><th scope="col" class="number">Stored</th><th scope="col">Share of the work</th><th scope="col">Time per row</th><th scope="col">Against the others</th></>}
        </tr></thead>
        <tbody>
          {workers.map((worker) => {
            const id = worker.worker_id;
            const node = nodes.find((one) => one.worker_id === id);
            const score = scores.find((one) => one.worker_id === id);
            const judged = score && judge(score);
            const dim = selection.value.workers.size > 0 && !selection.value.workers.has(id);
            return (
              <tr key={id} class={dim ? 'dim' : ''} onPointerEnter={() => (hovered.value = { worker: id })} onPointerLeave={() => (hovered.value = {})}>
                <th scope="row"><button type="button" aria-pressed={selection.value.workers.has(id)} onClick={(event) => select('workers', id, event.shiftKey || event.ctrlKey)}>{nameOf(worker, workers.length)}</button><small title={node && `${node.name}, version ${node.version}, ${node.state} for ${duration(node.since_ns)}`}>{worker.address}</small></th>
                <td class="text"><State state={node?.state ?? worker.state} />{node?.reason && <span class="bad"> {node.reason}</span>}</td>
                <td>{id === 0 ? '0' : <>{duration(worker.clock_offset_ns)}<small>± {duration(worker.clock_error_ns)}</small></>}</td>
                <td>{worker.cpu_share === null ? '–' : worker.cpu_share.toFixed(2)}<small>{ago(worker.read_ago_ns)}</small></td>
                <td>{bytes(worker.rss_bytes)}<small>{ago(worker.read_ago_ns)}</small></td>
                {isCluster && <>
                  <td>{node ? <>{plural(node.rows, 'row')}<small>{bytes(node.bytes)}</small></> : '–'}</td>
                  <td class="text">{score ? <span class="part"><span class="track"><span style={{ width: `${((score.share / most) * 100).toFixed(1)}%` }} /></span>{share(score.share)}</span> : <span class="faint">{id === 0 ? 'not compared' : '–'}</span>}</td>
                  <td class="text">{score && <Strips of={parts.filter((part) => part.worker_id === id)} middle={score.row_time_ratio} />}</td>
                  <td class="text judged">{judged ? <><span class={judged.odd ? 'badge bad' : 'badge'}><span aria-hidden="true">{!judged.odd ? '✓ ' : judged.z > 0 ? '▲ ' : '▼ '}</span>{judged.odd ? `z ${Math.abs(judged.z).toFixed(1)}` : 'usual'}</span> {judged.text}</> : ''}</td>
                </>}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

const PLOT = 132;

/** One mark per query on a log axis from a quarter to four times; the long mark is the median. */
function Strips({ of, middle }: { of: Part[]; middle: number }): JSX.Element {
  const x = (ratio: number) => PLOT / 2 + (Math.min(Math.max(Math.log2(ratio || 1), -2), 2) / 4) * (PLOT - 12);
  return (
    <svg class="strips" width={PLOT} height={24} role="img" aria-label={`Median ${times(middle)} over ${plural(of.length, 'query', 'queries')}`}>
      <path class="axis" d={[0.5, 1, 2].map((ratio) => `M${x(ratio)} 2V17`).join('')} />
      <path class="one" d={of.map((part) => `M${x(part.row_time_ratio).toFixed(1)} 6V14`).join('')} />
      <path class="median" d={`M${x(middle).toFixed(1)} 2V18`} />
      {[0.5, 1, 2].map((ratio) => <text key={ratio} x={x(ratio)} y={23.5}>{ratio === 0.5 ? '½' : ratio} ×</text>)}
    </svg>
  );
}

const GUTTER = 138;
const SPAN = 15;
const CPU = 30;
const RSS = 26;
const ROW = CPU + RSS + 18;
const AXIS = 22;
const STACK = 8;

/** Puts spans into rows so that none overlaps, in pixels. */
function stacked(spans: Span[], axis: Piece[]): { span: Span; left: number; width: number; row: number }[] {
  const ends: number[] = [];
  return spans.map((span) => {
    const left = toX(axis, span.start_ns);
    const width = Math.max(toX(axis, span.end_ns) - left, 7);
    let row = ends.findIndex((end) => end <= left);
    if (row < 0) row = ends.length < STACK ? ends.length : ends.indexOf(Math.min(...ends));
    ends[row] = left + width + 1;
    return { span, left, width, row };
  });
}

function Metrics({ spans, readings, ids, total }: { spans: View<Span>; readings: View<Reading>; ids: number[]; total: number }): JSX.Element {
  const folds = search.value['idle'] !== 'shown';
  const highest = (metric: string) => (readings.rows ?? []).filter((one) => one.metric === metric).sort((a, b) => b.high - a.high)[0];
  const [busiest, largest] = [highest('cpu_share'), highest('rss_bytes')];
  const label = busiest && largest
    ? `${nameOf(busiest, total)} was busiest: ${busiest.high.toFixed(2)} cores. ${largest.worker_id === busiest.worker_id ? 'It' : nameOf(largest, total)} held the most memory: ${bytes(largest.high)}.`
    : 'No reading was taken while these queries ran.';
  return (
    <Panel
      id="metrics" title="Readings while queries ran" views={[readings, spans]} note={`${label} Bars at the top are queries; click one to open it.${total > 1 ? ' All workers share the axes.' : ''}`}
      tools={<Choice label="Idle time" value={folds ? 'folded' : 'shown'} options={[['folded', 'Idle time folded'], ['shown', 'Idle time shown']]} onChange={(next) => setSearch({ idle: next === 'shown' ? next : undefined })} />}
      empty={<p>No reading was taken while the newest queries ran: their level was off, or no query ran. Run SET profile.level = 'counters', then a query.</p>}
    >
      <Lanes spans={spans.rows ?? []} readings={readings.rows ?? []} ids={ids} total={total} folds={folds} label={label} cores={busiest?.high ?? 0} memory={largest?.high ?? 0} />
    </Panel>
  );
}

function Lanes({ spans: rows, readings, ids, total, folds, label, cores: mostCores, memory: mostMemory }: {
  spans: Span[]; readings: Reading[]; ids: number[]; total: number; folds: boolean; label: string; cores: number; memory: number;
}): JSX.Element {
  const [box, width] = useWidth();
  const at = useSignal<{ x: number; y: number; time: number; span?: Span } | undefined>(undefined);
  const axis = pieces(rows, GUTTER, Math.max(width - GUTTER - 8, 10), folds);
  const placed = stacked(rows, axis);
  const top = Math.max(...placed.map((one) => one.row + 1), 1) * SPAN + AXIS;
  const height = top + Math.max(ids.length, 1) * ROW + 4;
  const of = new Map<string, Reading[]>();
  for (const reading of readings) {
    const key = `${reading.worker_id} ${reading.metric}`;
    const list = of.get(key);
    if (list) list.push(reading);
    else of.set(key, [reading]);
  }
  const [cores, memory] = [Math.max(Math.ceil(mostCores * 2) / 2, 0.5), mostMemory * 1.05 || 1];
  const draw = ({ context, ink }: Surface) => {
    const right = axis[axis.length - 1]?.right ?? GUTTER;
    context.font = '11px system-ui, sans-serif';
    for (const piece of axis) {
      if (piece.folded) hatch(context, piece.left, 0, piece.right - piece.left, height, ink.line, 6);
      else {
        // Ticks of a piece count from its start: what ran together is compared in its own time.
        const ticks = timeTicks(0, piece.to - piece.from, Math.floor((piece.right - piece.left) / 90)).filter((tick) => tick > 0);
        context.strokeStyle = ink.line;
        context.fillStyle = ink.faint;
        context.textAlign = 'center';
        for (const tick of ticks) {
          const x = Math.round(toX(axis, piece.from + tick)) + 0.5;
          context.beginPath();
          context.moveTo(x, AXIS - 4);
          context.lineTo(x, height);
          context.stroke();
          if (x < piece.right - 16) context.fillText(`+${duration(tick).replace(/\.0+ /, ' ')}`, x, 8);
        }
      }
    }
    ids.forEach((id, i) => {
      const y = top + i * ROW;
      const dim = (selection.value.workers.size > 0 && !selection.value.workers.has(id)) || (hovered.value.worker !== undefined && hovered.value.worker !== id);
      context.globalAlpha = dim ? 0.35 : 1;
      context.strokeStyle = ink.line;
      context.beginPath();
      context.moveTo(0, y + 0.5);
      context.lineTo(right, y + 0.5);
      context.stroke();
      context.textAlign = 'left';
      context.fillStyle = ink.text;
      context.font = '600 12px system-ui, sans-serif';
      context.fillText(nameOf({ worker_id: id }, total), 0, y + 14);
      context.font = '11px system-ui, sans-serif';
      context.fillStyle = ink.faint;
      context.fillText(`cores, 0 to ${cores}`, 0, y + 30);
      context.fillText(`memory, 0 to ${bytes(memory)}`, 0, y + CPU + 24);
      for (const zero of [y + 6 + CPU, y + CPU + 12 + RSS]) {
        context.beginPath();
        context.moveTo(GUTTER, zero + 0.5);
        context.lineTo(right, zero + 0.5);
        context.stroke();
      }
      lane(context, of.get(`${id} cpu_share`) ?? [], axis, y + 6, CPU, cores, ink.accent, true);
      lane(context, of.get(`${id} rss_bytes`) ?? [], axis, y + CPU + 12, RSS, memory, ink.warn, false);
      context.globalAlpha = 1;
    });
    const now = at.value;
    if (now && now.x >= GUTTER) {
      context.strokeStyle = ink.text;
      context.globalAlpha = 0.5;
      context.beginPath();
      context.moveTo(now.x + 0.5, 0);
      context.lineTo(now.x + 0.5, height);
      context.stroke();
      context.globalAlpha = 1;
    }
    for (const piece of axis) {
      if (!piece.folded) continue;
      context.save();
      context.translate((piece.left + piece.right) / 2, top + ids.length * ROW / 2);
      context.rotate(-Math.PI / 2);
      context.textAlign = 'center';
      const text = fitted(context, `${duration(piece.to - piece.from)} idle`, ids.length * ROW - 8);
      const half = context.measureText(text).width / 2 + 5;
      context.fillStyle = ink.panel;
      context.fillRect(-half, -8, half * 2, 16);
      context.fillStyle = ink.faint;
      context.fillText(text, 0, 0);
      context.restore();
    }
  };
  const near = (id: number, metric: string, time: number): Reading | undefined => {
    let best: Reading | undefined;
    for (const one of of.get(`${id} ${metric}`) ?? []) if (!best || Math.abs(one.at_ns - time) < Math.abs(best.at_ns - time)) best = one;
    return best;
  };
  const now = at.value;
  return (
      <div class="metrics" ref={box} style={{ minHeight: `${height}px` }}>
        <Canvas
          label={label} height={height} draw={draw} id="metrics-canvas"
          onMove={(x, _, event) => { at.value = x < GUTTER ? undefined : { x, y: event.clientY, time: toTime(axis, x) }; }}
          onLeave={() => { at.value = undefined; }}
        />
        <Spans placed={placed} onHover={(span, event) => { at.value = span && event ? { x: toX(axis, (span.start_ns + span.end_ns) / 2), y: event.clientY, time: (span.start_ns + span.end_ns) / 2, span } : undefined; }} />
        <Tip at={now && { x: (box.current?.getBoundingClientRect().left ?? 0) + now.x, y: now.y }}>
          {now && <dl>
            {now.span && <><dt>Query {now.span.query_id}</dt><dd>{now.span.status}, {duration(now.span.end_ns - now.span.start_ns)}, {ago(now.span.ago_ns)}</dd><dt>SQL</dt><dd>{oneLine(now.span.sql).slice(0, 120)}</dd></>}
            {!now.span && <><dt>Running</dt><dd>{rows.filter((row) => row.start_ns <= now.time && row.end_ns >= now.time).map((row) => row.query_id).join(', ') || 'nothing'}</dd></>}
            {ids.map((id) => {
              const [cpu, rss] = [near(id, 'cpu_share', now.time), near(id, 'rss_bytes', now.time)];
              return <><dt key={id}>{nameOf({ worker_id: id }, total)}</dt><dd>{cpu ? `${cpu.high.toFixed(2)} cores` : 'cores not read'}, {bytes(rss?.high)}</dd></>;
            })}
          </dl>}
        </Tip>
      </div>
  );
}

/** Readings are taken each second while a query runs: what is further apart has no line between. */
const TOGETHER_NS = 2.5e9;

/** Extremes as a band, the mean as a line, each reading as a dot: between queries nothing is known. */
function lane(context: CanvasRenderingContext2D, readings: Reading[], axis: Piece[], y: number, height: number, most: number, colour: string, filled: boolean): void {
  const up = (value: number) => y + height - (value / most) * height;
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 1.3;
  let piece: Piece | undefined;
  let before: { x: number; y: number; at: number } | undefined;
  for (const reading of readings) {
    const x = toX(axis, reading.at_ns);
    const here = axis.find((one) => reading.at_ns <= one.to) ?? axis[axis.length - 1];
    const point = { x, y: up(reading.mean), at: reading.at_ns };
    if (before && piece === here && !here?.folded && reading.at_ns - before.at <= Math.max(TOGETHER_NS, 3 * reading.width_ns)) {
      if (filled) {
        // A share of cores is that of the time since the reading before.
        const alpha = context.globalAlpha;
        context.globalAlpha = alpha * 0.28;
        context.fillRect(before.x, point.y, Math.max(x - before.x, 1), y + height - point.y);
        context.globalAlpha = alpha;
        context.beginPath();
        context.moveTo(before.x, point.y);
        context.lineTo(x, point.y);
        context.stroke();
      } else {
        context.beginPath();
        context.moveTo(before.x, before.y);
        context.lineTo(x, point.y);
        context.stroke();
      }
    }
    if (reading.high > reading.low) {
      context.beginPath();
      context.moveTo(x, up(reading.low));
      context.lineTo(x, up(reading.high));
      context.stroke();
    }
    context.beginPath();
    if (filled) context.rect(x - 2, point.y - 2, 4, 4);
    else context.arc(x, point.y, 2, 0, 7);
    context.fill();
    [piece, before] = [here, point];
  }
  context.lineWidth = 1;
}

/** The queries as links over the canvas: arrow keys go from one to the next. */
function Spans({ placed, onHover }: { placed: ReturnType<typeof stacked>; onHover: (span: Span | undefined, event?: { clientY: number }) => void }): JSX.Element {
  return (
    <div class="spans" role="group" aria-label="Queries, in the order in which they started" onKeyDown={(event) => {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      const links = [...event.currentTarget.querySelectorAll('a')];
      event.preventDefault();
      links[links.indexOf(document.activeElement as HTMLAnchorElement) + by]?.focus();
    }}>
      {placed.map(({ span, left, width, row }, i) => (
        <a
          key={span.query_id} href={`/q/${span.query_id}`} data-to={`/q/${span.query_id}`} class={span.status === 'finished' ? '' : 'not'} tabIndex={i === placed.length - 1 ? 0 : -1}
          aria-label={`Query ${span.query_id}, ${span.status}, ${duration(span.end_ns - span.start_ns)}`}
          style={{ left: `${left}px`, width: `${width}px`, top: `${AXIS - 4 + row * SPAN}px` }}
          onPointerMove={(event) => onHover(span, event)} onPointerLeave={() => onHover(undefined)}
          onFocus={(event) => onHover(span, { clientY: event.currentTarget.getBoundingClientRect().bottom })} onBlur={() => onHover(undefined)}
        >{width > 8 * String(span.query_id).length + 2 ? span.query_id : ''}</a>
      ))}
    </div>
  );
}
