// How records spread over latencies: bars count records, the line is their share of all time.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { Canvas, type Surface } from '../../canvas';
import type { View } from '../../data';
import { count, duration, plural, share, short } from '../../format';
import { Choice, Panel, Tip } from '../../panel';
import { setSearch } from '../../state';
import { pick, readDuration, selectRange, reveal, sourceName, startOf, tableName, tailOf, isTable, type Bin, type Measure, type Scope } from './scope';

const HEIGHT = 230;
const PAD = { left: 46, right: 46, top: 30, bottom: 26 };

export function Histogram({ view, scope, sources }: { view: View<Bin>; scope: Scope; sources: readonly string[] }): JSX.Element {
  const bins = useMemo(() => (view.rows ?? []).filter((row) => row.source === scope.source), [view.rows, scope.source]);
  const all = useMemo(() => ({
    records: bins.reduce((sum, bin) => sum + bin.records, 0), time: bins.reduce((sum, bin) => sum + bin.time_ns, 0),
  }), [bins]);
  const tail = useMemo(() => tailOf(bins), [bins]);
  const drag = useSignal<[number, number] | undefined>(undefined);
  const cursor = useSignal<number | undefined>(undefined);
  const tip = useSignal<{ x: number; y: number; bin: number } | undefined>(undefined);
  const width = useRef(0);
  const first = Math.min(...bins.map((bin) => bin.bin), 40) - 1;
  const last = Math.max(...bins.map((bin) => bin.bin), first + 12) + 2;
  const inner = () => Math.max(width.current - PAD.left - PAD.right, 1);
  const xOf = (bin: number) => PAD.left + ((bin - first) / (last - first)) * inner();
  const binAt = (x: number) => Math.min(Math.max(Math.floor(first + ((x - PAD.left) / inner()) * (last - first)), first), last - 1);
  const binOf = (ns: number) => 4 * Math.log2(Math.max(ns, 1));
  const range: [number, number] | undefined = drag.value
    ? [Math.min(...drag.value), Math.max(...drag.value) + 1]
    : scope.low === undefined && scope.high === undefined ? undefined
      : [scope.low === undefined ? first : binOf(scope.low), scope.high === undefined ? last : binOf(scope.high)];

  const keep = (from: number, to: number) => selectRange(from <= first ? undefined : startOf(from), to >= last ? undefined : startOf(to));
  const release = () => {
    if (!drag.value) return;
    const [from, to] = [Math.min(...drag.value), Math.max(...drag.value) + 1];
    const single = drag.value[0] === drag.value[1];
    drag.value = undefined;
    // A click on nothing clears the range.
    if (single && !bins.some((bin) => bin.bin === from)) selectRange(undefined, undefined);
    else keep(from, to);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key === 'Escape' && range) {
      event.preventDefault();
      cursor.value = undefined;
      selectRange(undefined, undefined);
    }
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    // From bin to bin that has records.
    const ahead = bins.filter((bin) => (bin.bin - (cursor.value ?? (step > 0 ? first : last))) * step > 0);
    const at = (step > 0 ? ahead[0] : ahead[ahead.length - 1])?.bin;
    if (at === undefined) return;
    const anchor = event.shiftKey && range ? (step > 0 ? [Math.round(range[0]), at + 1] : [at, Math.round(range[1])]) : [at, at + 1];
    cursor.value = at;
    keep(Math.min(anchor[0]!, anchor[1]! - 1), Math.max(anchor[1]!, anchor[0]! + 1));
  };

  const draw = ({ context, width: w, height, ink }: Surface) => {
    width.current = w;
    const [top, bottom] = [PAD.top, height - PAD.bottom];
    const most = Math.max(...bins.map((bin) => bin.records), 1);
    const line = (x1: number, y1: number, x2: number, y2: number) => {
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
      context.stroke();
    };
    context.lineWidth = 1;
    context.strokeStyle = ink.line;
    context.fillStyle = ink.faint;
    context.font = '11px system-ui, sans-serif';
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(bottom - part * (bottom - top)) + 0.5;
      line(PAD.left, y, w - PAD.right, y);
      context.textAlign = 'right';
      context.fillText(short(Math.round(most * part)), PAD.left - 6, y);
      context.textAlign = 'left';
      context.fillText(share(part), w - PAD.right + 6, y);
    }
    context.textAlign = 'left';
    context.fillText('records', 4, 10);
    context.textAlign = 'right';
    context.fillText('share of time', w - 4, 10);
    // Powers of ten, and 2 and 5 times them where there is room.
    context.textAlign = 'center';
    const factors = last - first > 32 ? [1] : [1, 2, 5];
    for (const tick of Array.from({ length: 14 }, (_, power) => factors.map((factor) => factor * 10 ** power)).flat()) {
      const at = binOf(tick);
      if (at < first || at > last) continue;
      const x = Math.round(xOf(at)) + 0.5;
      line(x, bottom, x, bottom + 5);
      context.fillText(duration(tick).replace(/\.0+(?= )/, ''), x, bottom + 15);
    }
    if (range) {
      const [x1, x2] = [Math.max(xOf(range[0]), PAD.left), Math.min(xOf(range[1]), w - PAD.right)];
      context.fillStyle = ink.accent;
      context.globalAlpha = 0.13;
      context.fillRect(x1, top, x2 - x1, bottom - top);
      context.globalAlpha = 1;
      context.fillRect(x1 - 1, top, 2, bottom - top);
      context.fillRect(x2 - 1, top, 2, bottom - top);
    }
    const step = inner() / (last - first);
    for (const bin of bins) {
      const inside = !range || (bin.bin + 1 > range[0] && bin.bin < range[1]);
      // A single record stays visible beside thousands.
      const h = Math.max((bin.records / most) * (bottom - top), 3);
      context.globalAlpha = inside ? 1 : 0.35;
      context.fillStyle = ink.accent;
      context.fillRect(xOf(bin.bin) + 0.5, bottom - h, Math.max(step - 1, 1.5), h);
    }
    context.globalAlpha = 1;
    // The share of time, from bin to bin.
    const shares = new Map(bins.map((bin) => [bin.bin, all.time ? bin.time_ns / all.time : 0]));
    context.strokeStyle = ink.warn;
    context.lineWidth = 2;
    context.beginPath();
    for (let bin = first; bin < last; bin++) {
      const [x, y] = [xOf(bin + 0.5), bottom - (shares.get(bin) ?? 0) * (bottom - top)];
      if (bin === first) context.moveTo(x, y);
      else context.lineTo(x, y);
    }
    context.stroke();
    context.fillStyle = ink.warn;
    for (const [bin, part] of shares) {
      context.beginPath();
      context.arc(xOf(bin + 0.5), bottom - part * (bottom - top), 2.6, 0, 7);
      context.fill();
    }
    if (tail) {
      const [x1, x2] = [xOf(tail.from), xOf(bins[bins.length - 1]!.bin + 1)];
      const text = `${plural(tail.records, 'record')}, ${share(tail.records / all.records)}: ${share(tail.time / all.time)} of the time`;
      context.font = '600 12px system-ui, sans-serif';
      const half = context.measureText(text).width / 2;
      const middle = Math.min(Math.max((x1 + x2) / 2, half + 60), w - half - 90);
      context.strokeStyle = ink.text;
      context.lineWidth = 1;
      line(x1, 21.5, x2, 21.5);
      line(x1 + 0.5, 21, x1 + 0.5, 26);
      line(x2 - 0.5, 21, x2 - 0.5, 26);
      context.fillStyle = ink.text;
      context.textAlign = 'center';
      context.fillText(text, middle, 10);
    }
    context.textAlign = 'left';
  };

  const what = scope.measure === 'expressions' ? `expressions took on rows of ${tableName(scope.source)}`
    : scope.measure === 'operators' ? `other operators took for rows of ${tableName(scope.source)} (apportioned by rows)`
      : `operator ${scope.source.slice(9)} took to make groups`;
  const sentence = !bins.length ? 'No latencies.'
    : tail ? `${plural(tail.records, 'record')} of ${count(all.records)} (${share(tail.records / all.records)}) took ${share(tail.time / all.time)} of the ${duration(all.time)} that ${what}.`
      : `The ${duration(all.time)} that ${what} are spread over ${plural(all.records, 'record')}; no small part of them took half of it.`;
  const under = tip.value && bins.find((bin) => bin.bin === tip.value!.bin);
  return (
    <Panel
      id="record-histogram" title="Latency of records" views={[view]} note={sentence} class="records-histogram"
      empty={<p>{view.loading ? 'Loading…' : 'Nothing was recorded by this measure.'}</p>}
      tools={<>
        <Choice<Measure> label="What is measured" value={scope.measure} options={[['expressions', 'Expressions'], ['operators', 'Other operators'], ['groups', 'Groups']]}
          onChange={(measure) => setSearch({ measure, source: undefined, lat: undefined })} />
        {sources.length > 1 && (
          <select aria-label="Table" value={scope.source} onChange={(event) => setSearch({ source: event.currentTarget.value, lat: undefined })}>
            {sources.map((name) => <option key={name} value={name}>{isTable(name) ? tableName(name) : sourceName(name, scope.query)}</option>)}
          </select>
        )}
      </>}
    >
      <div class="brush" tabIndex={0} role="group" onKeyDown={keys}
        aria-label="Range of latencies. Left and right arrows move it, with Shift they extend it, Escape clears it.">
        <Canvas
          label={sentence} height={HEIGHT} draw={draw} cursor="crosshair"
          onPress={(x) => { drag.value = [binAt(x), binAt(x)]; }}
          onMove={(x, _, event) => {
            if (drag.value) drag.value = [drag.value[0], binAt(x)];
            tip.value = { x: event.clientX, y: event.clientY, bin: binAt(x) };
          }}
          onLeave={() => { tip.value = undefined; }}
          onRelease={release}
        />
      </div>
      <Tip at={under ? tip.value : undefined}>
        {under && <dl>
          <dt>Latency</dt><dd>{duration(startOf(under.bin))} – {duration(startOf(under.bin + 1))}</dd>
          <dt>Records</dt><dd>{count(under.records)} ({share(under.records / all.records)})</dd>
          <dt>Time</dt><dd>{duration(under.time_ns)} ({share(under.time_ns / all.time)})</dd>
          {scope.measure === 'expressions' && <><dt>Timed alone</dt><dd>{share(under.sure_ns / Math.max(under.time_ns, 1))} of this time</dd></>}
        </dl>}
      </Tip>
      <Range scope={scope} tail={tail && (() => selectRange(startOf(tail.from), undefined))} dearest={bins.length ? () => { pick(scope.source, bins[bins.length - 1]!.dearest); reveal(); } : undefined} />
    </Panel>
  );
}

