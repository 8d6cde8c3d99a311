// The head of a query's page: one sentence that says why it took so long, five numbers, and how its time splits.
import type { ComponentChildren, JSX } from 'preact';
import { useRows, useView, type View } from '../data';
import { clipped, describe, tableName } from '../describe';
import { bytes, count, duration, plural, share } from '../format';
import { Link, Panel } from '../panel';
import { pathOf, show, type Place } from '../place';
import { title, useQuery, type PlanRow, type Query } from '../query';
import { source } from '../source';
import { hovered, selection } from '../state';
import { Copy, readable, sentenceOf, sorted, type Finding } from './diagnoses';
import './summary.css';

interface Verdict {
  operator_id: number | null;
  fragment_id: number | null;
  self_ns: number | null;
  share: number | null;
  tasks: number | null;
  worker_id: number | null;
  partition: number | null;
  longest_ns: number | null;
  busy_ns: number | null;
  cpu_ns: number | null;
  cores: number | null;
  elapsed_ns: number | null;
}

interface Part {
  step: number;
  category: string;
  operator_id: number | null;
  fragment_id: number | null;
  worker_id: number | null;
  partition: number | null;
  ns: number;
}

interface Without {
  query_ns: number;
  without_ns: number;
  saves_much: boolean;
}

/** Categories that are shown as one. Those that wait are hatched. */
const GROUPS: readonly { name: string; of: readonly string[]; look: string; waits?: string }[] = [
  { name: 'Queue', of: ['queue'], look: 'starting', waits: 'Waiting for other statements' },
  { name: 'Planning', of: ['planning'], look: 'planning' },
  { name: 'Starting tasks', of: ['starting'], look: 'starting', waits: 'Starting the tasks' },
  { name: 'Scan', of: ['scan', 'reading', 'values', 'working table', 'shared rows', 'subquery values'], look: 'scan' },
  { name: 'Evaluate, project, filter', of: ['evaluation', 'projection', 'filter'], look: 'expressions' },
  { name: 'Unnest', of: ['unnest'], look: 'unnest' },
  { name: 'Join', of: ['join'], look: 'join' },
  { name: 'Aggregate', of: ['aggregate'], look: 'aggregate' },
  { name: 'Sort, window, limit', of: ['sort', 'window', 'limit'], look: 'sort' },
  { name: 'Exchange, gather, merge', of: ['exchange'], look: 'exchange' },
  { name: 'Operators that spilled', of: ['spilling'], look: 'spilling' },
  { name: 'Other work', of: [], look: 'other' },
  { name: 'Waiting for rows', of: ['exchange wait'], look: 'wait', waits: 'Waiting for rows of other tasks' },
  { name: 'Waiting for a processor', of: ['processor wait'], look: 'off', waits: 'Waiting for a processor' },
  { name: 'Throttled', of: ['throttled'], look: 'throttled', waits: 'Throttling by the quota of the cgroup' },
  { name: 'Blocked', of: ['blocked'], look: 'blocked', waits: 'Waiting for a disk, a lock or a page' },
  { name: 'Off processor', of: ['off processor'], look: 'off', waits: 'Waiting for a processor or a disk' },
  { name: 'Not called', of: ['between calls'], look: 'between', waits: 'Waiting to be called again' },
  { name: 'Returning rows', of: ['returning rows'], look: 'returning', waits: 'Returning rows' },
  { name: 'Stopping', of: ['stopping'], look: 'returning' },
  { name: 'Not recorded', of: ['not recorded'], look: 'starting' },
];

interface Slice {
  name: string;
  look: string;
  waits: string | undefined;
  ns: number;
  share: number;
  operators: number[];
}

/** A part's name: what its operators are called elsewhere, if they are few. */
function nameOf(query: Query, group: string, operators: number[]): string {
  const names = [...new Set(operators.map((id) => query.byId.get(id)).filter((row) => row !== undefined).map((row) => title(row).replace(/,.*/, '')))];
  return names.length === 0 || names.length > 2 || group.endsWith('spilled') ? group : names.join(', ');
}

function slices(query: Query, parts: Part[]): Slice[] {
  const total = parts.reduce((sum, part) => sum + part.ns, 0);
  const known = new Set(GROUPS.flatMap((group) => group.of));
  return GROUPS.map((group) => {
    const own = parts.filter((part) => (group.of.length ? group.of.includes(part.category) : !known.has(part.category)));
    const ns = own.reduce((sum, part) => sum + part.ns, 0);
    const operators = [...new Set(own.flatMap((part) => (part.operator_id === null ? [] : [part.operator_id])))];
    return {
      name: nameOf(query, group.name, operators), look: group.look, waits: group.waits, ns, share: total ? ns / total : 0,
      operators,
    };
  }).filter((slice) => slice.ns > 0);
}

