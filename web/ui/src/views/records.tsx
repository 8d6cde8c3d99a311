// The Records tab: which single records made the query slow, why, and what it would take without them.
import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { useView, type Int } from '../data';
import { count, duration, plural, share } from '../format';
import { Link, Panel } from '../panel';
import { useQuery, type Query } from '../query';
import { search } from '../state';
import { Anomalies } from './records/anomalies';
import { Cards } from './records/card';
import { Columns } from './records/columns';
import { Dearest } from './records/dearest';
import { Histogram } from './records/histogram';
import { Lineage } from './records/lineage';
import './records/records.css';
import { bounds, isTable, readRange, recordName, tailOf, type Bin, type Dear, type Measure, type Scope } from './records/scope';
import { WhatIf } from './records/what_if';

export function Records(): JSX.Element {
  const query = useQuery();
  const { info } = query;
  if (info.profile_level !== 'records') return <NotRecorded query={query} />;
  if (info.lineage === 'piggyback') return <Piggyback query={query} />;
  return <Recorded key={query.id} query={query} />;
}

/** A statement that can be copied. */
function Statement({ children }: { children: string }): JSX.Element {
  return <p class="statement"><code>{children}</code> <button type="button" onClick={() => void navigator.clipboard?.writeText(children)}>Copy</button></p>;
}

function Explained({ head, children }: { head: string; children: ComponentChildren }): JSX.Element {
  return <section class="panel explained" aria-label={head}><header><h2>{head}</h2></header><div class="content">{children}</div></section>;
}

/** Statements that changed something are not run again. */
const runsAgain = (query: Query) => /^\s*(\(|select|with|values|table)\b/i.test(query.info.sql);

function Again({ query, before }: { query: Query; before?: string }): JSX.Element {
  if (query.info.imported_from) return <p>This profile was imported from {query.info.imported_from}. Record it where its tables are.</p>;
  if (!runsAgain(query)) return <><p>The statement changed something, so it cannot run again by its number. Before it runs next time:</p><Statement>SET profile.level = 'records'</Statement></>;
  return <>{before && <Statement>{before}</Statement>}<Statement>{`EXPLAIN PROFILE QUERY ${query.id}`}</Statement></>;
}

function NotRecorded({ query }: { query: Query }): JSX.Element {
  return (
    <Explained head={`Level ${query.info.profile_level} has no records`}>
      <p>At level <code>records</code>, Skewer times single rows and logs which result rows were made from which rows of the tables. It can then name the rows that made a query slow, say what sets them apart, and estimate the query without them. Run the query again to record that:</p>
      <Again query={query} />
      <p class="faint">It runs again on the table versions that it read, as long as they are kept, and gets a new number. Recording takes some of its time; what it took is subtracted from estimates.</p>
    </Explained>
  );
}


function Piggyback({ query }: { query: Query }): JSX.Element {
  return (
    <>
      <Explained head="This run kept no log of records">
        <p>With <code>profile.lineage = 'piggyback'</code>, each record carries only its total latency, the record that it waited for most, and its latency without that one. The records that stand out are below. There is no histogram, no lineage and no estimate. For these, keep a log:</p>
        <Again query={query} before="SET profile.lineage = 'log'" />
      </Explained>
      <Anomalies query={query} />
      <Ranked query={query} />
    </>
  );
}

interface Rank {
  rank: number;
  table_name: string;
  row_id: Int;
  impact_ns: number;
  max_total_ns: number;
  max_remediated_ns: number;
  outputs: number;
}

/** What a run without a log knows: the records that result rows waited for. */
function Ranked({ query }: { query: Query }): JSX.Element {
  const view = useView<Rank>('record_ranked', { query_id: query.id });
  return (
    <Panel id="record-ranked" title="Records that result rows waited for" views={[view]} empty={<p>No result row waited for a record of a table.</p>}>
      <table class="plain">
        <thead><tr><th scope="col" class="text">Record</th><th scope="col" class="number">Kept waiting for</th><th scope="col" class="number">Slowest row with it</th>
          <th scope="col" class="number">without it</th><th scope="col" class="number">Result rows</th></tr></thead>
        <tbody>{view.rows?.map((row) => (
          <tr key={`${row.table_name} ${row.row_id}`}>
            <td class="text">{recordName({ source: row.table_name, id: String(row.row_id) })}</td><td>{duration(row.impact_ns)}</td>
            <td>{duration(row.max_total_ns)}</td><td>{duration(row.max_remediated_ns)}</td><td>{count(row.outputs)}</td>
          </tr>
        ))}</tbody>
      </table>
    </Panel>
  );
}

/** What makes the picture incomplete. */
function Caveats({ query }: { query: Query }): JSX.Element | null {
  const { info } = query;
  const rate = info.sample_rate ?? 1;
  const lines: ComponentChildren[] = [];
  if (rate < 1) lines.push(<>Only {share(rate)} of the rows were traced, chosen by a hash of their row ids. Dear rows may be among the others. Trace all of them: <code>EXPLAIN PROFILE (SAMPLE 1) QUERY {query.id}</code></>);
  if (info.events_dropped > 0) lines.push(<>{plural(info.events_dropped, 'event')} were dropped since memory for recording was full. What is shown is incomplete. Trace fewer rows: <code>EXPLAIN PROFILE (SAMPLE 0.1) QUERY {query.id}</code></>);
  if (info.lost_workers) lines.push(<>Worker {info.lost_workers} was lost: its records are missing. Run the query again: <code>EXPLAIN PROFILE QUERY {query.id}</code></>);
  if (info.status !== 'finished') lines.push(<>The query {info.status === 'failed' ? 'failed' : 'was cancelled'}: records that it had not reached are missing.</>);
  if (info.imported_from) lines.push(<>This profile was imported from {info.imported_from}. Its tables are not here, so no row is shown and no predicate is found.</>);
  return lines.length ? <ul class="caveats">{lines.map((line, i) => <li key={i}>{line}</li>)}</ul> : null;
}

/** Content that takes the server long: it is asked for when it comes near the screen. */
function Later({ children }: { children: ComponentChildren }): JSX.Element {
  const near = useSignal(false);
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const observer = new IntersectionObserver(([entry]) => {
      if (entry!.isIntersecting) near.value = true;
    }, { rootMargin: '300px' });
    observer.observe(element.current!);
    return () => observer.disconnect();
  }, []);
  return <div ref={element} class={near.value ? '' : 'later panel'}>{near.value && children}</div>;
}

