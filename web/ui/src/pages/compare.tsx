// Compare: what changed between two runs. Query N is compared with query M: M is before, N after.
import './compare.css';
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { Canvas, fitted, hatch, timeTicks, type Surface } from '../canvas';
import { useView, type Params } from '../data';
import { bytes, count, duration, plural, share, times } from '../format';
import { useKeys } from '../keys';
import { Choice, Link, Panel, Tip } from '../panel';
import { title, type PlanRow } from '../query';
import { go, hovered, search, select, selection, setSearch } from '../state';
import { align } from './align';

/** A row of the view `compare_runs`. */
interface Run {
  query_id: number;
  sql: string;
  fingerprint: string;
  plan_fingerprint: string | null;
  status: string;
  error: string | null;
  profile_level: string;
  sample_rate: number | null;
  started_at: string;
  imported_from: string | null;
  tables_read: string | null;
  planning_ns: number;
  execution_ns: number;
  self_ns: number;
  slots: number;
  rows_returned: number | null;
  rows_read: number | null;
  crossed_rows: number;
  crossed_bytes: number;
  peak_memory_bytes: number | null;
  spilled_bytes: number | null;
  workers: string | null;
  lost_workers: string | null;
  events_dropped: number;
  overhead_ns: number | null;
  earlier_runs: number | null;
}

/** A row of the view `compare`. */
interface Operator extends Pick<PlanRow, 'operator_id' | 'parent_operator_id' | 'fragment_id' | 'name' | 'kind' | 'is_internal' | 'details' | 'table_name'> {
  query_id: number;
  rows: number;
  rows_in: number;
  rows_out: number;
  self_ns: number;
  elapsed_ns: number;
  tasks: number;
  spilled_bytes: number;
}

/** A row of the view `compare_history`. */
interface Past {
  query_id: number;
  started_at: string;
  status: string;
  profile_level: string;
  planning_ns: number;
  execution_ns: number;
  total_ns: number;
  rows_returned: number | null;
  plan_fingerprint: string | null;
  run: number;
  sql: string;
}

/** A row of the view `compare_noise`. */
interface Noise {
  operator_id: number;
  runs: number;
  median_ns: number;
  mad_ns: number;
}

/** A part of the elapsed time, before and after. */
interface Part {
  kind: 'planning' | 'operator' | 'waiting' | 'execution' | 'others';
  name: string;
  before: Operator | undefined;
  after: Operator | undefined;
  depth: number;
  old: number;
  now: number;
  delta: number;
  /** The change of rows at the old cost of a row, and the rest: the change of that cost. */
  byRows: number;
  byCost: number;
  /** By how much the part varies between runs, to both sides; undefined: not known. */
  noise: number | undefined;
}

/** Scaled median absolute deviations that a run may be away: 3 × 1.4826. */
const NOISE = 4.4478;
const FEWEST = 3;
const MOST = 9;
const total = (run: Run) => run.planning_ns + run.execution_ns;
const isNoise = (part: Part) => part.noise !== undefined && Math.abs(part.delta) <= part.noise;
/** Less than 1 % of the longer run does not matter, as in EXPLAIN PROFILE DIFF. */
const isSmall = (part: Part, before: Run, after: Run) => Math.abs(part.delta) < 0.01 * Math.max(total(before), total(after));
const signed = (ns: number) => `${ns > 0 ? '+' : ns < 0 ? '−' : '±'}${duration(Math.abs(ns))}`;
const isOperator = (part: Part) => part.kind === 'operator';

/** Splits a change: more rows at the old cost per row, and the new rows at the change of that cost. */
function split(before: Operator | undefined, after: Operator | undefined): [number, number] {
  const delta = (after?.elapsed_ns ?? 0) - (before?.elapsed_ns ?? 0);
  if (!before || !after || (before.rows === 0 && after.rows === 0)) return [0, delta];
  if (before.rows === 0) return [delta, 0];
  const byRows = ((after.rows - before.rows) * before.elapsed_ns) / before.rows;
  return [byRows, delta - byRows];
}

function partsOf(before: Run, after: Run, operators: readonly Operator[], noise: readonly Noise[] | undefined): Part[] {
  const [old, now] = [before, after].map((run) => operators.filter((row) => row.query_id === run.query_id)) as [Operator[], Operator[]];
  const varies = new Map(noise?.filter((row) => row.runs >= FEWEST).map((row) => [row.operator_id, row.mad_ns * NOISE]));
  const simple = (kind: Part['kind'], name: string, from: number, to: number, varies: number | undefined): Part => ({
    kind, name, before: undefined, after: undefined, depth: 0, old: from, now: to, delta: to - from, byRows: 0, byCost: to - from, noise: varies,
  });
  // Without operators in both there is only one step.
  if (!old.length || !now.length) {
    return [
      simple('planning', 'Planning', before.planning_ns, after.planning_ns, varies.get(-3)),
      simple('execution', 'Execution', before.execution_ns, after.execution_ns, varies.get(-1)),
    ];
  }
  const same = before.plan_fingerprint !== null && before.plan_fingerprint === after.plan_fingerprint;
  const parts = align(old, now, same).map(({ before, after, depth }): Part => {
    const [byRows, byCost] = split(before, after);
    const shown = (after ?? before)!;
    return {
      kind: 'operator', name: `${shown.operator_id} ${title(shown)}`, before, after, depth,
      old: before?.elapsed_ns ?? 0, now: after?.elapsed_ns ?? 0, delta: (after?.elapsed_ns ?? 0) - (before?.elapsed_ns ?? 0), byRows, byCost,
      noise: before && after ? varies.get(before.operator_id) : undefined,
    };
  });
  const waits = (run: Run, list: readonly Operator[]) => run.execution_ns - list.reduce((sum, row) => sum + row.elapsed_ns, 0);
  return [
    simple('planning', 'Planning', before.planning_ns, after.planning_ns, varies.get(-3)),
    ...parts,
    simple('waiting', 'Waiting and the rest', waits(before, old), waits(after, now), varies.get(-2)),
  ];
}