/** An operator and all below it. */
function below(query: Query, operator: number): PlanRow[] {
  return [query.byId.get(operator)!, ...query.childrenOf(operator).flatMap((row) => below(query, row.operator_id))];
}

function Headline({ place, children }: { place?: Place | undefined; children: ComponentChildren }): JSX.Element {
  const query = useQuery();
  if (!place) return <>{children}</>;
  const target = pathOf(query, place);
  return (
    <a
      href={source.kind === 'file' ? `#${target}` : target} title="Show where this is"
      onClick={(event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        event.stopPropagation();
        show(query, place);
      }}
    >{children}</a>
  );
}

/** The sentence of a diagnosis. What the query takes without an expensive record says more than what the record cost. */
function reason(query: Query, found: Finding, without: Without | undefined, estimating: boolean, elapsed: string): ComponentChildren {
  if (found.rule === 'expensive input') {
    const cost = found.wasted_ns === null ? 'much' : duration(found.wasted_ns);
    return <>Row {String(found.row_id)} of {tableName(found.table_name ?? '')} cost {
      without?.saves_much ? <>about {duration(without.query_ns - without.without_ns)} of {elapsed}; without it the query takes about {duration(without.without_ns)}</>
        : <>{cost} of {elapsed}</>}.{
      estimating && <span class="faint"> Estimating the time without it…</span>}</>;
  }
  return sentenceOf(query, found);
}

function sentence(query: Query, findings: Finding[], verdict: Verdict | undefined, split: Slice[], without: View<Without>): [ComponentChildren, Place | undefined] {
  const { info } = query;
  const elapsed = duration((info.queued_ns ?? 0) + (info.planning_ns ?? 0) + (info.execution_ns ?? 0));
  const found = findings.find((one) => one.place === 1 && one.rule !== 'incomplete profile');
  if (found) return [reason(query, found, without.rows?.[0], without.loading && !without.rows, elapsed), found];
  if (info.profile_level === 'off') return [`The query took ${elapsed}. Level off recorded nothing else.`, undefined];
  const most = split.reduce<Slice | undefined>((best, slice) => (!best || slice.ns > best.ns ? slice : best), undefined);
  if (most && most.share >= 0.35 && (most.waits || most.look === 'planning')) {
    return [`${most.waits ?? most.name} took ${duration(most.ns)} of ${elapsed}, more than any work.`, undefined];
  }
  if (verdict?.operator_id === null || verdict?.operator_id === undefined) return [`The query took ${elapsed}. No operator recorded any work.`, undefined];
  const rounds = query.plan.find((row) => row.kind === 'recursive');
  const inRounds = rounds ? below(query, rounds.operator_id) : [];
  const of = inRounds.reduce((sum, row) => sum + row.share, 0);
  if (rounds && of >= 0.5) {
    return [
      <>{describe(rounds).title} did {share(of)} of the work, round by round, for {plural(rounds.rows_out, 'row')}: {duration(inRounds.reduce((sum, row) => sum + row.self_ns, 0))} of {duration(verdict.busy_ns)}. The query took {elapsed}.</>,
      { operator_id: rounds.operator_id, fragment_id: null, partition: null, worker_id: null },
    ];
  }
  const tasks = Number(verdict.tasks) > 1 ? ` in ${verdict.tasks} tasks` : '';
  const row = query.byId.get(verdict.operator_id);
  const what = row ? describe(row) : { title: `Operator ${verdict.operator_id}`, subject: '' };
  return [
    <>{what.title}{what.subject && ` ${clipped(what.subject, 60)}`} did {share(verdict.share)} of the work: {duration(verdict.self_ns)} of {duration(verdict.busy_ns)}{tasks}. The query took {elapsed}.</>,
    { operator_id: verdict.operator_id, fragment_id: null, partition: null, worker_id: null },
  ];
}