const MEASURES: readonly Measure[] = ['expressions', 'operators', 'groups'];

function Recorded({ query }: { query: Query }): JSX.Element {
  const wished = MEASURES.find((name) => name === search.value['measure']);
  const expressions = useView<Bin>('record_histogram', wished && wished !== 'expressions' ? undefined : { query_id: query.id, measure: 'expressions' });
  // Without expressions over single rows, groups tell more than time by rows.
  const fallback = expressions.rows?.length === 0 && !wished;
  const groups = query.plan.some((row) => row.kind === 'aggregate');
  const measure = wished ?? (fallback ? (groups ? 'groups' : 'operators') : 'expressions');
  const other = useView<Bin>('record_histogram', measure === 'expressions' ? undefined : { query_id: query.id, measure });
  const view = measure === 'expressions' ? expressions : other;
  const times = new Map<string, number>();
  for (const row of view.rows ?? []) times.set(row.source, (times.get(row.source) ?? 0) + row.time_ns);
  const sources = [...times.keys()].sort((a, b) => times.get(b)! - times.get(a)!);
  const asked = search.value['source'];
  const source = asked && times.has(asked) ? asked : sources[0] ?? '';
  const [low, high] = readRange();
  const scope: Scope = { query, measure, source, low, high };
  const tail = useMemo(() => tailOf((view.rows ?? []).filter((row) => row.source === source)), [view.rows, source]);
  const dear = useView<Dear>('record_dearest', source ? { query_id: query.id, measure, source, ...bounds(scope) } : undefined);
  return (
    <div class="records">
      <Caveats query={query} />
      <Anomalies query={query} />
      {fallback && <p class="fallback">No expression of this query was timed for single rows. {measure === 'groups' ? 'Its groups are shown.' : 'The time of other operators is shown, apportioned by rows.'}</p>}
      <Histogram view={view} scope={scope} sources={sources} />
      {source && <Dearest key={measure} view={dear} scope={scope} />}
      <Cards query={query} />
      {source && isTable(source) && measure === 'expressions' && !query.info.imported_from && <Later key={source}><Columns scope={scope} tail={tail} /></Later>}
      <Later><WhatIf query={query} range={measure === 'expressions' && (low !== undefined || high !== undefined) ? scope : undefined} /></Later>
      <Later><Lineage query={query} /></Later>
      <p class="faint">How latencies are found: docs/record-level.md. Runs that are like this one: <Link to="/">all statements</Link>.</p>
    </div>
  );
}
