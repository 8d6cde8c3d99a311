// A panel: a titled part of a page with the SQL behind it and its rows as a table.
import { useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Params, Row, Value, View } from './data';
import { keyOf } from './data';
import { useKeys } from './keys';
import { source } from './source';

/** The panel that keys act on: the one that was pointed at or focused last. */
const active = { current: undefined as { sql: () => void; table: () => void } | undefined };

/** Keys of the active panel, for pages. */
export const panelKeys = [
  { key: 't', does: 'Show the rows of the view as a table', run: () => active.current?.table() },
  { key: 'x', does: 'Copy the SQL of the view', run: () => active.current?.sql() },
];

interface Properties {
  title: string;
  /** The views that the panel draws. The first is the one of the table. */
  views: readonly View<any>[];
  /** What stands instead of the content if the first view has no rows. */
  empty?: ComponentChildren;
  /** Buttons and switches at the right of the title. */
  tools?: ComponentChildren;
  /** A sentence under the title: what is seen, how it is read, or why it is incomplete. */
  note?: ComponentChildren;
  children: ComponentChildren;
  id: string;
  class?: string;
}

export function Panel({ title, views, empty, tools, note, children, id, class: extra }: Properties): JSX.Element {
  const shows = useSignal<'content' | 'sql' | 'table'>('content');
  const element = useRef<HTMLElement>(null);
  const failed = views.find((view) => view.error);
  const waits = views.some((view) => view.loading && !view.rows);
  const first = views[0];
  const toggle = (what: 'sql' | 'table') => (shows.value = shows.value === what ? 'content' : what);
  const keys = useRef({ sql: () => void copySql(views), table: () => toggle('table') });
  keys.current.sql = () => void copySql(views);
  keys.current.table = () => toggle('table');
  const activate = () => (active.current = keys.current);
  useEffect(() => {
    active.current ??= keys.current;
    return () => {
      if (active.current === keys.current) active.current = undefined;
    };
  }, []);
  let content: ComponentChildren;
  if (failed) content = <p class="message bad" role="alert">{failed.error}</p>;
  else if (waits) content = <p class="message" aria-busy="true">Loading…</p>;
  else if (first?.rows?.length === 0 && empty) content = <div class="message">{empty}</div>;
  else content = children;
  return (
    <section ref={element} class={`panel ${extra ?? ''}`} id={id} aria-label={title} onPointerEnter={activate} onFocusIn={activate}>
      <header>
        <h2>{title}</h2>
        <div class="tools">
          {tools}
          {views.length > 0 && <>
            <button type="button" aria-pressed={shows.value === 'table'} onClick={() => toggle('table')} title="The rows of this view (t)">Table</button>
            <button type="button" aria-pressed={shows.value === 'sql'} onClick={() => toggle('sql')} title="The SQL behind this view (x copies it)">SQL</button>
          </>}
        </div>
      </header>
      {note && <p class="note">{note}</p>}
      {shows.value === 'sql' && <div class="sqls">{views.map((view) => <Sql key={keyOf(view.name, view.params)} name={view.name} params={view.params} />)}</div>}
      {shows.value === 'table' && first && <Table rows={first.rows ?? []} columns={first.columns} caption={title} />}
      <div class={shows.value === 'content' ? 'content' : 'content hidden'} hidden={shows.value !== 'content'}>{content}</div>
    </section>
  );
}

async function copySql(views: readonly View<any>[]): Promise<void> {
  const texts = await Promise.all(views.map((view) => source.sql(view.name, view.params)));
  await navigator.clipboard?.writeText(`${texts.join(';\n\n')};\n`);
}

export function Sql({ name, params }: { name: string; params: Params }): JSX.Element {
  const text = useSignal('…');
  useEffect(() => {
    source.sql(name, params).then((sql) => (text.value = sql), (error: unknown) => (text.value = String(error)));
  }, [keyOf(name, params)]);
  return (
    <figure class="sql">
      <figcaption>{name} <button type="button" onClick={() => void navigator.clipboard?.writeText(text.value)}>Copy</button></figcaption>
      <pre tabIndex={0} aria-label={`SQL of ${name}`}>{text.value}</pre>
    </figure>
  );
}

const SHOWN = 500;

/** Rows as they are: the twin of a drawing, and what tests read. */
export function Table({ rows, columns, caption }: { rows: readonly Row[]; columns: readonly string[]; caption: string }): JSX.Element {
  return (
    <div class="table" tabIndex={0} role="region" aria-label={`${caption}, as a table`}>
      <table>
        <thead><tr>{columns.map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
        <tbody>
          {rows.slice(0, SHOWN).map((row, i) => (
            <tr key={i}>{columns.map((name) => <td key={name} class={typeof row[name] === 'string' ? 'text' : ''}>{cell(row[name] ?? null)}</td>)}</tr>
          ))}
        </tbody>
      </table>
      {rows.length > SHOWN && <p class="message">{SHOWN} of {rows.length.toLocaleString('en')} rows. The SQL gives all of them.</p>}
    </div>
  );
}

function cell(value: Value): string {
  if (value === null) return 'NULL';
  if (typeof value === 'number' && !Number.isInteger(value)) return value.toPrecision(6);
  return String(value);
}

/** A floating box at the pointer. Its facts are in the table too, so screen readers skip it. */
export function Tip({ at, children }: { at: { x: number; y: number } | undefined; children: ComponentChildren }): JSX.Element | null {
  if (!at) return null;
  const left = at.x > innerWidth - 340;
  const up = at.y > innerHeight - 220;
  return (
    <div class="tip" aria-hidden="true" style={{
      left: left ? 'auto' : `${at.x + 14}px`, right: left ? `${innerWidth - at.x + 14}px` : 'auto',
      top: up ? 'auto' : `${at.y + 14}px`, bottom: up ? `${innerHeight - at.y + 14}px` : 'auto',
    }}>{children}</div>
  );
}

/** A link that changes the page without loading it. */
export function Link({ to, children, class: extra, title }: { to: string; children: ComponentChildren; class?: string; title?: string }): JSX.Element {
  return <a href={source.kind === 'file' ? `#${to}` : to} class={extra} title={title} data-to={to}>{children}</a>;
}

/** One of several choices, as a row of buttons. */
export function Choice<T extends string>({ label, value, options, onChange }: {
  label: string; value: T; options: readonly (readonly [T, string])[]; onChange: (value: T) => void;
}): JSX.Element {
  return (
    <span class="choice" role="group" aria-label={label}>
      {options.map(([option, text]) => (
        <button type="button" key={option} aria-pressed={value === option} onClick={() => onChange(option)}>{text}</button>
      ))}
    </span>
  );
}

export { useKeys };
