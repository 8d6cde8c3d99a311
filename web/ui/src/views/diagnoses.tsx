// What is conspicuous, as cards: what it costs, what to do, and the SQL that shows why.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useRef } from 'preact/hooks';
import { useView } from '../data';
import { clipped, line, tableName } from '../describe';
import { bytes, count, duration, plural, share, times } from '../format';
import { useKeys } from '../keys';
import { Panel } from '../panel';
import { show, type Place } from '../place';
import { useQuery, type Query } from '../query';
import { search, setSearch } from '../state';
import './diagnoses.css';

/** A row of the view `diagnoses`. */
export interface Finding extends Place {
  number: number;
  /** 1 is the verdict; null if another finding explains this one, or if it is harmless. */
  place: number | null;
  explained_by: string | null;
  rule: string;
  severity: 'critical' | 'warning' | 'info';
  subject: string;
  cause: string | null;
  wasted_ns: number | null;
  share: number | null;
  score: number | null;
  threshold: number | null;
  confidence: number | null;
  advice: string;
  evidence_sql: string;
  zoom_sql: string | null;
}

/** So many findings are shown at once. */
const SHOWN = 3;

export interface Sorted {
  /** Those that call for action, each with what it explains. */
  first: { found: Finding; explains: Finding[] }[];
  more: Finding[];
  harmless: Finding[];
}

/** Puts each finding under the one that explains it, directly or through others. */
export function sorted(findings: readonly Finding[]): Sorted {
  const first = findings.filter((found) => found.place !== null && found.place <= SHOWN).map((found) => ({ found, explains: [] as Finding[] }));
  const [more, harmless]: Finding[][] = [[], []];
  for (const found of findings) {
    if (first.some((one) => one.found === found)) continue;
    if (found.place === null && found.explained_by === null) {
      harmless!.push(found);
      continue;
    }
    let rule = found.explained_by;
    for (let steps = 0; rule !== null && steps < findings.length && !first.some((one) => one.found.rule === rule); steps++) {
      rule = findings.find((other) => other.rule === rule)?.explained_by ?? null;
    }
    (first.find((one) => one.found.rule === rule)?.explains ?? more!).push(found);
  }
  return { first, more: more!, harmless: harmless! };
}

/** The subject in words. */
export function subjectOf(query: Query, found: Finding): string {
  if (found.row_id !== null && found.table_name && found.rule === 'expensive input') return `Row ${found.row_id} of ${tableName(found.table_name)}`;
  const row = found.operator_id === null ? undefined : query.byId.get(found.operator_id);
  if (!row) return capital(found.subject);
  const task = found.partition === null ? '' : `, partition ${found.partition}${found.worker_id === null ? '' : ` on worker ${found.worker_id}`}`;
  return `${clipped(line(row), 80)} (operator ${row.operator_id}${task})`;
}

const LOOK = { critical: 'bad', warning: 'warn', info: '' };

export const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** A sentence of sys.diagnoses with its amounts as the page writes them. */
export function readable(text: string): string {
  return text.replace(/(?<![\d.,])(\d+) (rows|bytes|ms)\b/g, (_, digits: string, unit: string) => {
    const amount = Number(digits);
    return unit === 'rows' ? `${count(amount)} rows` : unit === 'bytes' ? bytes(amount) : duration(amount * 1e6);
  });
}

/** Rule, place and cause, as the text report says them; operators are called as in the plan. */
export function sentenceOf(query: Query, found: Finding): string {
  const row = found.operator_id === null ? undefined : query.byId.get(found.operator_id);
  const subject = row ? found.subject.replace(/^operator \d+ \w+(\(\w+\))?/, () => clipped(line(row), 60)) : found.subject;
  return `${capital(found.rule)}${subject === 'the query' ? '' : `, ${subject}`}: ${readable(found.cause ?? found.advice)}`;
}

export function Copy({ name, sql }: { name: string; sql: string }): JSX.Element {
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

/** How far a finding is beyond what is usual, and how often its rule is right. */
function strength(found: Finding): string {
  const parts = [];
  if (found.score !== null && found.threshold) parts.push(`${times(found.score / found.threshold)} the threshold`);
  if (found.confidence !== null) parts.push(`right in ${share(found.confidence)} of tests`);
  return parts.join(', ');
}

function Card({ found, explains = [] }: { found: Finding; explains?: Finding[] | undefined }): JSX.Element {
  const query = useQuery();
  const look = found.place === null ? '' : LOOK[found.severity];
  return (
    <li class={`finding ${look}`} aria-current={search.value['finding'] === String(found.number) ? 'true' : undefined}>
      <header>
        {found.place !== null && <span class={`badge ${look}`}>{found.place === 1 ? 'verdict' : found.severity}</span>}
        <h3>{capital(found.rule)}</h3>
        <span class="cost">{found.wasted_ns === null ? '' : <>{duration(found.wasted_ns)} <small>{share(found.share)} of the query</small></>}</span>
        <button type="button" onClick={() => show(query, found)} aria-label={`Show ${found.rule}, ${found.subject}`}>Show</button>
      </header>
      {found.place !== null && found.share !== null && <div class="meter" aria-hidden="true"><i style={{ width: `${Math.min(100 * found.share, 100)}%` }} /></div>}
      {found.cause && <p class="subject">{readable(found.cause)}</p>}
      <p class={found.cause ? 'faint' : 'subject'}>{subjectOf(query, found)}{strength(found) && <span class="faint"> · {strength(found)}</span>}</p>
      <p>{readable(found.advice)}</p>
      <details>
        <summary>Evidence{found.zoom_sql ? ' and a closer look' : ''}</summary>
        <Copy name="Evidence" sql={found.evidence_sql} />
        {found.zoom_sql && <Copy name="Closer look" sql={found.zoom_sql} />}
      </details>
      <Folded findings={explains} title={`Explains ${plural(explains.length, 'more finding')}`} />
    </li>
  );
}

/** Findings that are not shown at first. */
function Folded({ findings, title }: { findings: Finding[]; title: string }): JSX.Element | null {
  if (!findings.length) return null;
  const open = findings.some((found) => search.value['finding'] === String(found.number));
  return (
    <details class="folded" open={open}>
      <summary>{title}</summary>
      <ul class="findings">{findings.map((found) => <Card key={found.number} found={found} />)}</ul>
    </details>
  );
}

export function Diagnoses(): JSX.Element {
  const query = useQuery();
  const view = useView<Finding>('diagnoses', { query_id: query.id });
  const { info } = query;
  const { first, more, harmless } = sorted(view.rows ?? []);
  const level = info.profile_level === 'records' ? '' : `Level ${info.profile_level} does not look at single records. To find expensive ones: EXPLAIN PROFILE QUERY ${query.id}.`;
  return (
    <Panel
      id="diagnoses" title="Diagnoses" views={[view]}
      note={view.rows?.length ? `${first.length ? 'What costs most comes first; what it explains is folded below it.' : 'Nothing calls for action.'} Key . shows the next one. ${level}` : level || undefined}
      empty={<>Nothing is conspicuous: no record, task, key or estimate stands out. {info.status !== 'finished' && `The query ${info.status === 'failed' ? 'failed' : 'was cancelled'}: what came later is not judged.`}</>}
    >
      <ol class="findings">
        {first.map(({ found, explains }) => <Card key={found.number} found={found} explains={explains} />)}
      </ol>
      <Folded findings={more} title={`${plural(more.length, 'more finding')}`} />
      <Folded findings={harmless} title={`Harmless: ${harmless.length}`} />
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
    setSearch({ finding: String(found.number) });
  } }], view.rows, query);
  return null;
}
