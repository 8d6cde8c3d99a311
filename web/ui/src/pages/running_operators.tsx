// Partial counters of the operators of a statement that runs: own time as a bar, rows beside it.
import type { JSX } from 'preact';
import { useView } from '../data';
import { count, duration } from '../format';
import './running_operators.css';

interface OperatorNow {
  operator_id: number;
  name: string | null;
  kind: string | null;
  ended: number;
  partitions: number;
  calls: number;
  rows_out: number;
  self_ns: number;
  most_ns: number;
  least_ns: number;
}

export function Operators({ query }: { query: number }): JSX.Element {
  const view = useView<OperatorNow>('running_operators', { query_id: query }, 500);
  const rows = view.rows ?? [];
  const most = Math.max(...rows.map((row) => row.self_ns), 1);
  if (view.error) return <p class="message bad" role="alert">{view.error}</p>;
  return (
    <ol class="operators" aria-label={`Operators of query ${query} so far`}>
      {rows.map((row) => (
        <li key={row.operator_id}>
          <span class="number">{row.operator_id}</span>
          <span>{(row.kind && row.kind !== 'other' ? row.kind : row.name?.replace(/Exec$/, '')) ?? ''}{row.ended === row.partitions ? <span class="faint"> ended</span> : ''}</span>
          <span class="length"><span class="bar" style={{ width: `${((row.self_ns / most) * 100).toFixed(1)}%` }} /></span>
          <span class="number">{duration(row.self_ns)}</span>
          <span class="number">{count(row.rows_out)} rows</span>
          <span class="number faint">{row.partitions > 1 ? `${duration(row.least_ns)} to ${duration(row.most_ns)} in ${row.partitions} partitions` : ''}</span>
        </li>
      ))}
    </ol>
  );
}