function Range({ scope, tail, dearest }: { scope: Scope; tail: (() => void) | undefined; dearest: (() => void) | undefined }): JSX.Element {
  const [low, high] = [useRef<HTMLInputElement>(null), useRef<HTMLInputElement>(null)];
  const wrong = useSignal('');
  const write = (ns: number | undefined) => (ns === undefined ? '' : duration(ns));
  useEffect(() => {
    low.current!.value = write(scope.low);
    high.current!.value = write(scope.high);
    wrong.value = '';
  }, [scope.low, scope.high]);
  const submit = (event: Event) => {
    event.preventDefault();
    const read = (input: HTMLInputElement, kept: number | undefined) =>
      input.value.trim() === '' ? undefined : input.value === write(kept) ? kept : readDuration(input.value) ?? NaN;
    const [from, to] = [read(low.current!, scope.low), read(high.current!, scope.high)];
    wrong.value = Number.isNaN(from) || Number.isNaN(to) ? 'Write a time such as 250 µs, 1.5 ms or 2 s.'
      : from !== undefined && to !== undefined && from >= to ? 'The first time must be the smaller one.' : '';
    if (!wrong.value) selectRange(from, to);
  };
  return (
    <form class="range" onSubmit={submit}>
      <label>From <input ref={low} size={9} placeholder="least" onBlur={submit} /></label>
      <label>to below <input ref={high} size={9} placeholder="greatest" onBlur={submit} /></label>
      <button class="visually-hidden">Apply</button>
      {tail && <button type="button" onClick={tail}>Select the tail</button>}
      {dearest && <button type="button" onClick={dearest}>Show the dearest</button>}
      {(scope.low !== undefined || scope.high !== undefined) && <button type="button" onClick={() => selectRange(undefined, undefined)}>Clear</button>}
      {wrong.value ? <span class="bad" role="alert">{wrong.value}</span> : <span class="faint hint">Drag, or Shift + ← →</span>}
    </form>
  );
}
