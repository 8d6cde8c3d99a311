// What runs now, how far it is, and what just ended.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { useView } from '../data';
import { duration, plural } from '../format';
import { Link, Panel } from '../panel';
import { source } from '../source';
import { Progress, State } from './progress';
import { oneLine, useRunning, type Estimate, type Running, type Usual } from './running';
import { Operators } from './running_operators';
import './live.css';

const KEPT = 100;
const PATIENCE_MS = 10000;

interface Ended {
  query_id: number;
  status: string;
  error: string | null;
  elapsed_ns: number;
  rows_returned: number | null;
}

/** A statement that was seen running, with what is known of it last. */
interface Seen {
  row: Running;
  estimate: Estimate;
  usual: Usual | undefined;
  runs: boolean;
  /** When it was first missing, by the page's clock. */
  goneAt: number | undefined;
}

export function Live(): JSX.Element {
  const { view, usual, of } = useRunning(500);
  const seen = useRef(new Map<number, Seen>());
  const results = useRef(new Map<number, Ended>());
  const cleared = useSignal(0);
  const rows = view.rows ?? [];
  // A statement keeps its place when it ends: the list only grows at its end.
  for (const one of seen.current.values()) one.runs = false;
  for (const row of rows) seen.current.set(row.query_id, { row, estimate: of(row), usual: usual.rows?.find((other) => other.query_id === row.query_id), runs: true, goneAt: undefined });
  const gone = [...seen.current.values()].filter((one) => !one.runs);
  for (const one of gone.slice(0, Math.max(gone.length - KEPT, 0))) seen.current.delete(one.row.query_id);
  for (const one of gone) one.goneAt ??= performance.now();
  // What became of them: asked for until it is known. A statement that is not recorded is given up.
  const lacks = gone.some((one) => !results.current.has(one.row.query_id) && performance.now() - one.goneAt! < PATIENCE_MS);
  const ended = useView<Ended>('recent', lacks ? { limit: 200 } : undefined, 1000);
  for (const row of ended.rows ?? []) if (seen.current.has(row.query_id)) results.current.set(row.query_id, row);
  const running = rows.filter((row) => row.state === 'running').length;
  return <>
    <h1 class="visually-hidden">What runs now</h1>
    <Panel
      id="live" class="live" title="Running statements" views={[view, usual]}
      tools={<button type="button" class={gone.length ? '' : 'none'} disabled={!gone.length} onClick={() => {
        for (const one of gone) seen.current.delete(one.row.query_id);
        cleared.value++;
      }}>Clear what has ended</button>}
      note={<span role="status">{rows.length ? `${plural(running, 'statement')} running, ${rows.length - running} waiting.` : 'No statement runs now.'} Updated twice a second.</span>}
    >
      {seen.current.size === 0
        ? <div class="message idle">
            <p>Statements appear here as soon as they start. Queries that read only schema sys do not.</p>
            <p><Link to="/?sort=last">Statements that ran</Link></p>
          </div>
        : <ul class="lives">{[...seen.current.values()].map((one) => <One key={one.row.query_id} seen={one} ended={results.current.get(one.row.query_id)} />)}</ul>}
    </Panel>
  </>;
}

function One({ seen, ended }: { seen: Seen; ended: Ended | undefined }): JSX.Element {
  const { row, estimate, usual, runs } = seen;
  const state = runs ? row.state : ended?.status ?? 'ended';
  const took = runs ? row.elapsed_ns : ended?.elapsed_ns ?? row.elapsed_ns;
  return (
    <li class={runs ? 'live-one' : 'live-one over'} aria-label={`Query ${row.query_id}`}>
      <div class="first">
        <State state={state} />
        <span class="name">{runs ? <b>Query {row.query_id}</b> : <Link to={`/q/${row.query_id}`}>Query {row.query_id}</Link>}</span>
        <span class="number elapsed">{duration(took)}</span>
        <span class="number">{plural(runs ? row.rows : ended?.rows_returned ?? row.rows, 'row')}</span>
        <span class="faint user">{row.user_name ?? ''}</span>
        <span class="grow" />
        {runs ? <Cancel id={row.query_id} /> : <Link to={`/q/${row.query_id}`} class="button">Open the profile</Link>}
      </div>
      <code class="text" title={row.sql}>{oneLine(row.sql)}</code>
      <div class="second">
        <Progress of={runs ? estimate : { low: ended?.status === 'finished' ? 1 : estimate.low, high: ended?.status === 'finished' ? 1 : estimate.low, text: state }} label={`Progress of query ${row.query_id}`} />
        <span class={runs ? '' : 'faint'}>
          {runs ? estimate.text : ended ? `${ended.status} after ${duration(ended.elapsed_ns)}${ended.error ? `: ${ended.error}` : ''}` : 'ended; its profile is being collected'}
          {runs && usual && <> <Link to={`/q/${usual.last_query_id}`}>Profile of the last run</Link></>}
        </span>
      </div>
      {runs && <Operators query={row.query_id} />}
    </li>
  );
}

/** Asks before it cancels, in the place of the button. */
function Cancel({ id }: { id: number }): JSX.Element {
  const step = useSignal<'idle' | 'asks' | 'sent'>('idle');
  const error = useSignal('');
  const button = useRef<HTMLButtonElement>(null);
  const before = useRef(step.value);
  // The focus stays with the question and its answer.
  useEffect(() => {
    if (before.current !== step.value) button.current?.focus();
    before.current = step.value;
  }, [step.value]);
  const cancel = () => {
    step.value = 'sent';
    error.value = '';
    source.act('cancel', { query_id: id }).catch((failure: unknown) => {
      step.value = 'idle';
      error.value = failure instanceof Error ? failure.message : String(failure);
    });
  };
  return (
    <span class="cancel" onKeyDown={(event) => event.key === 'Escape' && step.value === 'asks' && (event.preventDefault(), step.value = 'idle')}>
      {error.value && <span class="bad" role="alert">Not cancelled: {error.value}</span>}
      {step.value === 'asks'
        ? <>
            <button type="button" ref={button} class="stop" onClick={cancel}>Cancel query {id}</button>
            <button type="button" onClick={() => (step.value = 'idle')}>Let it run</button>
          </>
        : <button type="button" ref={button} disabled={step.value === 'sent'} onClick={() => (step.value = 'asks')} aria-label={`Cancel query ${id}`}>{step.value === 'sent' ? 'Cancelling…' : 'Cancel'}</button>}
    </span>
  );
}

