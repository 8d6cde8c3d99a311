// All statements: what ran, what got slower, what runs now.
import type { ComponentChildren, JSX } from 'preact';
import { useMemo, useRef } from 'preact/hooks';
import { useSignal } from '@preact/signals';
import { refresh, useRows, useView } from '../data';
import { count, duration, plural, times } from '../format';
import { Choice, Panel, useKeys } from '../panel';
import { go, search } from '../state';
import { AlertStrip } from './alerts';
import { State } from './progress';
import { ago, oneLine, ON_OPENING } from './running';
import { planChanges, Sparkline, type Run } from './sparkline';
import { Strip } from './strip';
import './home.css';

/** A row of the view `statements`. */
interface Statement {
  fingerprint: string;
  last_query_id: number;
  sql: string;
  status: string;
  error: string | null;
  profile_level: string;
  tables_read: string | null;
  ago_ns: number;
  runs: number;
  failed: number;
  total_ns: number;
  median_ns: number | null;
  last_ns: number;
  earlier_runs: number;
  earlier_median_ns: number | null;
  z: number | null;
  change: 'slower' | 'faster' | 'as usual' | 'too few runs' | 'failed' | 'cancelled';
  statements: number;
}

interface Finding {
  query_id: number;
  rule: string;
  severity: 'critical' | 'warning' | 'info';
  subject: string;
  cause: string | null;
  wasted_ns: number | null;
  findings: number;
}

type Sort = 'slower' | 'total' | 'last' | 'runs';
const SORTS = [['slower', 'Got slower'], ['total', 'Total time'], ['last', 'Last run'], ['runs', 'Runs']] as const;
const WINDOWS = [['1', 'Hour'], ['24', 'Day'], ['168', 'Week'], ['all', 'All']] as const;
const GROUPS = [['statements', 'Statements'], ['runs', 'Single runs']] as const;
/** Findings are computed for so many of the newest queries: they are dear. */
const JUDGED = 50;

const BEGIN = [
  ['Make a table', 'CREATE TABLE ratings AS SELECT value AS movie, value % 5 + 1 AS stars FROM generate_series(1, 1000000)'],
  ['Record each call of an operator', "SET profile.level = 'calls'"],
  ['Run a query', 'SELECT stars, count(*) FROM ratings GROUP BY stars'],
] as const;

/** Changes the URL without a step of the history: for what is typed or unfolded. */
function put(changes: Record<string, string | undefined>): void {
  const next = { ...search.value, ...changes };
  search.value = Object.fromEntries(Object.entries(next).filter(([, value]) => value)) as Record<string, string>;
}

export function Home(): JSX.Element {
  const sort = (search.value['sort'] ?? 'slower') as Sort;
  const within = search.value['within'] ?? 'all';
  const find = search.value['find'] ?? '';
  const group = search.value['by'] === 'runs' ? 'runs' : 'statements';
  const hours = within === 'all' ? 'NULL' : within;
  const params = { hours, ...(find ? { find } : {}) };
  const statements = useView<Statement>('statements', group === 'statements' ? { ...params, sort, limit: 100 } : undefined, ON_OPENING);
  const recent = useView<Run & { tables_read: string | null }>('recent', group === 'runs' ? { ...params, limit: 200 } : undefined, ON_OPENING);
  const newest = useView<{ query_id: number }>('recent', { limit: 1 }, 3000);
  const typing = useRef(0);
  // The newest query when the list was loaded: later ones are offered, not pushed in.
  const listed = group === 'runs' ? recent.rows : statements.rows;
  const ran = newest.rows?.[0]?.query_id ?? 0;
  const loaded = useRef<{ rows: unknown; id: number }>({ rows: undefined, id: 0 });
  if (loaded.current.rows !== listed || !loaded.current.id) {
    const ids = group === 'runs' ? recent.rows?.map((row) => row.query_id) : statements.rows?.map((row) => row.last_query_id);
    loaded.current = { rows: listed, id: Math.max(ran, ...(ids ?? [])) };
  }
  const newer = Math.max(ran - loaded.current.id, 0);
  if (newest.rows?.length === 0) return <><AlertStrip /><Strip /><Beginning /></>;
  const total = statements.rows?.[0]?.statements ?? 0;
  const slower = statements.rows?.filter((row) => row.change === 'slower') ?? [];
  return (
    <>
      <AlertStrip />
      <Strip />
      <h1 class="visually-hidden">Statements</h1>
      <Panel
        id="statements" class="statements" title={group === 'statements' ? 'Statements' : 'Runs'} views={group === 'statements' ? [statements] : [recent]}
        tools={<>
          <button type="button" class={newer ? 'newer' : 'newer none'} disabled={!newer} onClick={refresh}>{plural(Math.max(newer, 1), 'newer query', 'newer queries')}</button>
          <input
            type="search" aria-label="Filter by text, table or status" placeholder="Text, table or status" value={find}
            onInput={(event) => {
              const text = event.currentTarget.value;
              clearTimeout(typing.current);
              typing.current = window.setTimeout(() => put({ find: text.trim() }), 200);
            }}
          />
          <Choice label="Show" value={group} options={GROUPS} onChange={(next) => put({ by: next === 'runs' ? next : undefined })} />
          <Choice label="Time" value={within} options={WINDOWS} onChange={(next) => put({ within: next === 'all' ? undefined : next })} />
          {group === 'statements' && <Choice label="Sort by" value={sort} options={SORTS} onChange={(next) => put({ sort: next === 'slower' ? undefined : next })} />}
        </>}
        note={group === 'statements' ? noteOf(slower, total, statements.rows?.length ?? 0) : 'The newest first. Enter opens a run.'}
        empty={<p>No run matches. {find && <button type="button" onClick={() => put({ find: '' })}>Clear the filter</button>} {within !== 'all' && <button type="button" onClick={() => put({ within: undefined })}>Show all times</button>}</p>}
      >
        {group === 'statements' ? <Statements rows={statements.rows ?? []} hours={hours} /> : <Recent rows={recent.rows ?? []} />}
      </Panel>
    </>
  );
}

