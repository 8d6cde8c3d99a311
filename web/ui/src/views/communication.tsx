// Communication: which exchange sent how much to whom. A list of exchanges, and the matrix of the chosen one.
import './communication.css';
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useMemo, useRef } from 'preact/hooks';
import { Canvas, fitted, hatch, useWidth, type Surface } from '../canvas';
import { cividis } from '../colour';
import { useRows, useView, type Params } from '../data';
import { bytes, count, duration, plural, share, short, times } from '../format';
import { useKeys } from '../keys';
import { announcement } from '../main';
import { Choice, Panel, Tip } from '../panel';
import { title, useQuery, type Query } from '../query';
import { hovered, search, select, selection, setSearch } from '../state';
import { local, makeMatrix, SERIATED, type Amount, type End, type Level, type Load, type Matrix, type Order, type Received, type Sent } from './matrix';

/** A row of the view `exchanges`. */
interface Exchange {
  exchange_id: number;
  name: string;
  routing: string | null;
  details: string;
  rows: number;
  bytes: number;
  batches: number;
  crossed_rows: number;
  crossed_bytes: number;
  senders: number;
  receivers: number;
  receiving_workers: number;
  max_rows: number;
  skew: number | null;
  largest_worker: number | null;
  largest_partition: number | null;
}

/** A row of the view `exchange_keys`. */
interface HeavyKey {
  key: string;
  rows: number;
  error: number;
  share: number;
  share_error: number;
  senders: number;
  worker_id: number | null;
  partition: number | null;
}

/** A skew from which the page says that rows are uneven. */
const UNEVEN = 1.25;