function Badges(): JSX.Element {
  const { info } = useQuery();
  const badges: [string, string, string][] = [];
  if (info.status !== 'finished') badges.push(['bad', info.status, 'The profile ends where the query did: totals are of what ran until then.']);
  if (info.lost_workers) badges.push(['bad', `lost worker ${info.lost_workers}`, 'What a lost worker recorded is missing everywhere on this page.']);
  if (info.events_dropped > 0) badges.push(['warn', 'incomplete', `${count(info.events_dropped)} events were dropped since the profiler's memory was full: every number is a lower bound. Lower profile.sample_rate.`]);
  if (info.sample_rate !== null && info.sample_rate < 1 && info.profile_level === 'records') badges.push(['warn', `sampled ${share(info.sample_rate)}`, 'Only this share of the records was traced. An expensive record may be missing: run again with SAMPLE 1.']);
  if (info.given_up) badges.push(['warn', `without ${info.given_up}`, 'The planner would have done this, but every row had to be seen. At level counters the query does it.']);
  if (info.imported_from) badges.push(['', 'imported', `From ${info.imported_from}. The tables are not here, so no statement about them can run.`]);
  return <>{badges.map(([look, text, why]) => <span key={text} class={`badge ${look}`} title={why}>{text}<span class="visually-hidden">: {why}</span></span>)}</>;
}

/** Cores busy on average; never more than there are. */
function cores(cpu: number, execution: number | null, all: number | null): string | undefined {
  if (!execution) return undefined;
  const busy = Math.min(cpu / execution, all ?? Infinity);
  return `${busy.toFixed(2)}${all === null ? '' : ` of ${Number(all.toFixed(1))}`} cores busy`;
}

/** What the levels below records cannot say. */
function advice(level: string, id: number): string | undefined {
  if (level === 'off') return `To see where the time goes: EXPLAIN PROFILE QUERY ${id}, or SET profile.level = 'counters'.`;
  return undefined;
}

export function Summary(): JSX.Element {
  const query = useQuery();
  const { info } = query;
  const parameters = { query_id: query.id };
  const diagnoses = useView<Finding>('diagnoses', parameters);
  const verdict = useView<Verdict>('verdict', parameters);
  const split = useView<Part>('time_split', parameters);
  const record = diagnoses.rows?.find((found) => found.place === 1 && found.rule === 'expensive input');
  const without = useView<Without>('what_if', record && { query_id: query.id, table_name: record.table_name ?? '', row_ids: String(record.row_id ?? 0) });
  const parts = useRows(split, (rows) => slices(query, rows), query) ?? [];
  const busy = verdict.rows?.[0]?.busy_ns ?? null;
  const cpu = verdict.rows?.[0]?.cpu_ns ?? null;
  // The estimate without the record comes later, at the end of the sentence. Diagnoses may fail alone, as in an exported file without them: the operator then has the word.
  const ready = (diagnoses.rows || diagnoses.error) && (verdict.rows || verdict.error) && (split.rows || split.error);
  const [text, place] = ready ? sentence(query, diagnoses.rows ?? [], verdict.rows?.[0], parts, without) : [undefined, undefined];
  const { first, more, harmless } = sorted(diagnoses.rows ?? []);
  const [main, ...also] = first;
  const others = more.length + first.reduce((sum, { explains }) => sum + explains.length, 0) - (main?.explains.length ?? 0);
  const queued = info.queued_ns;
  const numbers: [string, string, string?][] = [
    ['Planning', duration(info.planning_ns)],
    ...(queued ? [['Queue', duration(queued)] as [string, string]] : []),
    ['Execution', duration(info.execution_ns)],
    ...(cpu === null ? [] : [['Processor time', duration(cpu), cores(cpu, info.execution_ns, verdict.rows?.[0]?.cores ?? null)] as [string, string, string?]]),
    ['Rows returned', count(info.rows_returned)],
    ['Between workers', bytes(info.crossed_bytes ?? 0), info.crossed_rows ? plural(info.crossed_rows, 'row') : 'no rows'],
    ['Level', info.profile_level, info.overhead_ns ? `recording took ${duration(info.overhead_ns)}${busy ? `, ${share(info.overhead_ns / busy)} of the work` : ''}` : undefined],
  ];
  const elapsed = duration((info.queued_ns ?? 0) + (info.planning_ns ?? 0) + (info.execution_ns ?? 0));
  // What is known before the findings are: they take the longest.
  const meanwhile = !ready && verdict.rows && split.rows ? <>Meanwhile: {sentence(query, [], verdict.rows[0], parts, without)[0]}</> : undefined;
  const cause = ready ? <Headline place={place}>{text}</Headline> : <span class="faint">Looking for the cause…</span>;
  const hint = advice(info.profile_level, query.id);
  return (
    <Panel id="summary" class="summary" title={`Query ${query.id}`} views={[verdict, diagnoses, split, ...(record ? [without] : [])].filter((view) => !view.error && view.rows)} tools={<Badges />}>
      {info.status === 'finished'
        ? <h1 class="verdict" aria-busy={!ready}>{cause}</h1>
        : <>
          <h1 class="verdict"><span class={info.status === 'failed' ? 'bad' : 'warn'}>{info.status === 'failed' ? `Failed after ${elapsed}: ${info.error}` : `Cancelled after ${elapsed}`}.</span></h1>
          <p class="until" aria-busy={!ready}>Until then: {cause}</p>
        </>}
      {main && <p class="do">{readable(main.found.advice)}</p>}
      {main && <details class="evidence">
        <summary>Evidence{main.explains.length > 0 && `; explains ${plural(main.explains.length, 'more finding')}`}</summary>
        <Copy name="Evidence" sql={main.found.evidence_sql} />
        {main.found.zoom_sql && <Copy name="Closer look" sql={main.found.zoom_sql} />}
        {main.explains.length > 0 && <ul>{main.explains.map((found) => <li key={found.number}><Headline place={found}>{sentenceOf(query, found)}</Headline></li>)}</ul>}
      </details>}
      {also.length > 0 && <ul class="also" aria-label="Other findings">
        {also.map(({ found }) => <li key={found.number}><Headline place={found}>{sentenceOf(query, found)}</Headline></li>)}
      </ul>}
      <p class="more">
        {others + harmless.length > 0 && <Link to={`/q/${query.id}?tab=diagnoses`}>{[others > 0 && plural(others, 'more finding'), harmless.length > 0 && `${harmless.length} harmless`].filter(Boolean).join(', ')}</Link>}
        {others + harmless.length === 0 && <span class="faint">{ready && !diagnoses.error && !also.length ? 'No other findings.' : meanwhile ?? '\u00a0'}</span>}
        {hint && <span class="faint"> {hint}</span>}
        {diagnoses.error && <span class="warn"> Findings could not be read: {diagnoses.error}</span>}
      </p>
      <dl class="numbers">
        {numbers.map(([name, value, more]) => <div key={name}><dt>{name}</dt><dd>{value}{more && <small>{more}</small>}</dd></div>)}
      </dl>
      <Split parts={parts} error={split.error} />
      <details class="text">
        <summary><span>SQL</span> <code>{clipped(info.sql.replace(/\s+/g, ' '), 300)}</code></summary>
        <pre tabIndex={0} aria-label="SQL of the query">{info.sql}</pre>
      </details>
    </Panel>
  );
}

