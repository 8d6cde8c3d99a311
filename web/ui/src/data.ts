// Views of the server: each is one named SQL statement over schema `sys`. Rows arrive as Arrow IPC.
import { signal, useSignal, useSignalEffect } from '@preact/signals';
import { useMemo, useRef } from 'preact/hooks';
import { readStream } from './arrow';
import { source } from './source';

/** A 64-bit integer: a number while that is exact, a bigint beyond 2^53. */
export type Int = number | bigint;
export type Value = Int | string | boolean | null;
export type Row = Record<string, Value>;
export type Params = Record<string, number | bigint | string>;

/** What a view is asked for, and what came back. `rows` keeps the previous answer while a new one loads. */
export interface View<T> {
  readonly name: string;
  readonly params: Params;
  readonly rows: T[] | undefined;
  readonly columns: string[];
  readonly error: string | undefined;
  readonly loading: boolean;
  /** Milliseconds from the request to decoded rows. */
  readonly ms: number;
}

export interface Answer {
  columns: string[];
  rows: Row[];
  ms: number;
}

/** Decodes an Arrow IPC stream into rows. */
export function decode(bytes: Uint8Array): { columns: string[]; rows: Row[] } {
  const { columns, values } = readStream(bytes);
  const rows: Row[] = [];
  for (let i = 0; i < (values[0]?.length ?? 0); i++) {
    const row: Row = {};
    for (let c = 0; c < columns.length; c++) row[columns[c]!] = values[c]![i]!;
    rows.push(row);
  }
  return { columns, rows };
}

const CACHED = 200;
const cache = new Map<string, Promise<Answer>>();
/** Increases when everything shown must be asked for again. */
export const refreshes = signal(0);

export function refresh(): void {
  cache.clear();
  refreshes.value++;
}

export function keyOf(name: string, params: Params): string {
  const parts = Object.keys(params).sort().map((key) => `${key}=${params[key]}`);
  return `${name}?${parts.join('&')}`;
}

/** Asks for a view. Answers are kept, unless `fresh`: what `sys` has of an ended query never changes. */
export function fetchView(name: string, params: Params, fresh = false): Promise<Answer> {
  const key = keyOf(name, params);
  const known = cache.get(key);
  if (known && !fresh) return known;
  const begun = performance.now();
  const answer = source.view(name, params).then((bytes) => ({ ...decode(bytes), ms: performance.now() - begun }));
  cache.set(key, answer);
  answer.catch(() => cache.delete(key));
  if (cache.size > CACHED) cache.delete(cache.keys().next().value!);
  return answer;
}

/**
 * The rows of a view, in a component. `params` undefined: not asked for yet. `every` in milliseconds: asks
 * again while the page is visible.
 */
export function useView<T = Row>(name: string, params: Params | undefined, every?: number): View<T> {
  const state = useSignal<View<T>>({
    name, params: params ?? {}, rows: undefined, columns: [], error: undefined, loading: !!params, ms: 0,
  });
  const key = params ? keyOf(name, params) : '';
  const wanted = useRef('');
  const asked = useSignal('');
  asked.value = key;
  const current = useRef({ name, params });
  current.current = { name, params };
  useSignalEffect(() => {
    const key = asked.value;
    void refreshes.value;
    wanted.current = key;
    const { name, params } = current.current;
    if (!params) return;
    const load = (fresh: boolean) => {
      fetchView(name, params, fresh).then(
        (answer) => {
          if (wanted.current !== key) return;
          state.value = { name, params, rows: answer.rows as T[], columns: answer.columns, error: undefined, loading: false, ms: answer.ms };
        },
        (error: unknown) => {
          if (wanted.current !== key) return;
          state.value = { ...state.peek(), name, params, error: error instanceof Error ? error.message : String(error), loading: false };
        },
      );
    };
    state.value = { ...state.peek(), name, params, loading: true };
    load(every !== undefined);
    if (every === undefined) return;
    const timer = setInterval(() => document.visibilityState === 'visible' && load(true), every);
    return () => clearInterval(timer);
  });
  return state.value;
}

/** A value that is computed again only when `view.rows` is another array. */
export function useRows<T, R>(view: View<T>, compute: (rows: T[]) => R, ...more: unknown[]): R | undefined {
  return useMemo(() => (view.rows ? compute(view.rows) : undefined), [view.rows, ...more]);
}
