// Cards of the selected records: the row, what operators took for it, what was made of it, what it was made from.
import type { JSX } from 'preact';
import { useView, type Int, type Row } from '../../data';
import { count, duration, plural, share } from '../../format';
import { Panel } from '../../panel';
import { title, type Query } from '../../query';
import { select, selection, selectRecords } from '../../state';
import { Cell, Method } from './dearest';
import { groupName, isChecked, makerOf, pick, readRef, recordName, sourceName, toggle, writeRef, type Ref } from './scope';

const SHOWN = 5;

export function Cards({ query }: { query: Query }): JSX.Element | null {
  const refs = [...selection.value.records].map(readRef).filter((ref): ref is Ref => ref !== undefined);
  if (!refs.length) return null;
  return (
    <div class="cards">
      {refs.slice(-SHOWN).reverse().map((ref) => <Card key={writeRef(ref.source, ref.id)} query={query} of={ref} />)}
      {refs.length > SHOWN && <p class="message">The last {SHOWN} of {refs.length} selected records are shown.</p>}
    </div>
  );
}

function Card({ query, of }: { query: Query; of: Ref }): JSX.Element {
  if (of.source === 'result') return <ResultCard query={query} of={of} />;
  return makerOf(of.source) === undefined ? <BaseCard query={query} of={of} /> : <GroupCard query={query} of={of} />;
}

const close = (of: Ref) => {
  const left = new Set(selection.value.records);
  left.delete(writeRef(of.source, of.id));
  selectRecords(left);
};

const Close = ({ of }: { of: Ref }) => <button type="button" aria-label={`Close ${recordName(of)}`} onClick={() => close(of)}>Close</button>;

interface Passed {
  operator_id: number;
  latency_ns: number;
  kind: string;
  method: string;
  error_ns: number | null;
  times: number;
}

interface Impact {
  impact_ns: number;
  max_total_ns: number;
  max_remediated_ns: number;
  outputs: number;
  rank: number;
}