/** `4.00 × the rows`, or what else is the reason of a part's change. */
function reason(part: Part): string {
  const { before, after, delta } = part;
  const who = part.kind === 'operator' ? `operator ${(after ?? before)!.operator_id}, ${title((after ?? before)!)},` : '';
  const change = `(${signed(delta)})`;
  if (part.kind === 'planning') return part.old ? `planning took ${ratio(part.now / part.old)} ${change}` : `planning took ${duration(part.now)}`;
  if (part.kind === 'execution') return `execution took ${ratio(part.now / (part.old || 1))} ${change}`;
  if (part.kind !== 'operator') return `the longest tasks waited ${duration(Math.abs(delta))} ${delta > 0 ? 'more' : 'less'}`;
  if (!before) return `${who} is new ${change}`;
  if (!after) return `${who} is gone ${change}`;
  const [rows, cost] = [after.rows / before.rows, part.now / after.rows / (part.old / before.rows)];
  if (part.byRows / delta >= 0.7 && Number.isFinite(rows)) return `${who} got ${factor(rows)} the rows ${change}`;
  if (part.byCost / delta >= 0.7 && Number.isFinite(cost) && cost > 0) {
    return `${who} took ${ratio(cost)}${before.rows === after.rows ? ' for as many rows' : ' per row'} ${change}`;
  }
  if (Number.isFinite(rows) && Number.isFinite(cost) && cost > 0) return `${who} got ${factor(rows)} the rows and took ${ratio(cost)} per row ${change}`;
  return `${who} took ${ratio(part.now / part.old)} ${change}`;
}

const factor = (by: number) => (by >= 1 ? times(by) : share(by) + ' of');
const ratio = (by: number) => (by >= 1 ? `${times(by)} as long` : `${share(by)} of the time`);

function verdict(before: Run, after: Run, parts: readonly Part[], noise: readonly Noise[] | undefined): string {
  const [old, now] = [total(before), total(after)];
  const ends = (run: Run) => `query ${run.query_id} ${run.status === 'finished' ? 'took' : run.status === 'failed' ? 'failed after' : 'was cancelled after'} ${duration(total(run))}`;
  if (before.status !== 'finished' || after.status !== 'finished') return `Q${ends(after).slice(1)}, ${ends(before)}: their times do not compare.`;
  const by = old ? now / old : 1;
  const head = by >= 1.05 ? `Query ${after.query_id} took ${times(by)} as long as query ${before.query_id}`
    : by <= 0.95 ? `Query ${after.query_id} took ${share(by)} of the time of query ${before.query_id}`
      : `Query ${after.query_id} took about as long as query ${before.query_id}`;
  const amounts = ` (${duration(now)}, before ${duration(old)})`;
  const delta = now - old;
  const causes = parts.filter((part) => part.delta * delta > 0 && Math.abs(part.delta) >= 0.15 * Math.abs(delta) && !isNoise(part))
    .sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta)).slice(0, 2).map(reason);
  const ranges = [-1, -3].map((id) => noise?.find((row) => row.operator_id === id && row.runs >= FEWEST));
  const range = ranges[0] && ranges[1] ? NOISE * (ranges[0].mad_ns + ranges[1].mad_ns) : undefined;
  if (range !== undefined && Math.abs(delta) <= range) return `${head}${amounts}: within what this statement varies, ± ${duration(range)}.`;
  return causes.length && Math.abs(by - 1) >= 0.05 ? `${head}${amounts}: ${causes.join('; ')}.` : `${head}${amounts}.`;
}

interface TableRead { table: string; rows?: number; version?: string }

function tablesOf(run: Run): Map<string, TableRead> {
  try {
    return new Map((JSON.parse(run.tables_read ?? '[]') as TableRead[]).map((row) => [row.table, row]));
  } catch {
    return new Map();
  }
}

interface Remark { text: JSX.Element | string; warns: boolean }

