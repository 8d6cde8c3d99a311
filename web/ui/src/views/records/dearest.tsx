// The dearest records of the range, with the columns of their table.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { useView, type Row, type Value, type View } from '../../data';
import { count, duration, plural, share, short } from '../../format';
import { Panel } from '../../panel';
import { groupName, isChecked, isPicked, isTable, pick, tableName, toggle, type Dear, type Scope } from './scope';

/** By how much a latency may be off, and how it was found. */
export function Method({ method, error }: { method: string | null; error: number | null }): JSX.Element {
  const means: Record<string, string> = {
    measured: 'Timed by itself.', replayed: 'Evaluated again by itself.', apportioned: 'Its part of the time of several records.',
  };
  return <span class={`badge ${method === 'apportioned' ? 'warn' : 'good'}`} title={means[method ?? '']}>{method ?? 'unknown'}{error === null ? '' : ` ± ${duration(error)}`}</span>;
}

/** A value of a table. The server cuts long texts and says how long they are. */
export function Cell({ value }: { value: Value }): JSX.Element {
  if (typeof value === 'number' && !Number.isInteger(value)) return <>{Number(value.toPrecision(7))}</>;
  if (typeof value !== 'string' || value.length <= 24) return <>{String(value)}</>;
  const cut = /… \((\d+) characters\)$/.exec(value);
  const length = cut ? Number(cut[1]) : [...value].length;
  return <><span class="badge" title={plural(length, 'character')}>{short(length)} chars</span> {cut ? value.slice(0, cut.index + 1) : value}</>;
}

export function Dearest({ view, scope }: { view: View<Dear>; scope: Scope }): JSX.Element {
  const table = isTable(scope.source);
  const ids = view.rows?.map((row) => String(row.row_id)).join(',') ?? '';
  const readable = table && !scope.query.info.imported_from;
  const values = useView<Row>('record_rows', readable && ids ? { table: scope.source, row_ids: ids } : undefined);
  const columns = values.error ? [] : values.columns.filter((name) => name !== '_row_id');
  const byId = useMemo(() => new Map((values.rows ?? []).map((row) => [String(row['_row_id']), row])), [values.rows]);
  const [first] = view.rows ?? [];
  const most = first?.latency_ns ?? 1;
  const ranged = scope.low !== undefined || scope.high !== undefined;
  const part = first && !ranged ? `${plural(first.all_records, 'record')} took ${duration(first.all_ns)}.` : first && `${count(first.records)} of ${plural(first.all_records, 'record')} (${share(first.records / first.all_records)}) took ${duration(first.time_ns)}, ${share(first.time_ns / first.all_ns)} of the time.`;
  const arrows = (event: KeyboardEvent) => {
    const step = { ArrowDown: 'nextElementSibling', ArrowUp: 'previousElementSibling' }[event.key] as 'nextElementSibling' | undefined;
    if (!step) return;
    const row = (event.target as HTMLElement).closest('tr')?.[step];
    event.preventDefault();
    row?.querySelector<HTMLElement>('button.link')?.focus();
  };
  return (
    <Panel
      id="record-dearest" title={ranged ? 'Dearest records of the range' : 'Dearest records'} views={values.rows && !values.error ? [view, values] : [view]}
      note={<>{part}{first && first.records > 100 && ' The 100 dearest are shown.'}
        {values.error && <span class="warn"> The columns of {tableName(scope.source)} cannot be read: {values.error}</span>}
        {table && !readable && ` This profile was imported: the rows of ${tableName(scope.source)} are not here.`}</>}
      empty={<p>No record has a latency in this range.</p>}
    >
      <div class="dearest" tabIndex={0} role="region" aria-label="Dearest records">
        <table class="plain" onKeyDown={arrows}>
          <thead><tr>
            {table && <th scope="col"><span class="visually-hidden">Leave out</span></th>}
            <th scope="col" class="text">{table ? 'Row' : 'Group'}</th><th scope="col" class="number">Latency</th>
            <th scope="col" class="number">Share</th><th scope="col" class="text">Method, error</th>
            {columns.map((name) => <th scope="col" key={name} class="text">{name}</th>)}
          </tr></thead>
          <tbody>{view.rows?.map((row) => {
            const id = String(row.row_id);
            const value = byId.get(id);
            return (
              <tr key={id} class={isPicked(scope.source, id) ? 'picked' : ''} onClick={(event) => pick(scope.source, id, event.shiftKey || event.ctrlKey || event.metaKey)}>
                {table && <td onClick={(event) => event.stopPropagation()}>
                  <input type="checkbox" aria-label={`Leave out row ${id}`} checked={isChecked(scope.query.id, scope.source, 'rows', id)} onChange={() => toggle(scope.query.id, scope.source, 'rows', id)} />
                </td>}
                <td class="text"><button type="button" class="link" aria-pressed={isPicked(scope.source, id)}>{table ? id : groupName(id)}</button></td>
                <td class="bar"><i style={{ width: `${(row.latency_ns / most) * 100}%` }} /><span>{duration(row.latency_ns)}</span></td>
                <td>{share(row.share)}</td>
                <td class="text"><Method method={row.method} error={row.error_ns} /></td>
                {columns.map((name) => {
                  const cell = value?.[name];
                  if (!value || cell === null || cell === undefined) return <td key={name} class="text faint">{value ? 'NULL' : values.loading ? '' : 'deleted'}</td>;
                  return <td key={name} class={`value ${typeof cell === 'string' ? 'text' : ''}`} title={String(cell)}><Cell value={cell} /></td>;
                })}
              </tr>
            );
          })}</tbody>
        </table>
      </div>
    </Panel>
  );
}