function BaseCard({ query, of }: { query: Query; of: Ref }): JSX.Element {
  const key = { query_id: query.id, table_name: of.source, row_id: of.id };
  const timed = useView<Passed>('record_operators', { ...key, measure: 'expressions' });
  const apportioned = useView<Passed>('record_operators', { ...key, measure: 'operators' });
  const impact = useView<Impact>('record_impact', key);
  const makes = useView<{ output_row: Int; outputs: number }>('record_makes', key);
  const imported = query.info.imported_from !== null;
  const values = useView<Row>('record_rows', imported ? undefined : { table: of.source, row_ids: of.id });
  const value = values.rows?.[0];
  const passed = [...(timed.rows ?? []), ...(apportioned.rows ?? [])].sort((a, b) => b.operator_id - a.operator_id);
  const most = Math.max(...passed.map((row) => row.latency_ns), 1);
  const own = timed.rows?.reduce((sum, row) => sum + row.latency_ns, 0) ?? 0;
  const waited = impact.rows?.[0];
  return (
    <Panel
      id={`record-${of.id}`} title={recordName(of).replace(/^r/, 'R')} views={[timed, apportioned]} class="card"
      tools={<>
        <label class="leave"><input type="checkbox" checked={isChecked(query.id, of.source, 'rows', of.id)} onChange={() => toggle(query.id, of.source, 'rows', of.id)} /> What if without it?</label>
        <Close of={of} />
      </>}
      note={<>
        Expressions took {duration(own)} on it.{' '}
        {waited ? `Result rows waited for it: the slowest took ${duration(waited.max_total_ns)}, without it ${duration(waited.max_remediated_ns)} (${plural(waited.outputs, 'result row')}).`
          : impact.rows ? 'No result row waited for it more than for any other record.' : impact.error ?? ''}
      </>}
    >
      <div class="two">
        <section aria-label="Its row">
          <h3>Its row</h3>
          {imported ? <p class="faint">This profile was imported: the table is not here.</p>
            : values.error ? <p class="warn">{values.error}</p>
              : value ? <dl class="facts">{values.columns.filter((name) => name !== '_row_id').map((name) => <div key={name}><dt>{name}</dt><dd title={String(value[name])}>{value[name] === null ? <span class="faint">NULL</span> : <Cell value={value[name]!} />}</dd></div>)}</dl>
                : <p class="faint">{values.rows ? 'The row was deleted or updated since: its id is no longer in the table.' : 'Loading…'}</p>}
        </section>
        <section aria-label="Makes">
          <h3>Makes</h3>
          {makes.error ? <p class="faint">{makes.error}</p> : !makes.rows ? <p class="faint">Loading…</p>
            : makes.rows.length === 0 ? <p class="faint">No result row was computed from it.</p>
              : <><p>{plural(makes.rows[0]!.outputs, 'result row')}{makes.rows[0]!.outputs > 20 ? ', the first 20:' : ':'}</p>
                <p class="chips">{makes.rows.map((row) => <button type="button" key={String(row.output_row)} onClick={() => pick('result', row.output_row, true)}>{count(row.output_row)}</button>)}</p></>}
        </section>
      </div>
      <h3>Operators that it passed</h3>
      <table class="plain passed">
        <thead><tr><th scope="col" class="text">Operator</th><th scope="col" class="number">Latency</th><th scope="col" class="text">Kind</th><th scope="col" class="text">Method, error</th></tr></thead>
        <tbody>
          {passed.map((row) => (
            <tr key={`${row.operator_id} ${row.method}`} class={selection.value.operators.has(row.operator_id) ? 'picked' : ''}>
              <td class="text"><button type="button" class="link" onClick={(event) => select('operators', row.operator_id, event.shiftKey)}>{row.operator_id} {query.byId.has(row.operator_id) ? title(query.byId.get(row.operator_id)!) : ''}</button></td>
              <td class="bar"><i style={{ width: `${(row.latency_ns / most) * 100}%` }} /><span>{duration(row.latency_ns)}</span></td>
              <td class="text">{row.kind}</td>
              <td class="text"><Method method={row.method} error={row.error_ns} />{row.times > 1 && <span class="faint"> {count(row.times)} times</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {apportioned.loading && !apportioned.rows && <p class="faint">Apportioning the time of other operators…</p>}
      {apportioned.error && <p class="faint">{apportioned.error}</p>}
    </Panel>
  );
}

interface Total {
  total_ns: number;
  computation_ns: number;
  shuffle_ns: number;
  remediated_ns: number;
  source_table: string | null;
  source_row_id: Int | null;
}

/** How a record's total latency came about, as a sentence. */
function Story({ total }: { total: Total | undefined }): JSX.Element {
  if (!total) return <>No latency is known of it.</>;
  return (
    <>
      Total latency {duration(total.total_ns)}: {duration(total.computation_ns)} in expressions, {duration(total.shuffle_ns)} in grouping, along the slowest way.
      {total.total_ns > 0 && total.remediated_ns > 0.95 * total.total_ns ? ' No single record made it slow: without the dearest one it takes as long.'
        : total.source_table && total.source_row_id !== null && <> Most of it came from{' '}
        <button type="button" class="link" onClick={() => pick(total.source_table!, total.source_row_id!, true)}>{recordName({ source: total.source_table, id: String(total.source_row_id) })}</button>;
        {' '}{total.remediated_ns ? `without that ${duration(total.remediated_ns)}.` : 'without that it would not exist.'}</>}
    </>
  );
}

/** Records that something was made from, each a link to its card. */
function Why({ rows, all }: { rows: readonly { source: string; id: string; latency_ns: number; edges?: number }[]; all: number }): JSX.Element {
  const most = Math.max(...rows.map((row) => row.latency_ns), 1);
  const none = rows.every((row) => !row.latency_ns);
  const shown = none ? rows.slice(0, 5) : rows;
  return (
    <>
      <h3>Why: made from {plural(all, 'record')}{all <= shown.length ? '' : none ? ', some of them' : `, the dearest ${shown.length}`}</h3>
      {none && <p class="faint">No expression was timed for them. The number of the records is what counts.</p>}
      <table class="plain passed"><tbody>
        {shown.map((row) => (
          <tr key={row.source + row.id}>
            <td class="text"><button type="button" class="link" onClick={() => pick(row.source, row.id, true)}>{recordName(row)}</button></td>
            <td class="bar"><i style={{ width: `${(row.latency_ns / most) * 100}%` }} /><span>{duration(row.latency_ns)}</span></td>
            <td class="text faint">{row.edges && row.edges > 1 ? plural(row.edges, 'edge') : ''}</td>
          </tr>
        ))}
      </tbody></table>
    </>
  );
}

function ResultCard({ query, of }: { query: Query; of: Ref }): JSX.Element {
  const key = { query_id: query.id, output_row: of.id };
  const total = useView<Total>('record_output', key);
  const why = useView<{ table_name: string; row_id: Int; latency_ns: number; records: number; all_ns: number }>('record_why', key);
  const first = why.rows?.[0];
  return (
    <Panel id={`result-${of.id}`} title={`Result row ${of.id}`} views={[why, total]} class="card" tools={<Close of={of} />}
      note={<>{total.rows ? <Story total={total.rows[0]} /> : total.error ?? 'Loading…'}{first && first.all_ns > 0 && ` The dearest record has ${share(first.latency_ns / first.all_ns)} of the time that expressions took on its way there.`}</>}>
      {why.rows && <Why rows={why.rows.map((row) => ({ source: row.table_name, id: String(row.row_id), latency_ns: row.latency_ns }))} all={first?.records ?? 0} />}
    </Panel>
  );
}

function GroupCard({ query, of }: { query: Query; of: Ref }): JSX.Element {
  const operator = makerOf(of.source)!;
  const key = { query_id: query.id, operator_id: operator, record_id: of.id };
  const total = useView<Total & { edges: number }>('record_group', key);
  const inputs = useView<{ input_operator_id: number; table_name: string | null; input_id: Int; edges: number; latency_ns: number; records: number }>('record_inputs', key);
  const edges = total.rows?.[0]?.edges;
  return (
    <Panel id={`group-${of.id}`} title={groupName(of.id).replace(/^g/, 'G')} views={[inputs, total]} class="card" tools={<Close of={of} />}
      note={<>Made by {sourceName(of.source, query).replace('groups of ', '')}{edges !== undefined && ` from ${plural(edges, 'row')}`}. {total.rows ? <Story total={total.rows[0]} /> : total.error ?? 'Loading…'}</>}>
      {inputs.rows && <Why rows={inputs.rows.map((row) => ({ source: row.table_name ?? `operator ${row.input_operator_id}`, id: String(row.input_id), latency_ns: row.latency_ns, edges: row.edges }))} all={inputs.rows[0]?.records ?? 0} />}
    </Panel>
  );
}