/** What makes the two runs hard to compare, and what was different on purpose. */
function remarks(before: Run, after: Run, parts: readonly Part[], history: readonly Past[]): Remark[] {
  const list: Remark[] = [];
  const warn = (text: JSX.Element | string) => list.push({ text, warns: true });
  const say = (text: JSX.Element | string) => list.push({ text, warns: false });
  if (before.fingerprint !== after.fingerprint) warn('These are different statements.');
  for (const run of [before, after]) {
    if (run.status !== 'finished') warn(`Query ${run.query_id} ${run.status === 'failed' ? `failed: ${run.error ?? ''}` : 'was cancelled'}. Its numbers end there.`);
    if (run.profile_level === 'off') warn(`Query ${run.query_id} ran at level off: it has times only, no operators. SET profile.level = 'counters' for the next run.`);
    if (run.events_dropped > 0) warn(`The profile of query ${run.query_id} is incomplete: ${plural(run.events_dropped, 'event')} were dropped.`);
    if (run.lost_workers) warn(`Query ${run.query_id} lost worker ${run.lost_workers}: what it recorded is missing.`);
    if (run.imported_from) say(`Query ${run.query_id} was imported: it ran elsewhere.`);
  }
  if (before.profile_level !== after.profile_level) {
    const cost = (run: Run) => `query ${run.query_id} at level ${run.profile_level}${run.overhead_ns && run.self_ns ? `, where recording took ${share(run.overhead_ns / run.self_ns)} of operator time` : ''}`;
    warn(`Profiled differently: ${cost(before)}; ${cost(after)}. Compare runs of one level.`);
  } else if (before.sample_rate !== after.sample_rate) {
    warn(`Traced differently: ${share(before.sample_rate)} of the records, then ${share(after.sample_rate)}.`);
  }
  if (before.plan_fingerprint && after.plan_fingerprint && before.plan_fingerprint !== after.plan_fingerprint) {
    const [added, gone] = [parts.filter((part) => isOperator(part) && !part.before).length, parts.filter((part) => isOperator(part) && !part.after).length];
    warn(`The plan changed: ${plural(added, 'operator')} new, ${gone} gone. Operators are paired by name, table and place.`);
  }
  if (before.workers !== after.workers) warn(`Other workers: ${before.workers ?? 'none'}, then ${after.workers ?? 'none'}.`);
  else if (before.slots !== after.slots && before.plan_fingerprint && after.plan_fingerprint) say(`Fragments had up to ${plural(before.slots, 'task')}, then ${after.slots}.`);
  const older = before.query_id < after.query_id ? before : after;
  if ((older.earlier_runs ?? 0) === 0 && before.fingerprint === after.fingerprint) {
    const next = [...history].reverse().find((run) => run.query_id > older.query_id && run.query_id !== before.query_id && run.query_id !== after.query_id);
    const other = older === before ? after : before;
    warn(<>Query {older.query_id} is the first run of this statement: it also read files and filled caches for the first time.
      {next && <> <Link to={older === before ? `/q/${other.query_id}?cmp=${next.query_id}` : `/q/${next.query_id}?cmp=${other.query_id}`}>Compare with its second run, query {next.query_id}</Link>.</>}</>);
  }
  const [olds, nows] = [tablesOf(before), tablesOf(after)];
  for (const [name, now] of nows) {
    const old = olds.get(name);
    if (!old) continue;
    const short = name.replace(/^main\./, '');
    if (old.rows !== undefined && now.rows !== undefined && old.rows !== now.rows) say(`Table ${short} had ${count(old.rows)} rows, then ${count(now.rows)}.`);
    else if (old.version !== now.version) say(`Table ${short} was changed or rewritten in between; it has as many rows.`);
  }
  return list;
}

export function Compare({ query, other }: { query: number; other: number }): JSX.Element {
  const ids = { query_id: query, other_id: other };
  const runs = useView<Run>('compare_runs', ids);
  const operators = useView<Operator>('compare', ids);
  const history = useView<Past>('compare_history', { query_id: query });
  const before = runs.rows?.find((row) => row.query_id === other);
  const after = runs.rows?.find((row) => row.query_id === query);
  const similar = useMemo(() => (before && history.rows ? similarRuns(before, Math.max(query, other), history.rows) : undefined), [before, history.rows]);
  const noise = useView<Noise>('compare_noise', similar && similar.length >= FEWEST ? noiseParams(similar) : undefined);
  const parts = useMemo(() => (before && after && operators.rows ? partsOf(before, after, operators.rows, noise.rows) : undefined), [before, after, operators.rows, noise.rows]);
  const swap = () => go(`/q/${other}?cmp=${query}`);
  useKeys([
    { key: 'c', does: 'Swap the two runs', run: swap },
    { key: 'q', does: `Go to query ${query}`, run: () => go(`/q/${query}`) },
  ], query, other);
  const failed = [runs, operators, history].find((view) => view.error);
  if (failed) return <p class="message bad" role="alert">{failed.error}</p>;
  if (query === other) return <p class="message">This is query {query} itself. <Link to={`/q/${query}`}>Go to it</Link>, and press c there to compare it with the run before.</p>;
  if (!runs.rows || !parts || !before || !after) {
    const missing = runs.rows && [query, other].find((id) => !runs.rows!.some((row) => row.query_id === id));
    return missing !== undefined
      ? <p class="message">There is no query {missing}. It never ran, or profile.retention_age or profile.retention_bytes removed it. <Link to={`/q/${missing === query ? other : query}`}>Go to query {missing === query ? other : query}</Link></p>
      : <p class="message" aria-busy="true">Loading…</p>;
  }
  const sentence = verdict(before, after, parts, noise.rows);
  const list = remarks(before, after, parts, history.rows ?? []);
  return (
    <div class="compare">
      <header class="compared">
        <h1>{sentence}</h1>
        <p class="faint">
          <Link to={`/q/${other}`}>Query {other}</Link> is before, <Link to={`/q/${query}`}>query {query}</Link> after.{' '}
          <button type="button" onClick={swap} title="Key c">Swap</button>
        </p>
        {list.length > 0 && <ul class="remarks">{list.map((remark, i) => (
          <li key={i} class={remark.warns ? 'warn' : ''}><span aria-hidden="true">{remark.warns ? '! ' : '· '}</span>{remark.text}</li>
        ))}</ul>}
      </header>
      <div class="pair">
        <Totals runs={runs} before={before} after={after} />
        <History history={history} before={before} after={after} />
      </div>
      <Waterfall views={[operators, noise]} parts={parts} before={before} after={after} noise={noise.rows} similar={similar?.length} waits={noise.loading} />
      <Plans view={operators} parts={parts} before={before} after={after} />
      <Statements before={before} after={after} />
    </div>
  );
}