function noteOf(slower: Statement[], total: number, shown: number): string {
  const worst = slower[0];
  const finding = worst
    ? `${plural(slower.length, 'statement')} got slower. Query ${worst.last_query_id} took ${duration(worst.last_ns)}, ${times(worst.last_ns / (worst.earlier_median_ns || 1))} the median of ${worst.earlier_runs} earlier runs.`
    : 'No statement got slower.';
  return `${finding}${total > shown ? ` ${shown} of ${total} statements are shown.` : ''}`;
}

/** Moves the focus between rows, opens and unfolds them. */
interface Grid {
  ref: { current: HTMLDivElement | null };
  onKeyDown: (event: KeyboardEvent) => void;
  /** One row is a stop of Tab: the one that had the focus last. */
  tab: (key: string, first: boolean) => number;
  focus: (key: string) => void;
}

function useGrid(unfold?: (key: string, open: boolean) => void): Grid {
  const ref = useRef<HTMLDivElement>(null);
  const current = useSignal('');
  const rows = () => [...(ref.current?.querySelectorAll<HTMLElement>('[data-row]') ?? [])];
  const step = (by: number) => {
    const all = rows();
    const at = all.indexOf(document.activeElement?.closest<HTMLElement>('[data-row]') as HTMLElement);
    all[Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
  };
  useKeys([
    { key: 'j', does: 'Go to the next row (also ↓; → and ← unfold, Enter opens)', run: () => step(1) },
    { key: 'k', does: 'Go to the row before (also ↑)', run: () => step(-1) },
  ]);
  return {
    ref,
    onKeyDown: (event) => {
      const target = event.target as HTMLElement;
      const row = target.closest<HTMLElement>('[data-row]');
      if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
      const all = rows();
      const key = row.dataset['row']!;
      const open = row.getAttribute('aria-expanded');
      const act: Record<string, (() => void) | undefined> = {
        ArrowDown: () => step(1), ArrowUp: () => step(-1), Home: () => all[0]?.focus(), End: () => all[all.length - 1]?.focus(),
        Enter: target === row ? () => go(row.dataset['open']!) : undefined,
        ArrowRight: open === 'false' ? () => unfold?.(key, true) : () => step(1),
        ArrowLeft: open === 'true' ? () => unfold?.(key, false) : () => all.slice(0, all.indexOf(row)).reverse().find((one) => one.hasAttribute('aria-expanded'))?.focus(),
      };
      if (!act[event.key]) return;
      event.preventDefault();
      act[event.key]!();
    },
    tab: (key, first) => (current.value === key || (!current.value && first) ? 0 : -1),
    focus: (key) => { current.value = key; },
  };
}

const tablesOf = (text: string | null): string => (text ? [...new Set((JSON.parse(text) as { table: string }[]).map((one) => one.table.replace(/^main\./, '')))].join(', ') : '');

/** A link that the row's own keys open, so that it is no stop of Tab. */
function Quiet({ to, children, class: extra, title }: { to: string; children: JSX.Element | string; class?: string; title?: string }): JSX.Element {
  return <a href={to} data-to={to} tabIndex={-1} class={extra} title={title}>{children}</a>;
}

function Change({ row }: { row: Statement }): JSX.Element {
  const by = row.earlier_median_ns ? times(row.last_ns / row.earlier_median_ns) : '';
  const about = row.z === null ? undefined : `${duration(row.last_ns)} against ${duration(row.earlier_median_ns)}, the median of ${row.earlier_runs} earlier runs at level ${row.profile_level}. z = ${row.z.toFixed(1)}`;
  if (row.change === 'slower') return <span title={about}><span class="badge bad"><span aria-hidden="true">▲ </span>slower</span> <b>{by}</b></span>;
  if (row.change === 'faster') return <span title={about}><span class="badge good"><span aria-hidden="true">▼ </span>faster</span> {by}</span>;
  if (row.change === 'failed' || row.change === 'cancelled') return <span title={row.error ?? undefined}><State state={row.change} /></span>;
  return <span class="faint" title={about}>{row.change}</span>;
}

function Worst({ finding, judged }: { finding: Finding | undefined; judged: boolean }): JSX.Element {
  if (!finding) return <span class="faint" title={judged ? undefined : 'Only the newest queries are judged here. Open the query.'}>{judged ? 'none' : '–'}</span>;
  const kind = finding.severity === 'critical' ? 'bad' : finding.severity === 'warning' ? 'warn' : '';
  return (
    <Quiet to={`/q/${finding.query_id}?tab=diagnoses`} title={finding.cause ?? `${finding.rule}, ${finding.subject}`}>
      <span class={`badge ${kind}`}><span aria-hidden="true">{finding.severity === 'critical' ? '!! ' : finding.severity === 'warning' ? '! ' : 'i '}</span>{finding.rule}</span>
    </Quiet>
  );
}

function Statements({ rows, hours }: { rows: Statement[]; hours: string }): JSX.Element {
  const prints = useMemo(() => rows.map((row) => row.fingerprint).sort().join(' '), [rows]);
  const history = useView<Run>('statement_history', prints ? { statements: prints, hours } : undefined, ON_OPENING);
  const from = Math.max(Math.max(...rows.map((row) => row.last_query_id), 0) - JUDGED + 1, 0);
  const found = useView<Finding>('statement_diagnosis', rows.length ? { from } : undefined);
  const runs = useRows(history, (all) => {
    const of = new Map<string, Run[]>();
    for (const run of all) of.set(run.fingerprint, [...(of.get(run.fingerprint) ?? []), run]);
    return of;
  });
  const findings = useRows(found, (all) => new Map(all.map((one) => [one.query_id, one])));
  const open = new Set((search.value['open'] ?? '').split(','));
  const unfold = (key: string, opens: boolean) => {
    const next = new Set(open);
    if (opens) next.add(key);
    else next.delete(key);
    put({ open: [...next].filter(Boolean).join(',') });
  };
  const grid = useGrid(unfold);
  return (
    <>
      <div class="grid" role="treegrid" aria-label="Statements" aria-rowcount={rows.length} ref={grid.ref} onKeyDown={grid.onKeyDown}>
        <div class="line head" role="row">
          {['Statement', 'Durations of runs', 'Runs', 'Median', 'Last', 'Change', 'Total', 'Verdict', 'Last run'].map((text, i) => (
            <span role="columnheader" key={text} class={HEADS[i]}>{text}</span>
          ))}
        </div>
        {rows.map((row, i) => {
          const is = open.has(row.fingerprint);
          const mine = runs?.get(row.fingerprint) ?? [];
          const tables = tablesOf(row.tables_read);
          return [
            <div
              key={row.fingerprint} class="line" role="row" aria-level={1} aria-expanded={is} data-row={row.fingerprint} data-open={`/q/${row.last_query_id}`}
              tabIndex={grid.tab(row.fingerprint, i === 0)} onFocus={() => grid.focus(row.fingerprint)}
              onClick={(event) => !(event.target as HTMLElement).closest('a, button') && unfold(row.fingerprint, !is)}
            >
              <span role="gridcell" class="sql">
                <button type="button" class="fold" tabIndex={-1} aria-label={is ? 'Fold' : 'Show the runs'} onClick={() => unfold(row.fingerprint, !is)}>{is ? '▾' : '▸'}</button>
                <Quiet to={`/q/${row.last_query_id}`} title={row.sql}><code>{oneLine(row.sql)}</code></Quiet>
                {tables && <span class="tables faint">{tables}</span>}
              </span>
              {[
                <Sparkline runs={mine} median={row.median_ns} change={row.change} />,
                <>{count(row.runs)}{row.failed > 0 && <span class="bad"> ({row.failed} ✕)</span>}</>,
                duration(row.median_ns), duration(row.last_ns), <Change row={row} />, duration(row.total_ns),
                findings ? <Worst finding={findings.get(row.last_query_id)} judged={row.last_query_id >= from} /> : <span class="faint">…</span>,
                ago(row.ago_ns),
              ].map((content, k) => <span role="gridcell" key={k} class={HEADS[k + 1]}>{content}</span>)}
            </div>,
            is && <Runs key={`${row.fingerprint} runs`} statement={row} runs={mine} findings={findings} grid={grid} />,
          ];
        })}
      </div>
      <p class="home-legend faint">
        Bars start at zero and are as high as the longest run of the statement. <b class="bad">×</b> failed, <b class="warn">○</b> cancelled, <b>◆</b> other plan than before, hollow: run at
        another profile level, dashed: median. Slower or faster: at least 10 % and 3.5 deviations (z) from the median of the earlier finished runs at the same level.
      </p>
      {found.error && <p class="message bad" role="alert">{found.error}</p>}
      {history.error && <p class="message bad" role="alert">{history.error}</p>}
    </>
  );
}

const HEADS = ['sql', 'spark-cell', 'number runs', 'number median', 'number last', 'change', 'number total', 'worst', 'number when'];

/** One run, on one line. */
function RunLine({ run, most, grid, first, level, about, more }: {
  run: Run; most: number; grid: Pick<Grid, 'tab' | 'focus'>; first: boolean; level?: number; about: ComponentChildren; more?: ComponentChildren;
}): JSX.Element {
  const [key, page] = [`q${run.query_id}`, `/q/${run.query_id}`];
  return (
    <div class={level ? 'run-line' : 'run-line single'} role="row" aria-level={level} data-row={key} data-open={page} tabIndex={grid.tab(key, first)} onFocus={() => grid.focus(key)} title={run.error ?? oneLine(run.sql)}>
      {[
        ['', <Quiet to={page}>{`Query ${run.query_id}`}</Quiet>],
        ['', <State state={run.status} />],
        ['', <span class="badge">{run.profile_level}</span>],
        ['length', <span class={run.status === 'finished' ? 'bar' : 'bar not'} style={{ width: `${((run.elapsed_ns / most) * 100).toFixed(1)}%` }} />],
        ['number', duration(run.elapsed_ns)],
        ['number', run.rows_returned === null ? '–' : plural(run.rows_returned, 'row')],
        ['about', about],
        ['number faint', ago(run.ago_ns)],
        ['more', more],
      ].map(([name, content], i) => (i < 8 || level) && <span role="gridcell" key={i} class={name as string}>{content}</span>)}
    </div>
  );
}

const longest = (runs: readonly Run[]): number => Math.max(...runs.map((run) => run.elapsed_ns), 1);

function Runs({ statement, runs, findings, grid }: { statement: Statement; runs: Run[]; findings: Map<number, Finding> | undefined; grid: Grid }): JSX.Element {
  const changes = planChanges(runs);
  const last = statement.last_query_id;
  const most = longest(runs);
  return (
    <div role="rowgroup" class="unfolded">
      {[...runs].reverse().map((run, i, all) => {
        const against = run.query_id === last ? all[i + 1]?.query_id : run.query_id;
        const finding = findings?.get(run.query_id);
        return (
          <RunLine
            key={run.query_id} run={run} most={most} grid={grid} first={false} level={2}
            about={<>{changes.has(run.query_id) && <span class="badge warn">◆ other plan</span>} {finding && <Worst finding={finding} judged />} {run.error && <span class="bad">{run.error}</span>}</>}
            more={against !== undefined && <Quiet to={`/q/${last}?cmp=${against}`}>{run.query_id === last ? 'Compare with the run before' : 'Compare with the last'}</Quiet>}
          />
        );
      })}
      {statement.runs > runs.length && runs.length > 0 && <p class="faint" role="presentation">The newest {runs.length} of {statement.runs} runs.</p>}
    </div>
  );
}

function Recent({ rows }: { rows: Run[] }): JSX.Element {
  const grid = useGrid();
  const most = longest(rows);
  return (
    <div class="grid" role="grid" aria-label="Runs" ref={grid.ref} onKeyDown={grid.onKeyDown}>
      {rows.map((run, i) => (
        <RunLine key={run.query_id} run={run} most={most} grid={grid} first={i === 0} about={<Quiet to={`/q/${run.query_id}`}><code>{oneLine(run.sql)}</code></Quiet>} />
      ))}
    </div>
  );
}

/** What a database without queries says. */
function Beginning(): JSX.Element {
  return (
    <section class="panel beginning" aria-label="How to begin">
      <header><h2>No query ran yet. Run these three statements in a shell.</h2></header>
      <ol class="content">
        {BEGIN.map(([what, sql]) => (
          <li key={sql}>
            <span>{what}</span>
            <pre tabIndex={0}>{sql};</pre>
            <button type="button" onClick={() => void navigator.clipboard?.writeText(`${sql};\n`)} aria-label={`Copy: ${what}`}>Copy</button>
          </li>
        ))}
      </ol>
      <p class="note">Each query then appears here with its profile. Queries that read only schema sys are not recorded.</p>
    </section>
  );
}
