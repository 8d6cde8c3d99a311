// The records that stand out, as sentences. Each selects its record.
import type { JSX } from 'preact';
import { useView, type Int } from '../../data';
import { count, duration, plural, times } from '../../format';
import { Panel } from '../../panel';
import type { Query } from '../../query';
import { Method } from './dearest';
import { isChecked, isPicked, pick, reveal, tableName, toggle } from './scope';

interface Anomaly {
  table_name: string;
  row_id: Int | null;
  reason: string;
  cost_ns: number;
  threshold_ns: number;
  impact_ns: number | null;
  outputs: number | null;
  self_ns: number | null;
  method: string | null;
  error_ns: number | null;
  median_ns: number | null;
  rows_made: number | null;
  table_rows: number | null;
  apportioned_ns: number | null;
  query_ns: number;
  operator_id: number | null;
  unknown: string | null;
}

const UNKNOWN: Record<string, string> = {
  'no log': 'no log of records was kept',
  sampled: 'the records were sampled',
  'left out': 'most rows were left out before lineage was recorded',
  'no lineage': 'its rows have no lineage',
  'not counted': 'memory did not suffice to count them',
};

function sentence(row: Anomaly): string {
  const table = tableName(row.table_name);
  if (row.row_id === null) return `Operators took ${duration(row.cost_ns)} for rows that come from ${table}. From which records is unknown: ${UNKNOWN[row.unknown ?? ''] ?? row.unknown}.`;
  const fan = row.rows_made === null ? '' : `It became ${count(row.rows_made)} of the ${count(row.table_rows)} rows that come from ${table}; operators took ${duration(row.apportioned_ns)} for them.`;
  if (row.reason === 'critical path') return `kept a result row waiting for ${duration(row.impact_ns)} of the ${duration(row.query_ns)} that the query took. ${fan}`;
  if (row.reason === 'self time') return `took ${duration(row.self_ns)} by itself${row.median_ns ? `, ${times((row.self_ns ?? 0) / row.median_ns)} the median record` : ''}. ${fan}`;
  return fan.replace(/^It b/, 'b');
}

export function Anomalies({ query }: { query: Query }): JSX.Element {
  const view = useView<Anomaly>('record_anomaly', { query_id: query.id });
  const found = view.rows?.filter((row) => row.row_id !== null).length ?? 0;
  const sampled = (query.info.sample_rate ?? 1) < 1;
  return (
    <Panel
      id="record-anomalies" title="Records that stand out" views={[view]}
      empty={<p><span class="good" aria-hidden="true">✓ </span>No {sampled ? 'traced ' : ''}record stands out by the wait that it caused, its own time, or the rows made of it.</p>}
    >
      <ul class="anomalies">
        {view.rows?.map((row, i) => {
          if (row.row_id === null) return <li key={i}><span class="warn" aria-hidden="true">○</span><p>{sentence(row)}</p></li>;
          const id = String(row.row_id);
          return (
            <li key={i} class={isPicked(row.table_name, id) ? 'picked' : ''}>
              <span class="bad" aria-hidden="true">●</span>
              <p>
                <button type="button" class="link" aria-pressed={isPicked(row.table_name, id)} onClick={() => { pick(row.table_name, id); reveal(); }}>Row {id} of {tableName(row.table_name)}</button>{' '}
                {sentence(row)}{' '}
                <span class="faint">{row.reason}: {duration(row.cost_ns)}; a record stands out from {duration(row.threshold_ns)} on{row.outputs ? `; it affects ${plural(row.outputs, 'result row')}` : ''}.</span>{' '}
                {row.self_ns !== null && <>Own time {duration(row.self_ns)} <Method method={row.method} error={row.error_ns} /></>}
              </p>
              <label class="leave"><input type="checkbox" checked={isChecked(query.id, row.table_name, 'rows', id)} onChange={() => toggle(query.id, row.table_name, 'rows', id)} /> What if without it?</label>
            </li>
          );
        })}
      </ul>
      {found === 0 && view.rows?.length ? <p class="message">No single record stands out.</p> : null}
    </Panel>
  );
}
