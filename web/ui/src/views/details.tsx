// The selected operators in full: numbers, tasks, details, heavy keys, and their part of the SQL text.
import type { ComponentChildren, JSX } from 'preact';
import { useView } from '../data';
import { describe, tableName } from '../describe';
import { bytes, count, duration, plural, share, times } from '../format';
import { Panel } from '../panel';
import { useQuery, type PlanRow } from '../query';
import { hovered, selection } from '../state';
import { misjudged } from './plan_tree';
import './details.css';

interface Task {
  worker_id: number;
  partition: number;
  calls: number;
  rows_in: number;
  rows_out: number;
  bytes_out: number;
  self_ns: number;
  total_ns: number;
  input_wait_ns: number;
  output_wait_ns: number;
  peak_memory_bytes: number;
  spilled_bytes: number;
  began_ns: number | null;
  ended_ns: number | null;
}

interface HeavyKey { operator_id: number; input: number | null; key: string; rows: number; error_rows: number; share: number; workers: number }

const SHOWN = 6;

export function Details(): JSX.Element {
  const query = useQuery();
  const chosen = [...selection.value.operators].map((id) => query.byId.get(id)).filter((row) => row !== undefined);
  if (!chosen.length) {
    const top = [...query.plan].sort((a, b) => b.share - a.share).slice(0, 5).filter((row) => row.share > 0);
    return (
      <Panel id="operator" title="Operator" views={[]}>
        <p class="message">Select an operator in the plan to see all that is known of it. {top.length > 0 && 'These have most of the own time:'}</p>
        <ul class="tops">{top.map((row) => (
          <li key={row.operator_id}><button type="button" onClick={() => (selection.value = { ...selection.value, operators: new Set([row.operator_id]) })}>
            {row.operator_id} {describe(row).title}</button> {duration(row.self_ns)}, {share(row.share)}</li>
        ))}</ul>
      </Panel>
    );
  }
  return <>
    {chosen.slice(0, SHOWN).map((row) => <OperatorPanel key={row.operator_id} row={row} />)}
    {chosen.length > SHOWN && <p class="message">{chosen.length - SHOWN} more operators are selected. Select fewer to see them here.</p>}
  </>;
}

function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