const SMALL = 0.004;

/** The elapsed time as one bar. A click selects the operators of a part. */
function Split({ parts, error }: { parts: Slice[]; error: string | undefined }): JSX.Element {
  const press = (slice: Slice, more: boolean) => {
    const now = selection.value.operators;
    const same = slice.operators.length === now.size && slice.operators.every((id) => now.has(id));
    selection.value = { ...selection.value, operators: new Set(same ? [] : [...(more ? now : []), ...slice.operators]) };
  };
  const chosen = selection.value.operators;
  const on = (slice: Slice) => slice.operators.some((id) => chosen.has(id) || hovered.value.operator === id);
  const dims = chosen.size > 0 && parts.some(on);
  if (error) return <p class="message bad">{error}</p>;
  return (
    <figure class="split">
      <figcaption>Elapsed time along the critical path</figcaption>
      <div class="bar" aria-hidden="true">
        {parts.map((slice) => (
          <span
            key={slice.look + slice.name} class={`part look-${slice.look}${dims && !on(slice) ? ' dim' : ''}`} style={{ flexGrow: slice.ns }}
            title={`${slice.name}: ${duration(slice.ns)}, ${share(slice.share)}`} onClick={(event) => slice.operators.length && press(slice, event.shiftKey || event.ctrlKey)}
          />
        ))}
      </div>
      <ul class="legend" aria-label="Parts of the elapsed time">
        {[...parts].filter((slice) => slice.share >= SMALL).map((slice) => (
          <li key={slice.look + slice.name}>
            <button type="button" disabled={!slice.operators.length} aria-pressed={chosen.size > 0 && on(slice)} onClick={(event) => press(slice, event.shiftKey || event.ctrlKey)}>
              <i class={`part look-${slice.look}`} /> {slice.name} <b>{duration(slice.ns)}</b> <span>{share(slice.share)}</span>
            </button>
          </li>
        ))}
      </ul>
    </figure>
  );
}