/** Earlier runs that say how much the statement varies: of the same plan and level. The first is left out if others are enough. */
function similarRuns(before: Run, newer: number, history: readonly Past[]): number[] {
  const runs = history.filter((run) => run.query_id < newer && run.status === 'finished' && run.profile_level === before.profile_level
    && run.plan_fingerprint === before.plan_fingerprint && run.plan_fingerprint !== null);
  const warm = runs.filter((run) => run.run > 1);
  return (warm.length >= FEWEST ? warm : runs).slice(0, MOST).map((run) => run.query_id);
}

function noiseParams(runs: readonly number[]): Params {
  return Object.fromEntries(runs.map((id, i) => [`run_${'abcdefghi'[i]}`, id]));
}

const clock = (at: string) => at.slice(0, 19);

function Totals({ runs, before, after }: { runs: ReturnType<typeof useView<Run>>; before: Run; after: Run }): JSX.Element {
  const rows: [string, (run: Run) => number | null, (value: number | null) => string, string?][] = [
    ['Elapsed', total, duration], ['Planning', (run) => run.planning_ns, duration], ['Execution', (run) => run.execution_ns, duration],
    ['Operators’ own time, all tasks', (run) => run.self_ns, duration],
    ['Rows read', (run) => run.rows_read, count], ['Rows returned', (run) => run.rows_returned, count],
    ['Rows that crossed workers', (run) => run.crossed_rows, count], ['Bytes that crossed workers', (run) => run.crossed_bytes, bytes],
    ['Peak memory, all operators', (run) => run.peak_memory_bytes, bytes], ['Spilled', (run) => run.spilled_bytes, bytes],
  ];
  return (
    <Panel id="totals" title="Totals" views={[runs]}>
      <div class="scrolls" tabIndex={0} role="region" aria-label="Totals of both runs">
        <table class="plain">
          <thead><tr><th class="text">Total</th><th class="number">Query {before.query_id}</th><th class="number">Query {after.query_id}</th><th class="number">Change</th></tr></thead>
          <tbody>
            {rows.filter(([, value]) => value(before) || value(after)).map(([name, value, text]) => {
              const [old, now] = [value(before), value(after)];
              return (
                <tr key={name}><th scope="row">{name}</th><td>{text(old)}</td><td>{text(now)}</td>
                  <td>{old && now ? (Math.abs(now / old - 1) < 0.005 ? '=' : times(now / old)) : '–'}</td></tr>
              );
            })}
            <tr><th scope="row">Level</th><td>{before.profile_level}</td><td>{after.profile_level}</td><td>{before.profile_level === after.profile_level ? '=' : '≠'}</td></tr>
            <tr><th scope="row">Plan</th><td><code>{before.plan_fingerprint?.slice(0, 8) ?? '–'}</code></td><td><code>{after.plan_fingerprint?.slice(0, 8) ?? '–'}</code></td>
              <td>{before.plan_fingerprint === after.plan_fingerprint ? '=' : '≠'}</td></tr>
            <tr><th scope="row">Started</th><td>{clock(before.started_at)}</td><td>{clock(after.started_at)}</td><td /></tr>
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function History({ history, before, after }: { history: ReturnType<typeof useView<Past>>; before: Run; after: Run }): JSX.Element {
  const rows = [...(history.rows ?? [])].reverse();
  const pointed = useSignal<number | undefined>(undefined);
  const tip = useSignal<{ x: number; y: number } | undefined>(undefined);
  const most = Math.max(1, ...rows.map((row) => row.total_ns));
  const [left, top, height] = [56, 12, 190];
  const xOf = (i: number, width: number) => left + ((i + 0.5) * (width - left - 8)) / Math.max(rows.length, 1);
  const shown = useSignal(0);
  const at = (x: number) => {
    const i = Math.floor(((x - left) * rows.length) / Math.max(shown.peek() - left - 8, 1));
    return rows[i] ? i : undefined;
  };
  const plans = [...new Set(rows.map((row) => row.plan_fingerprint))];
  const label = (row: Past) => `${row.query_id} · ${duration(row.total_ns)} · ${row.profile_level}${row.plan_fingerprint === after.plan_fingerprint ? '' : ' · another plan'}${row.status === 'finished' ? '' : ` · ${row.status}`}`;
  return (
    <Panel id="history" title="Runs of this statement" views={[history]} note={`${plural(rows.length, 'run')}${rows.length === 100 ? ', the newest' : ''}. Click one to compare with it. ${plans.length > 1 ? `Shapes are plans; hollow is another level than that of query ${after.query_id}.` : `Hollow is another level than that of query ${after.query_id}.`}`}
      tools={<label class="picker">Compare query {after.query_id} with <select value={String(before.query_id)} onChange={(event) => go(`/q/${after.query_id}?cmp=${event.currentTarget.value}`)}>
        {!rows.some((row) => row.query_id === before.query_id) && <option value={String(before.query_id)}>{before.query_id}</option>}
        {[...rows].reverse().filter((row) => row.query_id !== after.query_id).map((row) => <option key={row.query_id} value={String(row.query_id)}>{label(row)}</option>)}
      </select></label>}
    >
      <Canvas
        height={height} cursor={pointed.value === undefined ? 'default' : 'pointer'}
        label={`${plural(rows.length, 'run')} took ${duration(Math.min(...rows.map((row) => row.total_ns)))} to ${duration(most)}; query ${before.query_id} took ${duration(total(before))}, query ${after.query_id} ${duration(total(after))}.`}
        draw={({ context, width, ink }) => {
          shown.value = width;
          const high = height - top - 36;
          const y = (ns: number) => top + high - (ns / most) * high;
          for (const tick of timeTicks(0, most, 4)) {
            context.strokeStyle = ink.line;
            context.beginPath();
            context.moveTo(left, Math.round(y(tick)) + 0.5);
            context.lineTo(width, Math.round(y(tick)) + 0.5);
            context.stroke();
            context.fillStyle = ink.faint;
            context.textAlign = 'right';
            context.fillText(tick === 0 ? '0' : duration(tick).replace('.00', '').replace('.0', ''), left - 6, y(tick));
          }
          let busy = -1;
          rows.forEach((row, i) => {
            const [x, to] = [xOf(i, width), y(row.total_ns)];
            const role = row.query_id === before.query_id ? 'before' : row.query_id === after.query_id ? 'after' : undefined;
            const colour = role ? ink.accent : ink.faint;
            const size = role ? 6 : 4;
            context.strokeStyle = context.fillStyle = colour;
            context.lineWidth = role ? 2 : 1;
            context.beginPath();
            context.moveTo(x, top + high);
            context.lineTo(x, to);
            context.globalAlpha = role ? 1 : 0.4;
            context.stroke();
            context.globalAlpha = 1;
            shape(context, plans.indexOf(row.plan_fingerprint), x, to, size);
            if (row.profile_level === after.profile_level) context.fill();
            else {
              context.fillStyle = ink.panel;
              context.fill();
              context.stroke();
            }
            if (pointed.value === i) {
              context.strokeStyle = ink.text;
              context.strokeRect(x - 9, to - 9, 18, 18);
            }
            if (role || pointed.value === i) {
              const text = role ? `${role} ${row.query_id}` : String(row.query_id);
              const w = context.measureText(text).width;
              const start = Math.min(Math.max(x - w / 2, left), width - w);
              context.fillStyle = ink.text;
              context.textAlign = 'left';
              context.fillText(text, start, top + high + (start < busy ? 26 : 12));
              busy = start + w + 6;
            }
          });
          context.lineWidth = 1;
        }}
        onMove={(x, _, event) => {
          pointed.value = at(x);
          tip.value = pointed.value === undefined ? undefined : { x: event.clientX, y: event.clientY };
        }}
        onLeave={() => { pointed.value = tip.value = undefined; }}
        onPress={(x) => {
          const row = rows[at(x) ?? -1];
          if (row && row.query_id !== after.query_id) go(`/q/${after.query_id}?cmp=${row.query_id}`);
        }}
      />
      <Tip at={tip.value}>{pointed.value !== undefined && rows[pointed.value] && <Facts row={rows[pointed.value]!} />}</Tip>
    </Panel>
  );
}

function Facts({ row }: { row: Past }): JSX.Element {
  return (
    <>
      <b>Query {row.query_id}, run {row.run}</b>
      <dl><dt>elapsed</dt><dd>{duration(row.total_ns)}</dd><dt>planning</dt><dd>{duration(row.planning_ns)}</dd><dt>level</dt><dd>{row.profile_level}</dd>
        <dt>status</dt><dd>{row.status}</dd><dt>rows</dt><dd>{count(row.rows_returned)}</dd><dt>plan</dt><dd><code>{row.plan_fingerprint?.slice(0, 8) ?? '–'}</code></dd>
        <dt>started</dt><dd>{clock(row.started_at)}</dd></dl>
    </>
  );
}

/** The n-th plan's mark: circle, square, diamond, triangle. */
function shape(context: CanvasRenderingContext2D, n: number, x: number, y: number, size: number): void {
  context.beginPath();
  if (n % 4 === 0) context.arc(x, y, size, 0, 2 * Math.PI);
  else if (n % 4 === 1) context.rect(x - size, y - size, 2 * size, 2 * size);
  else {
    const s = size * 1.35;
    context.moveTo(x, y - s);
    context.lineTo(x + s, n % 4 === 2 ? y : y + s);
    if (n % 4 === 2) context.lineTo(x, y + s);
    context.lineTo(x - s, n % 4 === 2 ? y : y + s);
    context.closePath();
  }
}

const SHOWN = 12;

function Waterfall({ views, parts, before, after, noise, similar, waits }: {
  views: ReturnType<typeof useView<any>>[]; parts: readonly Part[]; before: Run; after: Run; noise: readonly Noise[] | undefined; similar: number | undefined; waits: boolean;
}): JSX.Element {
  const byPlan = search.value['steps'] === 'plan';
  const pointed = useSignal<number | undefined>(undefined);
  const tip = useSignal<{ x: number; y: number } | undefined>(undefined);
  const steps = useMemo(() => {
    const operators = parts.filter(isOperator);
    const ranked = [...operators].sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta));
    const large = ranked.filter((part) => !isSmall(part, before, after)).slice(0, SHOWN);
    const kept = new Set(large);
    const rest = operators.filter((part) => !kept.has(part));
    const sum = (of: (part: Part) => number) => rest.reduce((all, part) => all + of(part), 0);
    return [
      ...parts.filter((part) => part.kind === 'planning'),
      ...(byPlan ? operators.filter((part) => kept.has(part)) : large),
      ...(rest.length ? [{
        kind: 'others' as const, name: plural(rest.length, kept.size ? 'other operator' : 'operator'), before: undefined, after: undefined, depth: 0,
        old: sum((part) => part.old), now: sum((part) => part.now), delta: sum((part) => part.delta), byRows: sum((part) => part.byRows), byCost: sum((part) => part.byCost), noise: undefined,
      }] : []),
      ...parts.filter((part) => part.kind === 'waiting' || part.kind === 'execution'),
    ];
  }, [parts, byPlan, before, after]);
  const tall = 26;
  const head = 22;
  const height = head + (steps.length + 2) * tall + 8;
  const runs = noise?.[0]?.runs ?? 0;
  const draw = ({ context, width, ink }: Surface) => {
    const left = Math.min(230, width * 0.34);
    const right = 82;
    let [running, most] = [total(before), Math.max(total(before), total(after))];
    for (const step of steps) {
      most = Math.max(most, running + Math.max(step.delta, 0));
      running += step.delta;
    }
    const x = (ns: number) => left + (ns / most) * (width - left - right);
    for (const tick of timeTicks(0, most, Math.max((width - left - right) / 110, 2))) {
      context.strokeStyle = ink.line;
      context.beginPath();
      context.moveTo(Math.round(x(tick)) + 0.5, head - 4);
      context.lineTo(Math.round(x(tick)) + 0.5, height);
      context.stroke();
      context.fillStyle = ink.faint;
      context.textAlign = 'center';
      context.fillText(tick === 0 ? '0' : duration(tick).replace('.00 ', ' ').replace('.0 ', ' '), x(tick), 9);
    }
    const whole = (row: number, run: Run, name: string) => {
      const y = head + row * tall;
      context.fillStyle = ink.text;
      context.textAlign = 'left';
      context.fillText(fitted(context, name, left - 8), 0, y + tall / 2);
      context.fillStyle = ink.accent;
      context.fillRect(x(0), y + 4, Math.max(x(total(run)) - x(0), 1), tall - 8);
      hatch(context, x(0), y + 4, x(run.planning_ns) - x(0), tall - 8, ink.panel);
      context.fillStyle = ink.text;
      context.fillText(duration(total(run)), Math.min(x(total(run)) + 6, width - right + 6), y + tall / 2);
    };
    whole(0, before, `Query ${before.query_id}, before`);
    running = total(before);
    steps.forEach((step, i) => {
      const y = head + (i + 1) * tall;
      const grey = isNoise(step) || isSmall(step, before, after);
      const chosen = [step.after?.operator_id].some((id) => id !== undefined && (selection.value.operators.has(id) || hovered.value.operator === id));
      if (pointed.value === i || chosen) {
        context.fillStyle = ink.line;
        context.globalAlpha = 0.5;
        context.fillRect(0, y, width, tall);
        context.globalAlpha = 1;
      }
      context.fillStyle = grey ? ink.faint : ink.text;
      context.textAlign = 'left';
      const mark = step.kind === 'operator' && !step.before ? '+ ' : step.kind === 'operator' && !step.after ? '− ' : '';
      context.fillText(fitted(context, mark + step.name, left - 8), 0, y + tall / 2);
      if (step.noise !== undefined) {
        context.fillStyle = ink.faint;
        context.globalAlpha = 0.22;
        const from = x(Math.max(running - step.noise, 0));
        context.fillRect(from, y + 2, Math.max(Math.min(x(running + step.noise), width - right) - from, 1), tall - 4);
        context.globalAlpha = 1;
      }
      const colour = grey ? ink.faint : step.delta > 0 ? ink.bad : ink.accent;
      const bar = (a: number, b: number, top: number, high: number, lines: boolean) => {
        const [from, to] = [x(Math.min(a, b)), x(Math.max(a, b))];
        const w = Math.max(to - from, 1.5);
        if (lines && w > 4) {
          context.strokeStyle = colour;
          context.strokeRect(from + 0.5, top + 0.5, w - 1, high - 1);
          hatch(context, from, top, w, high, colour, 4);
        } else {
          context.fillStyle = colour;
          context.fillRect(from, top, w, high);
        }
      };
      // More rows and less time per row, or the reverse: one bar of what is left, in the look of the part that wins.
      const opposed = step.byRows * step.byCost < 0 && Math.min(Math.abs(step.byRows), Math.abs(step.byCost)) > 0.02 * Math.abs(step.delta);
      const both = !!step.before && !!step.after && !opposed && Math.min(Math.abs(step.byRows), Math.abs(step.byCost)) > 0.02 * Math.abs(step.delta);
      if (both) {
        bar(running, running + step.byRows, y + 4, (tall - 8) / 2, false);
        bar(running + step.byRows, running + step.delta, y + tall / 2, (tall - 8) / 2, true);
      } else bar(running, running + step.delta, y + 4, tall - 8, !!step.before && !!step.after && (opposed ? step.byCost * step.delta > 0 : Math.abs(step.byRows) <= Math.abs(step.byCost)));
      const next = running + step.delta;
      context.strokeStyle = ink.faint;
      context.setLineDash([2, 2]);
      context.beginPath();
      context.moveTo(x(next), y + tall - 4);
      context.lineTo(x(next), y + tall + 4);
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = grey ? ink.faint : ink.text;
      const text = signed(step.delta);
      const end = x(Math.max(running, next)) + 6;
      context.fillText(text, end, y + tall / 2);
      const more = opposed && step.before && step.after && !grey ? `rows ${signed(step.byRows)}, per row ${signed(step.byCost)}` : '';
      context.fillStyle = ink.faint;
      const [wide, from] = [context.measureText(more).width, end + context.measureText(text).width + 10];
      if (more && from + wide <= width) context.fillText(more, from, y + tall / 2);
      else if (more && x(Math.min(running, next)) - wide - 8 > left) context.fillText(more, x(Math.min(running, next)) - wide - 8, y + tall / 2);
      running = next;
    });
    whole(steps.length + 1, after, `Query ${after.query_id}, after`);
  };
  const sentence = `From ${duration(total(before))} to ${duration(total(after))}: ${[...steps].sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta)).slice(0, 3).map((step) => `${step.name} ${signed(step.delta)}`).join(', ')}.`;
  const at = (y: number) => {
    const i = Math.floor((y - head) / tall) - 1;
    return steps[i] ? i : undefined;
  };
  return (
    <Panel
      id="waterfall" title="Where the difference is" views={views.filter((view) => view.rows || view.loading)}
      tools={<Choice label="Order of the steps" value={byPlan ? 'plan' : 'size'} options={[['size', 'Largest first'], ['plan', 'As in the plan']]} onChange={(steps) => setSearch({ steps: steps === 'plan' ? 'plan' : undefined })} />}
      note={<>
        A query takes about as long as the longest task of each fragment; the steps are these tasks, waiting is the rest.{' '}
        <span class="legend-key"><i class="solid" aria-hidden="true" />more or fewer rows</span> <span class="legend-key"><i class="lines" aria-hidden="true" />another time per row</span>{' '}
        {runs >= FEWEST ? <span class="legend-key"><i class="band" aria-hidden="true" />grey: within what {runs} earlier runs vary (3 scaled median deviations), or under 1 %</span>
          : waits ? '' : `${similar ? `Only ${plural(similar, 'earlier run')} with this plan and level: too few` : 'No earlier runs with this plan and level'} to tell what is noise.`}
      </>}
    >
      <Canvas
        height={height} label={sentence} draw={draw} cursor={pointed.value !== undefined && steps[pointed.value]?.kind === 'operator' ? 'pointer' : 'default'}
        onMove={(_, y, event) => {
          pointed.value = at(y);
          const step = steps[pointed.value ?? -1];
          hovered.value = step?.after ? { operator: step.after.operator_id } : {};
          tip.value = step && { x: event.clientX, y: event.clientY };
        }}
        onLeave={() => { pointed.value = tip.value = undefined; hovered.value = {}; }}
        onPress={(_, y, event) => {
          const step = steps[at(y) ?? -1];
          if (step?.after) select('operators', step.after.operator_id, event.shiftKey || event.ctrlKey);
        }}
      />
      <Tip at={tip.value}>{pointed.value !== undefined && steps[pointed.value] && <Change part={steps[pointed.value]!} />}</Tip>
    </Panel>
  );
}