function OperatorPanel({ row }: { row: PlanRow }): JSX.Element {
  const query = useQuery();
  const tasks = useView<Task>('operator_tasks', { query_id: query.id, operator_id: row.operator_id });
  const heavy = useView<HeavyKey>('heavy_keys', { query_id: query.id });
  const metrics = useView<{ metric: string; total: number; most: number; partitions: number }>('operator_metrics', { query_id: query.id, operator_id: row.operator_id });
  const keys = (heavy.rows ?? []).filter((key) => key.operator_id === row.operator_id);
  const { title, subject } = describe(row);
  const rows = tasks.rows ?? [];
  const total = (pick: (task: Task) => number) => rows.reduce((sum, task) => sum + Number(pick(task)), 0);
  const calls = total((task) => task.calls);
  const wrong = misjudged(row);
  const facts: [string, ComponentChildren][] = [
    ['Own time', `${duration(row.self_ns)}, ${share(row.share)} of all`],
    ['Rows returned', count(row.rows_out)],
    ['Rows expected', row.estimated_rows === null ? 'not known' : `${count(row.estimated_rows)}${wrong >= 2 ? `, wrong by ${times(wrong)}` : ''}`],
    ['Rows taken', count(row.rows_in)],
    ['Time per row', Math.max(row.rows_in, row.rows_out) > 0 ? duration(row.self_ns / Math.max(row.rows_in, row.rows_out)) : '–'],
    ['Calls', calls ? `${count(calls)}, ${duration(row.self_ns / calls)} each` : '–'],
    ['Waited for input', row.input_wait_ns === null ? '–' : rows.length > 1 ? `${duration(row.input_wait_ns / rows.length)} on average in ${rows.length} tasks` : duration(row.input_wait_ns)],
    ['Waited for output', rows.length ? duration(total((task) => task.output_wait_ns)) : '–'],
    ['Bytes returned', bytes(row.bytes_out)],
    ['Peak memory', bytes(row.peak_memory_bytes)],
    ['Spilled', row.spilled_bytes ? bytes(row.spilled_bytes) : 'nothing'],
    ...(row.sent_rows === null ? [] : [
      ['Sent', `${count(row.sent_rows)} rows, ${bytes(row.sent_bytes)}`] as [string, string],
      ['Crossed workers', `${count(row.crossed_rows ?? 0)} rows, ${share(Number(row.crossed_rows ?? 0) / Math.max(Number(row.sent_rows), 1))}`] as [string, string],
    ]),
    ['Time skew', row.time_skew === null || row.tasks < 2 ? 'one task' : `${times(row.time_skew)} the mean`],
    ['Row skew', row.row_skew === null || row.tasks < 2 ? 'one task' : `${times(row.row_skew)} the mean`],
    ['Fragment', row.fragment_id],
    ['Kind', `${row.kind || 'not known'}, ${row.name}${row.is_internal ? ', internal' : ''}`],
  ];
  return (
    <Panel id={`operator-${row.operator_id}`} class="operator" title={`${row.operator_id} ${title}`} views={[tasks, heavy, metrics]}
      empty={<>No task of this operator recorded anything: it was not reached, or its worker was lost.</>}>
      {subject && <p class="subject"><code>{subject}</code></p>}
      <dl class="facts wide">{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
      {rows.length > 1 && <Tasks rows={rows} />}
      {keys.length > 0 && <Keys keys={keys} kind={row.kind} />}
      {!!metrics.rows?.length && <section class="metrics" aria-label="Metrics"><h3>Counted by the operator</h3>
        <dl class="facts wide">{metrics.rows.map(({ metric, total }) => <div key={metric}><dt>{metric.replace(/_ns$/, '').replaceAll('_', ' ')}</dt>
          <dd>{metric.endsWith('_ns') ? duration(total) : /bytes/.test(metric) ? bytes(total) : count(total)}</dd></div>)}</dl></section>}
      <SqlText row={row} />
      <details class="raw"><summary>Details as in sys.operators</summary><pre tabIndex={0} aria-label="Details of the operator">{row.details || 'None.'}</pre></details>
    </Panel>
  );
}

/** Own time and rows of each task as bars on a scale from zero. */
function Tasks({ rows }: { rows: Task[] }): JSX.Element {
  const measures = [['Own time', (task: Task) => task.self_ns, duration], ['Rows returned', (task: Task) => task.rows_out, count]] as const;
  const { workers, partitions } = selection.value;
  const on = (task: Task) => (!workers.size || workers.has(task.worker_id)) && (!partitions.size || partitions.has(task.partition));
  const press = (task: Task) => {
    const same = workers.size === 1 && workers.has(task.worker_id) && partitions.size === 1 && partitions.has(task.partition);
    selection.value = { ...selection.value, workers: new Set(same ? [] : [task.worker_id]), partitions: new Set(same ? [] : [task.partition]) };
  };
  const slowest = rows.reduce((most, task) => (task.self_ns > most.self_ns ? task : most));
  const typical = median(rows.map((task) => task.self_ns));
  const finding = `Partition ${slowest.partition} on worker ${slowest.worker_id} took ${duration(slowest.self_ns)}${typical > 0 ? `, ${times(slowest.self_ns / typical)} the median of ${duration(typical)}` : ''}${
    slowest.rows_in + slowest.rows_out > 0 ? `, for ${plural(Math.max(slowest.rows_in, slowest.rows_out), 'row')}` : ''}.`;
  const some = [...rows].sort((a, b) => b.self_ns - a.self_ns).slice(0, 12);
  const most = measures.map(([, pick]) => Math.max(1, ...rows.map(pick)));
  return (
    <section class="tasks" aria-label="Tasks">
      <h3>{plural(rows.length, 'task')}</h3>
      <p>{finding}</p>
      {rows.length > 12 && measures.map(([name, pick, write], m) => (
        <figure key={name}>
          <figcaption>{name} of each task <span class="faint">0 to {write(most[m]!)}, by worker and partition</span></figcaption>
          <div class="task-strip" role="img" aria-label={`${name} of ${rows.length} tasks. ${finding}`}>
            {rows.map((task, i) => (
              <i
                key={i} class={`${on(task) ? '' : 'dim'}${i > 0 && rows[i - 1]!.worker_id !== task.worker_id ? ' starts' : ''}`} style={{ '--part': pick(task) / most[m]! }}
                title={`Worker ${task.worker_id}, partition ${task.partition}: ${write(pick(task))}`} onClick={() => press(task)}
                onPointerEnter={() => (hovered.value = { worker: task.worker_id, partition: task.partition })} onPointerLeave={() => (hovered.value = {})}
              />
            ))}
          </div>
        </figure>
      ))}
      <div class="table">
        <table class="plain">
          <thead><tr><th scope="col" class="number">Worker</th><th scope="col" class="number">Partition</th><th scope="col" class="bars">Own time</th><th scope="col" class="bars">Rows returned</th><th scope="col" class="number">Rows taken</th><th scope="col" class="number">Waited</th></tr></thead>
          <tbody>
            {(rows.length > 12 ? some : rows).map((task) => (
              <tr key={`${task.worker_id}-${task.partition}`} class={on(task) ? '' : 'dim'} onPointerEnter={() => (hovered.value = { worker: task.worker_id, partition: task.partition })} onPointerLeave={() => (hovered.value = {})}>
                <td>{task.worker_id}</td>
                <td><button type="button" aria-label={`Select partition ${task.partition} on worker ${task.worker_id}`} aria-pressed={partitions.has(task.partition) && workers.has(task.worker_id)} onClick={() => press(task)}>{task.partition}</button></td>
                {measures.map(([name, pick, write], m) => <td key={name} class="bars"><i style={{ '--part': pick(task) / most[m]! }} /><span>{write(pick(task))}</span></td>)}
                <td>{count(task.rows_in)}</td><td>{duration(task.input_wait_ns)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {rows.length > 12 && <p class="note">The 12 tasks with most own time; button Table has all.</p>}
      </div>
    </section>
  );
}

function Keys({ keys, kind }: { keys: HeavyKey[]; kind: string }): JSX.Element {
  const most = Math.max(...keys.map((key) => key.share));
  return (
    <section class="tasks" aria-label="Heavy keys">
      <h3>Heavy keys</h3>
      <p>Key {keys.reduce((best, key) => (key.share > best.share ? key : best)).key} has about {share(most)} of the rows{kind === 'join' ? ' of one input' : ''}. Estimated from a sample.</p>
      <div class="table">
        <table class="plain">
          <thead><tr><th scope="col" class="text">Key</th>{kind === 'join' && <th scope="col" class="text">Input</th>}<th scope="col" class="bars">Rows</th><th scope="col" class="number">± error</th><th scope="col" class="number">Share</th></tr></thead>
          <tbody>{keys.slice(0, 20).map((key, i) => (
            <tr key={i}><td class="text">{key.key}</td>{kind === 'join' && <td class="text">{key.input === 0 ? 'build' : 'probe'}</td>}
              <td class="bars"><i style={{ '--part': key.share / most }} /><span>{count(key.rows)}</span></td><td>{count(key.error_rows)}</td><td>{share(key.share)}</td></tr>
          ))}</tbody>
        </table>
      </div>
    </section>
  );
}

/** Ranges of the SQL text that an operator stems from: from `sql_span` (`12..30`, or the text itself), else by words. */
function spans(sql: string, row: PlanRow): { ranges: [number, number][]; sure: boolean } {
  const ranges: [number, number][] = [];
  if (row.sql_span) {
    for (const [, from, to] of row.sql_span.matchAll(/(\d+)\s*(?:\.\.|-|:|,)\s*(\d+)/g)) ranges.push([Number(from), Number(to)]);
    const at = sql.indexOf(row.sql_span);
    if (!ranges.length && at >= 0) ranges.push([at, at + row.sql_span.length]);
    if (ranges.length) return { ranges, sure: true };
  }
  const low = sql.toLowerCase();
  const find = (word: string) => {
    const wanted = word.trim().toLowerCase();
    if (wanted.length < 2) return false;
    const pattern = wanted.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/\\\(|\\\)|,|[=<>]+/g, (c) => `\\s*${c}\\s*`).replace(/ +/g, '\\s*');
    let any = false;
    for (const match of low.matchAll(new RegExp(`(?<![\\w])${pattern}(?![\\w])`, 'g'))) {
      ranges.push([match.index, match.index + match[0].length]);
      any = true;
    }
    return any;
  };
  if (row.table_name) find(tableName(row.table_name));
  const { subject } = describe(row);
  if (['exchange', 'scan', 'working table', 'projection'].includes(row.kind)) return { ranges, sure: false };
  for (const part of subject.split(/ by | and |^on |, (?![^(]*\))/)) {
    const bare = part.replace(/ (?:as .*|DESC)$/, '').replace('!=', '<>');
    if (find(bare)) continue;
    // Without the qualifiers that the plan adds, or that the statement has.
    const sides = bare.split(' = ');
    if (sides.length === 2) {
      const pattern = sides.map((side) => `(?:\\w+\\.)?${side.replace(/^.*\./, '').replace(/\W/g, '\\$&')}`);
      for (const [a, b] of [pattern, [...pattern].reverse()]) {
        for (const match of low.matchAll(new RegExp(`${a}\\s*=\\s*${b}(?!\\w)`, 'gi'))) ranges.push([match.index, match.index + match[0].length]);
      }
    } else find(bare.replace(/\b\w+\.(?=\w)/g, ''));
  }
  return { ranges, sure: false };
}

function SqlText({ row }: { row: PlanRow }): JSX.Element | null {
  const { info } = useQuery();
  const { ranges, sure } = spans(info.sql, row);
  if (!ranges.length) return null;
  ranges.sort((a, b) => a[0] - b[0]);
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const [from, to] of ranges) {
    if (to <= at) continue;
    const start = Math.max(from, at);
    parts.push(info.sql.slice(at, start), <mark key={start}>{info.sql.slice(start, to)}</mark>);
    at = to;
  }
  parts.push(info.sql.slice(at));
  return (
    <section class="origin" aria-label="Part of the SQL text">
      <h3>In the SQL text {!sure && <span class="faint">(found by its words: other parts may belong to it too)</span>}</h3>
      <pre tabIndex={0} aria-label="SQL of the query, with the operator's part marked">{parts}</pre>
    </section>
  );
}
