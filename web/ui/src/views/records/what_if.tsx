// What the query would take without some records: an estimate at once, and the truth on demand.
import { signal, useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useView, type Params } from '../../data';
import { count, duration, plural, share, times } from '../../format';
import { Link, Panel } from '../../panel';
import type { Query } from '../../query';
import { source } from '../../source';
import { bounds, checked, isChecked, tableName, toggle, type Scope } from './scope';

interface Blame {
  rank: number;
  table_name: string;
  predicate: string;
  matched_rows: number;
  row_share: number;
  latency_share: number;
  query_ns: number;
  without_ns: number;
  verify: string | null;
}

interface Verified {
  query: number;
  what: string;
  low_ns: number;
  high_ns: number;
  statement: string;
  query_id: number;
  before_ns: number;
  after_ns: number;
  rows_excluded: number;
}

interface Answer {
  statement: string;
  query_id: number;
  before_ns: number;
  after_ns: number;
  rows_excluded: number;
}

/** Runs that were verified, as long as the page is open. */
const verified = signal<readonly Verified[]>([]);
const running = signal<string | undefined>(undefined);

interface Cover {
  records: number;
  matched_records: number;
  time_ns: number;
  matched_ns: number;
}

/** The parts of a predicate as sys.blame writes them; undefined for what the view cannot compare, as times. */
function parts(predicate: string): Params | undefined {
  const match = /^(?:(?:character_)?(length)\()?("(?:[^"]|"")+"|[a-z_][a-z0-9_]*)\)? (?:(IS NULL)|(>|<|=) ('(?:[^']|'')*'|-?[\d.e+-]+)|(BETWEEN) (-?[\d.e+-]+) AND (-?[\d.e+-]+))$/.exec(predicate);
  if (!match) return undefined;
  const [, of, column, missing, compare, value, between, low, high] = match;
  const text = (quoted: string) => (/^['"]/.test(quoted) ? quoted.slice(1, -1).replace(/(['"])\1/g, '$1') : quoted);
  return {
    column: text(column!), of: of ?? 'value', compare: missing ?? compare ?? between!,
    first: value !== undefined ? text(value) : low ?? 'NULL', second: high ?? 'NULL',
  };
}

/** How much of the selected range a predicate covers. */
function Covers({ scope, predicate }: { scope: Scope; predicate: string }): JSX.Element {
  const read = parts(predicate);
  const view = useView<Cover>('predicate_cover', read && { query_id: scope.query.id, table_name: scope.source, table: scope.source, ...bounds(scope), ...read });
  const row = view.rows?.[0];
  return <td title={row && `${count(row.matched_records)} of ${plural(row.records, 'record')} of the range, ${duration(row.matched_ns)} of ${duration(row.time_ns)}`}>
    {row ? `${share(row.matched_records / Math.max(row.records, 1))}, ${share(row.matched_ns / Math.max(row.time_ns, 1))} of time` : view.loading ? '…' : '–'}
  </td>;
}

export function WhatIf({ query, range }: { query: Query; range: Scope | undefined }): JSX.Element {
  const blame = useView<Blame>('record_blame', query.info.imported_from ? undefined : { query_id: query.id });
  const failure = useSignal('');
  const now = checked.value.query === query.id ? checked.value : undefined;
  const ofTable = (blame.rows ?? []).filter((row) => now?.predicates.includes(row.predicate) && row.table_name === now.table);
  const rows = useView<{ query_ns: number; without_ns: number }>('what_if', now?.rows.length
    ? { query_id: query.id, table_name: now.table, row_ids: [...now.rows].sort().join(',') } : undefined);
  const queryNs = (query.info.planning_ns ?? 0) + (query.info.execution_ns ?? 0);
  const rowsNs = now?.rows.length && !rows.loading && !rows.error ? rows.rows?.[0]?.without_ns : undefined;
  const rests = [...ofTable.map((row) => row.without_ns), ...(rowsNs === undefined ? [] : [rowsNs])];
  // Causes may share rows: together they save at least what the best saves, at most the sum.
  const high = rests.length ? Math.min(...rests) : undefined;
  const low = rests.length ? Math.max(queryNs - rests.reduce((sum, part) => sum + queryNs - part, 0), query.info.planning_ns ?? 0, 0) : undefined;
  const names = now ? [...now.predicates, ...(now.rows.length > 3 ? [plural(now.rows.length, 'row')] : now.rows.map((id) => `row ${id}`))] : [];
  const what = names.join(', ');
  const predicate = now && [...now.predicates.map((text) => (names.length > 1 ? `(${text})` : text)), ...(now.rows.length ? [`_row_id IN (${now.rows.join(', ')})`] : [])].join(' OR ');
  const waits = !!now?.rows.length && rows.loading;

  const verify = async () => {
    if (!now || high === undefined || low === undefined) return;
    running.value = what;
    failure.value = '';
    try {
      const body = { query_id: query.id, table_name: now.table, predicates: now.predicates, row_ids: now.rows };
      const answer = (await source.act('verify', body)) as Answer;
      verified.value = [{ ...answer, query: query.id, what: `${tableName(now.table)}: ${what}`, low_ns: rests.length > 1 ? low : high, high_ns: high }, ...verified.value];
    } catch (error) {
      failure.value = error instanceof Error ? error.message : String(error);
    }
    running.value = undefined;
  };

  const bar = (text: string, from: number, to: number, kind: string) => (
    <div class={`time ${kind}`}>
      <span>{text}</span>
      <b><i style={{ width: `${Math.min(to / queryNs, 1) * 100}%` }} />{to > from && <i class="perhaps" style={{ left: `${(from / queryNs) * 100}%`, width: `${((to - from) / queryNs) * 100}%` }} />}</b>
      <span class="number">{to > from ? `${duration(from)} – ${duration(to)}` : duration(to)}</span>
    </div>
  );
  // A view that still loads, or failed, must not hide the rest: predicates may take a minute to find.
  const shown = [...(blame.rows && !blame.error ? [blame] : []), ...(now?.rows.length && rows.rows && !rows.error ? [rows] : [])];
  const results = verified.value.filter((run) => run.query === query.id);
  return (
    <Panel id="what-if" title="What if without them?" views={shown} class="what-if"
      note="Check predicates here, or records above and below. The estimate leaves out their part of each task; Verify runs the query without them, at the same level: its time has recording in it.">
      <div class="wide" tabIndex={0} role="region" aria-label="Predicates"><table class="plain predicates">
        <thead><tr><th scope="col"><span class="visually-hidden">Leave out</span></th><th scope="col" class="text">Rows of</th><th scope="col" class="text">that satisfy</th>
          <th scope="col" class="number">Rows</th><th scope="col" class="number">Share of time</th>{range && <th scope="col" class="number">Of the range</th>}<th scope="col" class="number">Query without them</th></tr></thead>
        <tbody>
          {blame.rows?.map((row) => (
            <tr key={row.rank}>
              <td><input type="checkbox" aria-label={`Leave out ${row.predicate}`} checked={isChecked(query.id, row.table_name, 'predicates', row.predicate)} onChange={() => toggle(query.id, row.table_name, 'predicates', row.predicate)} /></td>
              <td class="text">{tableName(row.table_name)}</td><td class="text"><code>{row.predicate}</code></td>
              <td>{count(row.matched_rows)} ({share(row.row_share)})</td><td>{share(row.latency_share)}</td>
              {range && (row.table_name === range.source ? <Covers scope={range} predicate={row.predicate} /> : <td>–</td>)}
              <td>{duration(row.without_ns)}</td>
            </tr>
          ))}
        </tbody>
      </table></div>
      {blame.error ? <p class="message warn">{blame.error}</p>
        : !blame.rows ? query.info.imported_from ? <p class="message">This profile was imported: its tables are not here, so no predicate is found.</p> : <p class="message" aria-live="polite">Looking for predicates in the tables. This reads them whole.</p>
          : blame.rows.length === 0 ? <p class="message">No predicate over one column separates the dear records from the others.</p> : null}
      <div class="estimate" aria-live="polite">
        {bar('With them', queryNs, queryNs, 'before')}
        {high === undefined || low === undefined
          ? <p class="faint">{waits ? 'Estimating…' : rows.error && now?.rows.length ? rows.error : 'Nothing is checked.'}</p>
          : bar(rests.length > 1 ? 'Without them, about' : 'Without, about', rests.length > 1 ? low : high, high, 'after')}
        {results.map((run) => (
          <div key={run.query_id} class="verified">
            {bar('Measured', run.after_ns, run.after_ns, 'measured')}
            <p>
              Without {run.what} ({plural(run.rows_excluded, 'row')}) the query took <strong>{duration(run.after_ns)}</strong> instead of {duration(run.before_ns)}
              {run.after_ns > 0 && `, ${times(run.before_ns / run.after_ns)} as fast`}. The estimate was {run.low_ns < run.high_ns ? `${duration(run.low_ns)} to ${duration(run.high_ns)}` : duration(run.high_ns)}.{' '}
              {(run.after_ns > 1.25 * run.high_ns || run.after_ns < 0.75 * run.low_ns) && 'They differ: the estimate may be wrong, the measured run includes recording, and the load of the machine may have changed. Verify again to see how much runs vary. '}
              <Link to={`/q/${run.query_id}`}>Open query {run.query_id}</Link>
            </p>
            <pre tabIndex={0} aria-label="The statement that ran">{run.statement}</pre>
          </div>
        ))}
      </div>
      {now && names.length > 0 && (
        <p class="verify">
          {source.kind === 'server' && !query.info.imported_from && <button type="button" class="primary" disabled={running.value !== undefined || high === undefined} onClick={() => void verify()}>
            {running.value !== undefined ? 'Running…' : 'Verify: run the query without them'}
          </button>}{' '}
          <button type="button" onClick={() => { checked.value = { ...now, rows: [], predicates: [] }; }}>Uncheck all</button>{' '}
          <code>{tableName(now.table)} ({predicate})</code>
        </p>
      )}
      {failure.value && <p class="message bad" role="alert">{failure.value}</p>}
    </Panel>
  );
}
