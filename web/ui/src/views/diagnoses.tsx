// What is conspicuous, as cards: what it costs, what to do, and the SQL that shows why.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { useView } from '../data';
import { clipped, line, tableName } from '../describe';
import { duration, share } from '../format';
import { useKeys } from '../keys';
import { Panel } from '../panel';
import { show, type Place } from '../place';
import { useQuery, type Query } from '../query';
import { search, setSearch } from '../state';
import './diagnoses.css';

/** A row of the view `diagnoses`. */
export interface Finding extends Place {
  place: number;
  rule: string;
  severity: 'critical' | 'warning' | 'info';
  subject: string;
  wasted_ns: number | null;
  share: number | null;
  advice: string;
  evidence_sql: string;
  zoom_sql: string | null;
}

/** Whether a finding is the query's verdict: it costs much, or names a cause. */
export function isNamed(found: Finding): boolean {
  return found.severity !== 'info' && found.rule !== 'incomplete profile';
}

/** The subject in words. */
export function subjectOf(query: Query, found: Finding): string {
  if (found.row_id !== null && found.table_name && found.rule === 'expensive input') return `Row ${found.row_id} of ${tableName(found.table_name)}`;
  const row = found.operator_id === null ? undefined : query.byId.get(found.operator_id);
  if (!row) return found.subject.charAt(0).toUpperCase() + found.subject.slice(1);
  const task = found.partition === null ? '' : `, partition ${found.partition}${found.worker_id === null ? '' : ` on worker ${found.worker_id}`}`;
  return `${clipped(line(row), 80)} (operator ${row.operator_id}${task})`;
}

const LOOK = { critical: 'bad', warning: 'warn', info: '' };

function Copy({ name, sql }: { name: string; sql: string }): JSX.Element {
  const copied = useSignal(false);
  return (
    <figure class="sql">
      <figcaption>{name} <button type="button" onClick={() => {
        void navigator.clipboard?.writeText(`${sql};\n`);
        copied.value = true;
        setTimeout(() => (copied.value = false), 1500);
      }}>{copied.value ? 'Copied' : 'Copy'}</button></figcaption>
      <pre tabIndex={0} aria-label={name}>{sql}</pre>
    </figure>
  );
}

export function Diagnoses(): JSX.Element {
  const query = useQuery();
  const view = useView<Finding>('diagnoses', { query_id: query.id });
  const { info } = query;
  const level = info.profile_level === 'records' ? '' : `Level ${info.profile_level} does not look at single records. To find expensive ones: EXPLAIN PROFILE QUERY ${query.id}.`;
  return (
    <Panel
      id="diagnoses" title="Diagnoses" views={[view]}
      note={view.rows?.length ? `Causes come first. Key . shows the next one. ${level}` : level || undefined}
      empty={<>Nothing is conspicuous: no record, task, key or estimate stands out. {info.status !== 'finished' && `The query ${info.status === 'failed' ? 'failed' : 'was cancelled'}: what came later is not judged.`}</>}
    >
      <ol class="findings">
        {view.rows?.map((found) => (
          <li key={found.place} class={`finding ${LOOK[found.severity]}`} aria-current={search.value['finding'] === String(found.place) ? 'true' : undefined}>
            <header>
              <span class={`badge ${LOOK[found.severity]}`}>{found.severity}</span>
              <h3>{found.rule.charAt(0).toUpperCase() + found.rule.slice(1)}</h3>
              <span class="cost">{found.wasted_ns === null ? '' : <>{duration(found.wasted_ns)} <small>{share(found.share)} of the query</small></>}</span>
              <button type="button" onClick={() => show(query, found)} aria-label={`Show ${found.rule}, ${found.subject}`}>Show</button>
            </header>
            {found.share !== null && <div class="meter" aria-hidden="true"><i style={{ width: `${Math.min(100 * found.share, 100)}%` }} /></div>}
            <p class="subject">{subjectOf(query, found)}</p>
            <p>{found.advice}</p>
            <details>
              <summary>Evidence{found.zoom_sql ? ' and a closer look' : ''}</summary>
              <Copy name="Evidence" sql={found.evidence_sql} />
              {found.zoom_sql && <Copy name="Closer look" sql={found.zoom_sql} />}
            </details>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

/** Key `.`, on every tab: shows one finding after another. */
export function NextFinding(): JSX.Element | null {
  const query = useQuery();
  const view = useView<Finding>('diagnoses', { query_id: query.id });
  const at = useRef(-1);
  useKeys([{ key: '.', does: 'Show the next diagnosis', run: () => {
    const rows = view.rows ?? [];
    if (!rows.length) {
      setSearch({ tab: 'diagnoses' });
      return;
    }
    at.current = (at.current + 1) % rows.length;
    const found = rows[at.current]!;
    show(query, found);
    setSearch({ finding: String(found.place) });
  } }], view.rows, query);
  return null;
}