function routing(exchange: Exchange): string {
  const columns = /Hash\(\[(.*)\],/.exec(exchange.details)?.[1]?.replace(/@\d+/g, '');
  const names: Record<string, string> = {
    hash: columns ? `Hash of ${columns}` : 'Hash', 'value number': 'By number of a value', 'round robin': 'Round robin',
  };
  return names[exchange.routing ?? ''] ?? title({ name: exchange.name, details: exchange.details, table_name: null });
}

const amount = (load: Pick<Load, 'rows' | 'bytes'>, by: Amount): string => (by === 'rows' ? plural(load.rows, 'row') : bytes(load.bytes));

/** Switches of the matrix, in the URL: what differs from the usual. */
function useSwitches(): { by: Amount; order: Order; level: Level | undefined; set: (changes: { by?: Amount; order?: Order; level?: Level }) => void } {
  const words = new Set((search.value['matrix'] ?? '').split(','));
  const now = {
    by: (words.has('bytes') ? 'bytes' : 'rows') as Amount,
    order: (['amount', 'similarity'] as const).find((word) => words.has(word)) ?? ('number' as Order),
    level: (['workers', 'partitions'] as const).find((word) => words.has(word)),
  };
  return {
    ...now,
    set: (changes) => {
      const next = { ...now, ...changes };
      const text = [next.by === 'bytes' && 'bytes', next.order !== 'number' && next.order, next.level].filter(Boolean).join(',');
      setSearch({ matrix: text || undefined });
    },
  };
}

export function Communication(): JSX.Element {
  const query = useQuery();
  const time = selection.value.time;
  const timed = query.info.profile_level === 'calls' || query.info.profile_level === 'records';
  const window: Params = time && timed ? { lo: time[0], hi: time[1] } : {};
  const view = useView<Exchange>('exchanges', { query_id: query.id, ...window });
  const chosen = useRef<number | undefined>(undefined);
  const selected = view.rows?.find((row) => selection.value.operators.has(row.exchange_id));
  if (selected) chosen.current = selected.exchange_id;
  const exchange = view.rows && (view.rows.find((row) => row.exchange_id === chosen.current) ?? mostUneven(view.rows));
  if (exchange) chosen.current = exchange.exchange_id;
  const crosses = view.rows?.some((row) => row.crossed_rows > 0) || query.info.crossed_rows;
  const { events_dropped: dropped, lost_workers: lost, status, profile_level: level } = query.info;
  return (
    <>
      <Panel
        id="exchanges" title="Exchanges" views={[view]}
        empty={level === 'off'
          ? <>Level off records nothing. Run EXPLAIN PROFILE QUERY {query.id}, or SET profile.level = 'counters' and run it again.</>
          : 'This query has no exchange: its rows stayed in the tasks that made them.'}
        note={<>
          {window['lo'] !== undefined && time ? `What was sent between ${duration(time[0])} and ${duration(time[1])}. ` : ''}
          {time && !timed ? `Level ${level} has only totals of exchanges, so the selected time does not apply. EXPLAIN PROFILE QUERY ${query.id} records each batch. ` : ''}
          {dropped > 0 && <span class="warn">{plural(dropped, 'event')} were dropped: these numbers are too low. Raise profile.memory_bytes. </span>}
          {lost && <span class="warn">Worker {lost} was lost: what it sent is missing. </span>}
          {status !== 'finished' && <span class="warn">The query {status === 'failed' ? 'failed' : 'was cancelled'}: this is what was sent until then. </span>}
          {' '}Skew is the fullest receiver by the mean; 1 is even.
        </>}
      >
        <div class="scrolls" tabIndex={0} role="region" aria-label="List of exchanges">
          <table class="plain exchanges">
            <thead>
              <tr><th class="text">Exchange</th><th class="text">From → to</th><th class="number">Rows</th><th class="number">Skew</th>
                {crosses ? <th class="number">Crossed workers</th> : null}<th class="number">Bytes</th><th class="number">Receivers</th></tr>
            </thead>
            <tbody>
              {view.rows?.map((row) => (
                <tr
                  key={row.exchange_id} class={row === exchange ? 'chosen' : ''}
                  onPointerEnter={() => (hovered.value = { operator: row.exchange_id })} onPointerLeave={() => (hovered.value = {})}
                >
                  <td class="text">
                    <button type="button" aria-pressed={row === exchange} onClick={(event) => {
                      chosen.current = row.exchange_id;
                      if (!selection.value.operators.has(row.exchange_id) || event.shiftKey || event.ctrlKey) {
                        select('operators', row.exchange_id, event.shiftKey || event.ctrlKey);
                      }
                    }}>{row.exchange_id} {routing(row)}</button>
                  </td>
                  <td class="text">{ends(query, row)}</td>
                  <td>{count(row.rows)}</td>
                  <td>{row.routing === 'broadcast' || row.receivers < 2 || row.skew === null ? '–'
                    : <span class={row.skew >= 2 && matters(row) ? 'badge warn' : ''}>{times(row.skew)}</span>}</td>
                  {crosses ? <td>{row.rows ? <Meter part={row.crossed_rows / row.rows} /> : '–'}</td> : null}
                  <td>{bytes(row.bytes)}</td>
                  <td>{row.routing === 'gather' ? plural(row.receiving_workers, 'worker') : plural(row.receivers, 'partition')}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
      {exchange && <ExchangePanel key={exchange.exchange_id} query={query} exchange={exchange} window={window} />}
    </>
  );
}

/** Whether an uneven exchange is large enough to say so: some thousand rows are noise. */
const matters = (exchange: Exchange) => exchange.max_rows >= 1000;

function mostUneven(exchanges: readonly Exchange[]): Exchange | undefined {
  const excess = (row: Exchange) => (row.skew && row.routing !== 'broadcast' ? row.max_rows * (1 - 1 / row.skew) : 0);
  return [...exchanges].sort((a, b) => excess(b) - excess(a) || b.rows - a.rows)[0];
}

function ends(query: Query, exchange: Exchange): string {
  const parent = query.byId.get(exchange.exchange_id)?.parent_operator_id;
  const from = query.childrenOf(exchange.exchange_id).map(title).join(', ');
  const to = parent === null || parent === undefined ? 'result' : title(query.byId.get(parent)!);
  return `${from || '?'} → ${to}`;
}

function Meter({ part }: { part: number }): JSX.Element {
  return <span class="gauge"><span aria-hidden="true"><i style={{ width: `${part * 100}%` }} /></span>{share(part)}</span>;
}

function ExchangePanel({ query, exchange, window }: { query: Query; exchange: Exchange; window: Params }): JSX.Element {
  const at = { query_id: query.id, exchange_id: exchange.exchange_id };
  const sent = useView<Sent>('communication', { ...at, ...window });
  const received = useView<Received>('receivers', { ...at, ...window });
  const keysView = useView<HeavyKey>('exchange_keys', at);
  const { by, order, level: wished, set } = useSwitches();
  const hasPartitions = sent.rows?.some((row) => row.destination_partition !== null || row.source_partition !== null) ?? false;
  const manyWorkers = new Set(received.rows?.map((row) => row.worker_id)).size > 1;
  // The view has summed more than 64 × 64 cells to workers already. In a single process there are only partitions.
  const level: Level = !hasPartitions ? 'workers' : manyWorkers ? wished ?? 'partitions' : 'partitions';
  const matrix = useRows(sent, (rows) => makeMatrix(rows, received.rows ?? [], level, by, order), received.rows, level, by, order);
  const keys = keysView.rows ?? [];
  const orders: [Order, string][] = [['number', 'Number'], ['amount', 'Amount'], ['similarity', 'Similarity']];
  useKeys([{ key: 'm', does: 'Order the matrix by number, amount, similarity', run: () => {
    const next = orders[(orders.findIndex(([name]) => name === order) + 1) % orders.length]!;
    set({ order: next[0] });
    announcement.value = `Ordered by ${next[1].toLowerCase()}`;
  } }], order, by, wished);
  const time = window['lo'] === undefined ? '' : `Between ${duration(Number(window['lo']))} and ${duration(Number(window['hi']))}: `;
  const sentence = matrix && finding(matrix, keys, exchange, by, time !== '');
  return (
    <Panel
      id="matrix" title={`Exchange ${exchange.exchange_id}, ${routing(exchange)}: who sent how much to whom`} views={[sent, received, keysView]}
      tools={<>
        {hasPartitions && manyWorkers && <Choice label="Senders and receivers are" value={level} options={[['workers', 'Workers'], ['partitions', 'Partitions']]} onChange={(level) => set({ level })} />}
        <Choice label="Colour by" value={by} options={[['rows', 'Rows'], ['bytes', 'Bytes']]} onChange={(by) => set({ by })} />
        <label class="order" title="Key m">Order <select value={order} onChange={(event) => set({ order: event.currentTarget.value as Order })}>
          {orders.map(([name, text]) => <option key={name} value={name}>{text}</option>)}
        </select></label>
      </>}
    >
      <div class="matrix">
        {matrix && matrix.total.rows === 0 && <p class="message">{time ? `Nothing was sent in the selected time. Press Escape to clear it.` : 'Nothing was sent: the query made no rows here.'}</p>}
        {matrix && matrix.total.rows > 0 && sentence && <>
          <p class="headline">{time}{sentence}</p>
          <Drawing matrix={matrix} keys={keys} exchange={exchange} by={by} sentence={sentence} />
          <Sums total={matrix.total} by={by} manyWorkers={manyWorkers} order={order} size={Math.max(matrix.senders.length, matrix.receivers.length)} />
          <Keys keys={keys} exchange={exchange} received={received.rows ?? []} timed={time !== ''} />
        </>}
      </div>
    </Panel>
  );
}

/** A process of its own is worker 0: its partitions need no worker's name. */
const called = (end: End) => (end.partition === null ? `worker ${end.worker}` : `partition ${end.partition}${end.worker === 0 ? '' : ` on worker ${end.worker}`}`);
const upper = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** Keys that a receiver is known to have got. */
function keysOf(keys: readonly HeavyKey[], end: End): HeavyKey[] {
  return keys.filter((key) => key.partition !== null && key.worker_id === end.worker && (end.partition === null || key.partition === end.partition));
}

function finding(matrix: Matrix, keys: readonly HeavyKey[], exchange: Exchange, by: Amount, timed: boolean): string {
  const { receivers, senders, total } = matrix;
  const crossed = total[by] - local(total, by);
  const text: string[] = [];
  if (exchange.routing === 'broadcast' && receivers.length > 1) {
    const least = Math.min(...receivers.map((end) => end[by]));
    text.push(`A broadcast: each of ${receivers.length} receivers got ${least === matrix.most.receiver ? 'all' : 'up to'} ${amount(receivers.reduce((a, b) => (b[by] > a[by] ? b : a)), by)}.`);
  } else if (receivers.length > 1) {
    const most = receivers.reduce((a, b) => (b[by] > a[by] ? b : a));
    const skew = most[by] / matrix.mean.receiver;
    if (skew >= UNEVEN) {
      const key = keysOf(keys, most)[0];
      // Keys are known of the whole query only.
      const part = key && by === 'rows' && most.rows && !timed ? Math.min(key.rows / most.rows, 1) : 0;
      text.push(`${upper(called(most))} got ${share(most[by] / total[by])} of the ${by}, ${times(skew)} the mean${
        part >= 0.05 ? `; key ${key!.key} is about ${share(part)} of its rows.` : key ? `; it has the key ${key.key}.` : '.'}`);
    } else {
      const least = Math.min(...receivers.map((end) => end[by]));
      text.push(`The ${receivers.length} ${receivers[0]!.partition === null ? 'workers' : 'partitions'} are even: each got ${share(least / total[by])} to ${share(most[by] / total[by])} of the ${by}.`);
    }
  } else if (senders.length > 1) {
    const most = senders.reduce((a, b) => (b[by] > a[by] ? b : a));
    text.push(`${upper(called(receivers[0]!))} gathered ${amount(total, by)} from ${senders.length} senders; ${called(most)} sent most, ${share(most[by] / total[by])}.`);
  } else {
    text.push(`${upper(called(senders[0]!))} sent all ${amount(total, by)} to ${called(receivers[0]!)}.`);
  }
  if (crossed > 0) text.push(`${share(crossed / total[by])} of the ${by} crossed workers.`);
  return text.join(' ');
}

function Sums({ total, by, manyWorkers, order, size }: { total: Load; by: Amount; manyWorkers: boolean; order: Order; size: number }): JSX.Element {
  const stayed = local(total, by);
  const part = (value: number) => (by === 'rows' ? plural(value, 'row') : bytes(value));
  return (
    <ul class="sums">
      <li><b>{amount(total, by)}</b> in all{by === 'rows' ? `, ${bytes(total.bytes)}` : ''}</li>
      {manyWorkers || stayed < total[by]
        ? <>
          <li><i class="legend-box crossed" aria-hidden="true" /><b>{part(total[by] - stayed)}</b> crossed workers ({share((total[by] - stayed) / total[by])})</li>
          <li><i class="legend-box local" aria-hidden="true" /><b>{part(stayed)}</b> stayed on their worker ({share(stayed / total[by])})</li>
        </>
        : <li>All of it stayed in one process.</li>}
      {order === 'similarity' && size > SERIATED && <li class="warn">More than {SERIATED} are not ordered by similarity.</li>}
    </ul>
  );
}

function Keys({ keys, exchange, received, timed }: { keys: readonly HeavyKey[]; exchange: Exchange; received: readonly Received[]; timed: boolean }): JSX.Element | null {
  if (exchange.routing !== 'hash') return null;
  if (!keys.length) return <p class="note">No key has 0.5 % of the rows or more, as far as the sample tells.</p>;
  const rowsOf = (key: HeavyKey) => received.find((row) => row.worker_id === key.worker_id && row.partition === key.partition)?.rows;
  return (
    <div class="scrolls" tabIndex={0} role="region" aria-label="Heavy keys">
      <table class="plain keys">
        <caption class="faint">Heavy keys, estimated from a sample{timed ? ', of the whole query' : ''}</caption>
        <thead><tr><th class="text">Key</th><th class="number">Share</th><th class="number">Rows</th><th class="text">Went to</th></tr></thead>
        <tbody>
          {keys.slice(0, 8).map((key) => {
            const all = rowsOf(key);
            return (
              <tr key={key.key} onPointerEnter={() => key.partition !== null && (hovered.value = { partition: key.partition, worker: key.worker_id! })} onPointerLeave={() => (hovered.value = {})}>
                <td class="text"><code>{key.key}</code></td>
                <td>{share(key.share)} ± {share(key.share_error)}</td>
                <td>{count(key.rows)} ± {count(key.error)}</td>
                <td class="text">{key.partition === null ? 'not known: several partitions may have it'
                  : <>
                    <button type="button" onClick={(event) => select('partitions', key.partition!, event.shiftKey || event.ctrlKey)}>partition {key.partition}</button>{key.worker_id === 0 ? '' : ` on worker ${key.worker_id}`}
                    {!timed && all ? `, ${share(Math.min(key.rows / all, 1))} of its rows` : ''}
                  </>}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {keys.length > 8 && <p class="note">{plural(keys.length - 8, 'more key')} in the table of rows.</p>}
    </div>
  );
}

/** A place that can be pointed at: a cell, a sender's sum (column −1), a receiver's sum (row −1). */
interface Place { row: number; column: number }

/** Cells below this size have no gaps, no marks of their own and no numbers. */
const SMALL = 10;

function Drawing({ matrix, keys, exchange, by, sentence }: { matrix: Matrix; keys: readonly HeavyKey[]; exchange: Exchange; by: Amount; sentence: string }): JSX.Element {
  const { senders, receivers, total, most } = matrix;
  const [holder, width] = useWidth();
  const cursor = useSignal<Place | undefined>(undefined);
  const pointed = useSignal<Place | undefined>(undefined);
  const tip = useSignal<{ x: number; y: number } | undefined>(undefined);
  // One sender or one receiver: the other side as bars, not a lonely line of cells.
  const bars = senders.length === 1 ? 'receivers' as const : receivers.length === 1 ? 'senders' as const : undefined;
  const ended = bars ? matrix[bars] : [];
  const told = useMemo(() => receivers.map((end) => keysOf(keys, end)), [receivers, keys]);
  const partitions = receivers.some((end) => end.partition !== null);
  const manyWorkers = new Set(ended.map((end) => end.worker)).size > 1;
  const sendsPartitions = senders.some((end) => end.partition !== null);
  const tall = bars ? clamp(380 / ended.length, 3, 26) : clamp(340 / senders.length, 7, 40);
  const left = bars ? 104 : sendsPartitions ? 104 : 74;
  const right = (bars ? 128 : width < 480 ? 66 : 104) + (by === 'bytes' ? 16 : 0);
  const head = bars ? 20 : 66 + (partitions ? 32 : 18);
  const keyLines = bars ? 0 : Math.min(2, Math.max(0, ...told.map((list) => list.length)));
  const body = tall * (bars ? ended.length : senders.length);
  const height = Math.ceil(head + body + (bars ? 24 : 8 + keyLines * 16 + 34));
  const gap = tall < SMALL ? 0 : 1;
  const wide = bars ? 0 : Math.min(96, (Math.max(width, 200) - left - right) / receivers.length);

  const isOn = (from: End | undefined, to: End | undefined): boolean => {
    const { workers, partitions: chosen } = selection.value;
    const worker = !workers.size || (from && workers.has(from.worker)) || (to && workers.has(to.worker));
    const partition = !chosen.size || [from, to].some((end) => end && end.partition !== null && chosen.has(end.partition))
      || (to?.partition ?? from?.partition ?? null) === null;
    return !!worker && partition;
  };

  const draw = ({ context, width, ink }: Surface) => {
    const light = ink.accent;
    const lit = (end: End, side: 'from' | 'to') => {
      const { worker, partition } = hovered.value;
      const place = pointed.value ?? cursor.value;
      if (place) return (side === 'from' ? senders[place.row] : receivers[place.column]) === end;
      return worker === end.worker && (partition === undefined || end.partition === null || partition === end.partition)
        || (worker === undefined && partition !== undefined && partition === end.partition);
    };
    /** A bar with its local part in lines. */
    const bar = (x: number, y: number, w: number, h: number, part: number, upright: boolean) => {
      context.fillStyle = light;
      context.fillRect(x, y, w, h);
      if (part > 0 && part <= 1 && part * (upright ? h : w) >= 1) {
        const [px, py, pw, ph] = upright ? [x, y + h * (1 - part), w, h * part] : [x, y, w * part, h];
        context.fillStyle = ink.panel;
        context.fillRect(px + 1, py + 1, Math.max(pw - 2, 0), Math.max(ph - 2, 0));
        hatch(context, px, py, pw, ph, light, 4);
      }
    };
    if (bars) {
      const side = bars === 'receivers' ? 'to' : 'from';
      const max = bars === 'receivers' ? most.receiver : most.sender;
      const space = width - left - right;
      const drawMean = () => {
        const mean = bars === 'receivers' ? matrix.mean.receiver : matrix.mean.sender;
        if (ended.length > 1 && max) {
          const x = left + (mean / max) * space;
          dashed(context, x, head - 2, x, head + body + 2, ink.text);
          context.fillStyle = ink.faint;
          context.textAlign = x > width - 120 ? 'right' : 'left';
          context.fillText(`mean ${by === 'rows' ? short(mean) : bytes(mean)}`, x, 9);
        }
      };
      const lengthOf = (end: End) => (max ? (end[by] / max) * space : 0);
      ended.forEach((end, i) => {
        const y = head + i * tall;
        if (lit(end, side)) {
          context.fillStyle = ink.line;
          context.fillRect(0, y, width, tall);
        }
        context.globalAlpha = isOn(side === 'from' ? end : undefined, side === 'to' ? end : undefined) ? 1 : 0.3;
        bar(left, tall < 8 ? y : y + 1, lengthOf(end), tall < 8 ? Math.max(tall - 0.6, 1) : tall - 2, total.localRows < total.rows ? local(end, by) / end[by] : 0, false);
        context.globalAlpha = 1;
      });
      drawMean();
      // Thin bars: only the longest have names, as far as these do not meet.
      const named = new Set<End>();
      if (tall < 12) {
        const places: number[] = [];
        for (const end of [...ended].sort((a, b) => b[by] - a[by]).slice(0, 8)) {
          const i = ended.indexOf(end);
          if (end[by] < 1.25 * matrix.mean[bars === 'receivers' ? 'receiver' : 'sender'] || places.some((other) => Math.abs(other - i) * tall < 14)) continue;
          places.push(i);
          named.add(end);
        }
      }
      ended.forEach((end, i) => {
        const y = head + i * tall;
        if ((bars === 'receivers' ? cursor.value?.column : cursor.value?.row) === i) outline(context, 1, y, width - 2, tall, ink.accent);
        if (tall < 12 && !named.has(end)) return;
        const long = lengthOf(end);
        const middle = y + tall / 2;
        const name = end.partition === null ? `worker ${end.worker}` : manyWorkers ? `worker ${end.worker} · ${end.partition}` : `partition ${end.partition}`;
        context.fillStyle = ink.text;
        context.textAlign = 'right';
        context.fillText(fitted(context, name, left - 8), left - 6, middle);
        context.textAlign = 'left';
        const text = `${by === 'rows' ? short(end.rows) : bytes(end.bytes)} · ${share(end[by] / total[by])}`;
        context.fillStyle = lit(end, side) ? ink.line : ink.panel;
        context.fillRect(left + long + 4, middle - 7, context.measureText(text).width + 4, 14);
        context.fillStyle = ink.text;
        context.fillText(text, left + long + 6, middle);
        const heavy = bars === 'receivers' ? told[i]!.slice(0, 2).map((key) => `key ${key.key}`).join(', ') : '';
        const w = context.measureText(heavy).width + 8;
        if (heavy && w + 8 < long && tall >= 18) {
          context.fillStyle = ink.panel;
          context.fillRect(left + 4, y + 3, w, tall - 6);
          context.fillStyle = ink.warn;
          context.fillText(heavy, left + 8, middle);
        }
      });
      context.strokeStyle = ink.line;
      context.strokeRect(left - 0.5, head, 0, body);
      context.textAlign = 'left';
      context.fillStyle = ink.faint;
      context.fillText(`0`, left, head + body + 12);
      return;
    }
    // Receivers' sums.
    const [barTop, barHigh] = [16, 50];
    const base = barTop + barHigh;
    context.fillStyle = ink.faint;
    context.textAlign = 'left';
    context.fillText('received', 0, base - 8);
    receivers.forEach((end, c) => {
      const x = left + c * wide;
      const high = most.receiver ? (end[by] / most.receiver) * barHigh : 0;
      context.globalAlpha = isOn(undefined, end) ? 1 : 0.3;
      bar(x + gap, base - high, Math.max(wide - 2 * gap, 1), high, end[by] ? local(end, by) / end[by] : 0, true);
      context.globalAlpha = 1;
    });
    if (most.receiver) {
      const y = base - (matrix.mean.receiver / most.receiver) * barHigh;
      dashed(context, left, y, left + wide * receivers.length, y, ink.text);
      context.fillStyle = ink.faint;
      context.textAlign = 'left';
      context.fillText(fitted(context, `mean ${by === 'rows' ? short(matrix.mean.receiver) : bytes(matrix.mean.receiver)}`, right - 4), left + wide * receivers.length + 4, y);
    }
    context.textAlign = 'center';
    receivers.forEach((end, c) => {
      const text = by === 'rows' ? short(end.rows) : bytes(end.bytes);
      const w = context.measureText(text).width + 6;
      if (w > wide) return;
      const [x, y] = [left + (c + 0.5) * wide, base - (most.receiver ? (end[by] / most.receiver) * barHigh : 0) - 8];
      context.fillStyle = ink.panel;
      context.fillRect(x - w / 2, y - 7, w, 14);
      context.fillStyle = ink.text;
      context.globalAlpha = isOn(undefined, end) ? 1 : 0.4;
      context.fillText(text, x, y);
      context.globalAlpha = 1;
    });
    // Names of receivers: partitions, and workers over neighbours.
    context.textAlign = 'center';
    if (partitions) {
      context.fillStyle = ink.faint;
      context.textAlign = 'right';
      context.fillText('partition', left - 6, base + 9);
      context.textAlign = 'center';
      const step = wide >= 18 ? 1 : Math.ceil(18 / wide);
      receivers.forEach((end, c) => {
        if (c % step && !lit(end, 'to')) return;
        context.fillStyle = lit(end, 'to') ? ink.accent : ink.text;
        if (end.partition !== null) context.fillText(String(end.partition), left + (c + 0.5) * wide, base + 9);
      });
    }
    for (let c = 0; c < receivers.length;) {
      let next = c + 1;
      while (partitions && next < receivers.length && receivers[next]!.worker === receivers[c]!.worker) next++;
      const [x, w] = [left + c * wide, (next - c) * wide];
      context.fillStyle = receivers.slice(c, next).some((end) => lit(end, 'to')) ? ink.accent : ink.text;
      const name = `worker ${receivers[c]!.worker}`;
      const text = context.measureText(name).width + 4 <= w ? name : fitted(context, `w${receivers[c]!.worker}`, w);
      if (!text.includes('…')) context.fillText(text, x + w / 2, base + (partitions ? 25 : 10));
      if (partitions && w > 8) line(context, x + 3, base + 17, x + w - 3, base + 17, ink.line);
      c = next;
    }
    // Senders, cells, senders' sums.
    const edge = left + wide * receivers.length;
    senders.forEach((from, r) => {
      const y = head + r * tall;
      if (tall < 12) {
        let next = r;
        while (next < senders.length && senders[next]!.worker === from.worker) next++;
        if ((next - r) * tall >= 12 && senders[r - 1]?.worker !== from.worker) {
          context.textAlign = 'right';
          context.fillStyle = senders.slice(r, next).some((end) => lit(end, 'from')) ? ink.accent : ink.text;
          context.fillText(`worker ${from.worker}`, left - 6, y + ((next - r) * tall) / 2);
        }
      } else {
        context.textAlign = 'right';
        context.fillStyle = lit(from, 'from') ? ink.accent : ink.text;
        context.fillText(fitted(context, from.partition === null ? `worker ${from.worker}` : `worker ${from.worker} · ${from.partition}`, left - 8), left - 6, y + tall / 2);
      }
      receivers.forEach((to, c) => {
        const x = left + c * wide;
        const cell = matrix.cells[r]![c];
        const [w, h] = [Math.max(wide - gap, 1), Math.max(tall - gap, 1)];
        context.globalAlpha = isOn(from, to) ? 1 : 0.25;
        if (!cell || !cell[by]) {
          // Nothing was sent: an empty box, so that none is not taken for few.
          context.strokeStyle = ink.line;
          context.lineWidth = gap;
          if (gap) context.strokeRect(x + 0.5, y + 0.5, Math.max(w - 1, 1), Math.max(h - 1, 1));
          context.globalAlpha = 1;
          return;
        }
        const part = most.cell ? cell[by] / most.cell : 0;
        context.fillStyle = cividis(part);
        context.fillRect(x, y, w, h);
        const over = part > 0.52 ? '#000' : '#fff';
        if (from.worker === to.worker && w >= SMALL && h >= SMALL) {
          const size = Math.min(9, w * 0.5, h * 0.5);
          context.fillStyle = over;
          context.beginPath();
          context.moveTo(x + 2, y + h - 2);
          context.lineTo(x + 2 + size, y + h - 2);
          context.lineTo(x + 2, y + h - 2 - size);
          context.fill();
        }
        const text = by === 'rows' ? short(cell.rows) : bytes(cell.bytes);
        if (tall >= 15 && context.measureText(text).width + 6 <= wide) {
          const on = context.globalAlpha === 1;
          context.globalAlpha = 1;
          context.fillStyle = on ? over : ink.faint;
          context.textAlign = 'center';
          context.fillText(text, x + wide / 2, y + tall / 2);
        }
        context.globalAlpha = 1;
      });
      const space = Math.max(right - (by === 'bytes' ? 68 : 52), 14);
      const long = most.sender ? (from[by] / most.sender) * space : 0;
      context.globalAlpha = isOn(from, undefined) ? 1 : 0.3;
      bar(edge + 6, y + 1, long, Math.max(tall - 3, 1), from[by] ? local(from, by) / from[by] : 0, false);
      if (tall >= 12) {
        context.fillStyle = ink.text;
        context.textAlign = 'left';
        context.fillText(by === 'rows' ? short(from.rows) : bytes(from.bytes), edge + 10 + long, y + tall / 2);
      }
      context.globalAlpha = 1;
    });
    // In small cells a line around all that stay on their worker stands for the mark.
    if (tall < SMALL || wide < SMALL) {
      const same = (r: number, c: number) => senders[r] !== undefined && senders[r]!.worker === receivers[c]?.worker;
      context.beginPath();
      senders.forEach((_, r) => receivers.forEach((_, c) => {
        if (!same(r, c)) return;
        const [x1, y1, x2, y2] = [left + c * wide, head + r * tall, left + (c + 1) * wide, head + (r + 1) * tall];
        for (const [dr, dc, ax, ay, bx, by] of [[-1, 0, x1, y1, x2, y1], [1, 0, x1, y2, x2, y2], [0, -1, x1, y1, x1, y2], [0, 1, x2, y1, x2, y2]] as const) {
          if (same(r + dr, c + dc)) continue;
          context.moveTo(ax, ay);
          context.lineTo(bx, by);
        }
      }));
      for (const [colour, size] of [['#000', 3], ['#fff', 1.2]] as const) {
        context.strokeStyle = colour;
        context.lineWidth = size;
        context.stroke();
      }
      context.lineWidth = 1;
    }
    const foot = head + body;
    context.fillStyle = ink.faint;
    context.textAlign = 'left';
    context.fillText('sent', edge + 6, head - 10);
    // Heavy keys under their receivers; the list below has those for which there is no room.
    let busy = [-1, -1];
    receivers.forEach((_, c) => told[c]!.slice(0, 2).forEach((key, i) => {
      const text = fitted(context, `▲ key ${key.key} · ${share(key.share)} ± ${share(key.share_error)}`, Math.min(220, width - left));
      const w = context.measureText(text).width;
      const x = Math.min(Math.max(left + (c + 0.5) * wide - 6, 0), width - w);
      if (x < busy[i]!) return;
      context.fillStyle = ink.warn;
      context.fillText(text, x, foot + 10 + i * 16);
      busy[i] = x + w + 8;
    }));
    // The scale, from 0.
    const y = foot + 14 + keyLines * 16;
    const long = Math.min(160, width - left - 80);
    for (let i = 0; i < long; i++) {
      context.fillStyle = cividis(i / long);
      context.fillRect(left + i, y, 1.5, 9);
    }
    context.fillStyle = ink.faint;
    context.textAlign = 'right';
    context.fillText('cell: 0', left - 6, y + 5);
    context.textAlign = 'left';
    context.fillText(`${by === 'rows' ? count(most.cell) : bytes(most.cell)}${width > 460 ? (tall < SMALL || wide < SMALL ? '  framed: stays on its worker' : '  ◣ stays on its worker  □ nothing') : ''}`, left + long + 6, y + 5);
    for (const place of [cursor.value, pointed.value]) {
      if (!place || (place.row < 0 && place.column < 0)) continue;
      const x = place.column < 0 ? edge + 3 : left + place.column * wide;
      const top = place.row < 0 ? 2 : head + place.row * tall;
      outline(context, x, top, place.column < 0 ? right - 4 : wide - gap, place.row < 0 ? base - 2 : tall - gap, place === cursor.value ? ink.accent : ink.text);
    }
  };

  const placeAt = (x: number, y: number): Place | undefined => {
    const r = Math.floor((y - head) / tall);
    if (bars) return r >= 0 && r < ended.length ? (bars === 'receivers' ? { row: -1, column: r } : { row: r, column: -1 }) : undefined;
    const c = Math.floor((x - left) / wide);
    const row = r >= 0 && r < senders.length;
    const column = c >= 0 && c < receivers.length;
    if (row && column) return { row: r, column: c };
    if (row) return { row: r, column: -1 };
    if (column && y < head) return { row: -1, column: c };
    return undefined;
  };
  const choose = (place: Place, more: boolean) => {
    const end = place.column >= 0 ? receivers[place.column]! : senders[place.row]!;
    if (end.partition !== null) select('partitions', end.partition, more);
    else select('workers', end.worker, more);
  };
  const hover = (place: Place | undefined) => {
    const end = place && (place.column >= 0 ? receivers[place.column] : senders[place.row]);
    hovered.value = end ? { operator: exchange.exchange_id, worker: end.worker, ...(end.partition === null ? {} : { partition: end.partition }) } : {};
  };
  const move = (event: KeyboardEvent) => {
    const now = cursor.value ?? { row: bars === 'receivers' ? -1 : 0, column: bars === 'senders' ? -1 : 0 };
    const steps: Record<string, Place> = bars
      ? { ArrowDown: { row: 1, column: 1 }, ArrowUp: { row: -1, column: -1 }, ArrowRight: { row: 1, column: 1 }, ArrowLeft: { row: -1, column: -1 },
        Home: { row: -1e6, column: -1e6 }, End: { row: 1e6, column: 1e6 } }
      : { ArrowDown: { row: 1, column: 0 }, ArrowUp: { row: -1, column: 0 }, ArrowRight: { row: 0, column: 1 }, ArrowLeft: { row: 0, column: -1 },
        Home: { row: 0, column: -1e6 }, End: { row: 0, column: 1e6 }, PageUp: { row: -1e6, column: 0 }, PageDown: { row: 1e6, column: 0 } };
    if (event.key === 'Enter' || event.key === ' ') choose(now, event.shiftKey || event.ctrlKey);
    else if (!steps[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    else {
      const step = steps[event.key]!;
      const lowest = bars ? 0 : -1;
      let next = {
        row: bars === 'receivers' ? -1 : clamp(now.row + step.row, lowest, senders.length - 1),
        column: bars === 'senders' ? -1 : clamp(now.column + step.column, lowest, receivers.length - 1),
      };
      if (!bars && next.row < 0 && next.column < 0) next = now;
      cursor.value = next;
      hover(next);
      announcement.value = `${describe(matrix, next, by)} ${keySentence(told[next.column] ?? [])}`.trim();
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const place = pointed.value;
  return (
    <div
      class="matrix-cells" ref={holder} tabIndex={0} role="application" aria-roledescription={bars ? 'bars' : 'matrix'}
      aria-label={`${sentence} Arrow keys move over ${bars ? 'bars' : 'cells; sums are above and at the left of the first'}. Enter selects.`} onKeyDown={move}
      onFocus={(event) => {
        if (!event.currentTarget.matches(':focus-visible') || cursor.value) return;
        cursor.value = { row: bars === 'receivers' ? -1 : 0, column: bars === 'senders' ? -1 : 0 };
        announcement.value = describe(matrix, cursor.value, by);
      }}
      onBlur={() => { cursor.value = undefined; hovered.value = {}; }}
    >
      <Canvas
        label={sentence} height={height} draw={draw} cursor={place ? 'pointer' : 'default'}
        onMove={(x, y, event) => {
          const next = placeAt(x, y);
          tip.value = next && { x: event.clientX, y: event.clientY };
          if (next?.row === place?.row && next?.column === place?.column) return;
          pointed.value = next;
          hover(next);
        }}
        onLeave={() => { pointed.value = tip.value = undefined; hovered.value = {}; }}
        onPress={(x, y, event) => {
          const next = placeAt(x, y);
          if (next) choose(next, event.shiftKey || event.ctrlKey);
        }}
      />
      <Tip at={tip.value}>{place && <Facts matrix={matrix} place={place} told={told[place.column] ?? []} />}</Tip>
    </div>
  );
}

function keySentence(keys: readonly HeavyKey[]): string {
  return keys.slice(0, 2).map((key) => `Key ${key.key} has about ${share(key.share)} of all rows.`).join(' ');
}

/** A cell or a sum as a sentence. */
function describe(matrix: Matrix, { row, column }: Place, by: Amount): string {
  const [from, to] = [matrix.senders[row], matrix.receivers[column]];
  if (from && to) {
    const cell = matrix.cells[row]![column];
    if (!cell) return `${upper(called(from))} sent nothing to ${called(to)}.`;
    return `${upper(called(from))} sent ${amount(cell, by)} to ${called(to)}, ${share(cell[by] / matrix.total[by])} of all${from.worker === to.worker ? ', without leaving the worker' : ''}.`;
  }
  if (to) return `${upper(called(to))} got ${amount(to, by)}, ${share(to[by] / matrix.total[by])} of all, ${times(to[by] / matrix.mean.receiver)} the mean.`;
  if (from) return `${upper(called(from))} sent ${amount(from, by)}, ${share(from[by] / matrix.total[by])} of all, ${times(from[by] / matrix.mean.sender)} the mean.`;
  return '';
}

function Facts({ matrix, place, told }: { matrix: Matrix; place: Place; told: readonly HeavyKey[] }): JSX.Element {
  const [from, to] = [matrix.senders[place.row], matrix.receivers[place.column]];
  const load = from && to ? matrix.cells[place.row]![place.column] : from ?? to;
  const part = (of: Load) => `${share(load!.rows / of.rows)}`;
  return (
    <>
      <b>{from && to ? `${called(from)} → ${called(to)}` : from ? `sent by ${called(from)}` : `received by ${called(to!)}`}</b>
      {!load ? <p>nothing</p> : <dl>
        <dt>rows</dt><dd>{count(load.rows)} ({part(matrix.total)} of all)</dd>
        {from && to && <><dt /><dd>{part(to)} of what {to.partition === null ? `worker ${to.worker}` : `partition ${to.partition}`} got</dd></>}
        <dt>bytes</dt><dd>{bytes(load.bytes)}</dd>
        {!(from && to) && <><dt>by the mean</dt><dd>{times(load.rows / ((from ? matrix.total.rows / matrix.senders.length : matrix.total.rows / matrix.receivers.length) || 1))}</dd></>}
        {from && to ? <><dt>way</dt><dd>{from.worker === to.worker ? 'stayed on the worker' : 'crossed workers'}</dd></>
          : <><dt>stayed local</dt><dd>{count(load.localRows)}</dd></>}
        {load.last > -Infinity && <><dt>{load.batches > 1 ? 'sent' : 'sent at'}</dt><dd>{load.batches > 1 ? `${duration(load.first)} to ${duration(load.last)}, ${plural(load.batches, 'batch', 'batches')}` : duration(load.last)}</dd></>}
        {to?.self !== undefined && to.self !== null && !from && <><dt>exchange worked</dt><dd>{duration(to.self)}</dd></>}
        {told.slice(0, 3).map((key) => <><dt>key {key.key}</dt><dd>{share(key.share)} ± {share(key.share_error)} of all rows</dd></>)}
      </dl>}
    </>
  );
}

const clamp = (value: number, low: number, high: number) => Math.min(Math.max(value, low), high);

function line(context: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x1, Math.round(y1) + 0.5);
  context.lineTo(x2, Math.round(y2) + 0.5);
  context.stroke();
}

function dashed(context: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number, colour: string): void {
  context.setLineDash([4, 3]);
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
  context.setLineDash([]);
}

function outline(context: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = 2;
  context.strokeRect(x, y, w, h);
  context.lineWidth = 1;
}