const perRow = (operator: Operator | undefined) => (operator && operator.rows ? operator.elapsed_ns / operator.rows : undefined);

function Change({ part }: { part: Part }): JSX.Element {
  const { before, after } = part;
  return (
    <>
      <b>{part.name}</b>
      <dl>
        <dt>in the longest task</dt><dd>{duration(part.old)} → {duration(part.now)} ({signed(part.delta)})</dd>
        {(before || after) && <>
          <dt>rows</dt><dd>{before ? count(before.rows) : 'none'} → {after ? count(after.rows) : 'none'}</dd>
          <dt>per row</dt><dd>{duration(perRow(before))} → {duration(perRow(after))}</dd>
          <dt>all tasks</dt><dd>{duration(before?.self_ns)} → {duration(after?.self_ns)}</dd>
        </>}
        {before && after && <><dt>by rows</dt><dd>{signed(part.byRows)}</dd><dt>by time per row</dt><dd>{signed(part.byCost)}</dd></>}
        {part.noise !== undefined && <><dt>varies by</dt><dd>± {duration(part.noise)}{isNoise(part) ? ': within what this statement varies' : ''}</dd></>}
      </dl>
    </>
  );
}

function Plans({ view, parts, before, after }: { view: ReturnType<typeof useView<Operator>>; parts: readonly Part[]; before: Run; after: Run }): JSX.Element {
  const operators = parts.filter(isOperator);
  const most = Math.max(1, ...operators.map((part) => Math.max(part.old, part.now)));
  const same = before.plan_fingerprint === after.plan_fingerprint;
  if (!operators.length) {
    const missing = [before, after].filter((run) => !run.plan_fingerprint).map((run) => `Query ${run.query_id}`);
    return <Panel id="plans" title="Operators side by side" views={[view]}><p class="message">{missing.join(' and ')} recorded no operators. SET profile.level = 'counters' and run it again.</p></Panel>;
  }
  return (
    <Panel
      id="plans" title="Operators side by side" views={[view]} empty="Neither run recorded operators. SET profile.level = 'counters' for the next one."
      note={<>{same ? 'Both runs have the same plan.' : <>The plans differ: <b>+</b> is new, <b>−</b> is gone.</>} Bars are the time in the longest task, above before, below after, on one axis from 0.</>}
    >
      <div class="scrolls" tabIndex={0} role="region" aria-label="Operators of both runs">
        <table class="plain plans">
          <thead><tr><th class="text">Operator</th><th class="number">Rows {before.query_id}</th><th class="number">Rows {after.query_id}</th><th class="number">×</th>
            <th class="text">Time</th><th class="number">Change</th><th class="number">by rows</th><th class="number">per row</th><th class="text">Noise</th></tr></thead>
          <tbody>
            {operators.map((part) => {
              const shown = (part.after ?? part.before)!;
              const state = !part.before ? 'added' : !part.after ? 'gone' : isNoise(part) || isSmall(part, before, after) ? 'noise' : '';
              const chosen = part.after && selection.value.operators.has(part.after.operator_id);
              const changed = part.before && part.after && part.before.details !== part.after.details && shown.kind !== 'scan';
              return (
                <tr key={`${part.before?.operator_id}-${part.after?.operator_id}`} class={`${state} ${chosen ? 'chosen' : ''} ${part.after && hovered.value.operator === part.after.operator_id ? 'lit' : ''}`}
                  onPointerEnter={() => (hovered.value = part.after ? { operator: part.after.operator_id } : {})} onPointerLeave={() => (hovered.value = {})}>
                  <td class="text operator" style={{ paddingLeft: `${8 + Math.min(part.depth, 12) * 12}px` }} title={changed ? `${part.before!.details}\n→ ${part.after!.details}` : shown.details}>
                    {state === 'added' ? <b class="warn">+ </b> : state === 'gone' ? <b class="bad">− </b> : ''}
                    {part.after ? <button type="button" aria-pressed={!!chosen} onClick={(event) => select('operators', part.after!.operator_id, event.shiftKey || event.ctrlKey)}>{part.name}</button> : <s>{part.name}</s>}
                    {part.before && part.after && part.before.name !== part.after.name && <span class="faint"> was {part.before.name.replace(/Exec$/, '')}</span>}
                  </td>
                  <td>{part.before ? count(part.before.rows) : '–'}</td>
                  <td>{part.after ? count(part.after.rows) : '–'}</td>
                  <td>{part.before?.rows && part.after ? (part.before.rows === part.after.rows ? '=' : times(part.after.rows / part.before.rows)) : ''}</td>
                  <td class="text"><span class="pair-bars" role="img" aria-label={`${duration(part.old)}, then ${duration(part.now)}`}>
                    <i class="old" style={{ width: `${(part.old / most) * 100}%` }} /><i class="new" style={{ width: `${(part.now / most) * 100}%` }} /></span></td>
                  <td>{signed(part.delta)}</td>
                  <td>{part.before && part.after ? signed(part.byRows) : ''}</td>
                  <td>{part.before && part.after ? signed(part.byCost) : ''}</td>
                  <td class="text">{isSmall(part, before, after) ? 'under 1 % of the query' : part.noise === undefined ? '' : isNoise(part) ? `within ± ${duration(part.noise)}` : `beyond ± ${duration(part.noise)}`}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Statements({ before, after }: { before: Run; after: Run }): JSX.Element {
  const words = (run: Run): string[] => run.sql.match(/'(?:[^']|'')*'|\w+|\s+|[^\w\s]/g) ?? [];
  const [a, b] = [words(before), words(after)];
  const aligned = before.fingerprint === after.fingerprint && a.length === b.length;
  const text = (mine: string[], other: string[]) => mine.map((word, i) => (aligned && word !== other[i] ? <mark key={i}>{word}</mark> : word));
  return (
    <Panel id="statements" title={before.sql === after.sql ? 'The statement' : aligned ? 'The statements: other literals' : 'The statements'} views={[]}>
      {before.sql === after.sql ? <pre class="compared-sql" tabIndex={0} aria-label="Statement">{after.sql}</pre>
        : <div class="pair">
          <figure><figcaption class="faint">Query {before.query_id}</figcaption><pre class="compared-sql" tabIndex={0} aria-label={`Statement of query ${before.query_id}`}>{text(a, b)}</pre></figure>
          <figure><figcaption class="faint">Query {after.query_id}</figcaption><pre class="compared-sql" tabIndex={0} aria-label={`Statement of query ${after.query_id}`}>{text(b, a)}</pre></figure>
        </div>}
    </Panel>
  );
}
