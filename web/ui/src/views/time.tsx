// What the two views over time share: the range that is shown, its keys, the strip of the whole run, axes.
import { useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { Canvas, hatch, timeTicks, type Surface } from '../canvas';
import { category } from '../colour';
import type { Row, View } from '../data';
import { duration } from '../format';
import { useKeys } from '../keys';
import { colourOfKind, title, type PlanRow, type Query } from '../query';
import { hovered, selection, selectTime, type Range } from '../state';
import './time.css';

/** Left and right of the time axis in every canvas, so that all of them are aligned. */
export const LEFT = 58;
export const RIGHT = 10;
const SHORTEST = 500;

export interface Time {
  readonly whole: Range;
  /** What is drawn: changes with each frame of a movement. */
  readonly shown: Range;
  /** What to ask for: follows `shown` a few times a second. */
  readonly asked: Range;
  readonly isWhole: boolean;
  to: (range: Range, how?: 'animate' | 'follow') => void;
  pan: (share: number) => void;
  zoom: (factor: number, at?: number) => void;
  reset: () => void;
}

const same = (a: Range | undefined, b: Range | undefined) => a === b || (!!a && !!b && a[0] === b[0] && a[1] === b[1]);
const calm = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

/** The range of time that a view shows. `selection.time` follows it, and it follows `selection.time`. */
export function useTime(query: Query): Time {
  const end = query.info.end_ns;
  const whole = useMemo<Range>(() => [0, end], [end]);
  const shown = useSignal<Range>(selection.peek().time ?? whole);
  const asked = useSignal<Range>(shown.peek());
  const own = useRef({ frame: 0, timer: 0, since: 0, told: selection.peek().time, held: new Set<string>() }).current;

  const limit = ([from, to]: Range): Range => {
    const span = Math.min(Math.max(to - from, Math.min(SHORTEST, end)), end);
    const start = Math.min(Math.max(from, 0), end - span);
    return [start, start + span];
  };
  const tell = (range: Range) => {
    own.timer = 0;
    const rounded: Range = [Math.round(range[0]), Math.round(range[1])];
    own.told = rounded[0] <= 0 && rounded[1] >= end ? undefined : rounded;
    asked.value = own.told ?? whole;
    if (!same(selection.peek().time, own.told)) selectTime(own.told);
  };
  const animate = (target: Range) => {
    cancelAnimationFrame(own.frame);
    if (calm()) {
      shown.value = target;
      return;
    }
    const from = shown.peek();
    const begun = performance.now();
    const step = (now: number) => {
      const part = Math.min(Math.max(now - begun, 0) / 160, 1);
      const eased = 1 - (1 - part) ** 3;
      shown.value = part === 1 ? target : [from[0] + (target[0] - from[0]) * eased, from[1] + (target[1] - from[1]) * eased];
      if (part < 1) own.frame = requestAnimationFrame(step);
    };
    own.frame = requestAnimationFrame(step);
  };
  const to = (range: Range, how: 'animate' | 'follow' = 'animate') => {
    const target = limit(range);
    if (how === 'animate') {
      clearTimeout(own.timer);
      animate(target);
      tell(target);
    } else {
      cancelAnimationFrame(own.frame);
      shown.value = target;
      // Data and URL follow at rest, or once a second: decoding costs frames, and browsers refuse frequent changes.
      const now = performance.now();
      if (!own.timer) own.since = now;
      clearTimeout(own.timer);
      own.timer = window.setTimeout(() => tell(shown.peek()), Math.max(Math.min(160, own.since + 1000 - now), 0));
    }
  };
  const moved = ([from, till]: Range, share: number): Range => [from + (till - from) * share, till + (till - from) * share];
  const zoomed = ([from, till]: Range, factor: number, at = 0.5): Range => {
    const pivot = from + (till - from) * at;
    return [pivot - (pivot - from) * factor, pivot + (till - pivot) * factor];
  };
  const reset = () => to(whole);

  useSignalEffect(() => {
    const time = selection.value.time;
    if (same(time, own.told)) return;
    own.told = time;
    clearTimeout(own.timer);
    own.timer = 0;
    animate(limit(time ?? whole));
    asked.value = time ? limit(time) : whole;
  });

  // Held keys move in each frame; a tap moves for an eighth of a second.
  const hold = (key: string) => {
    if (own.held.has(key)) return;
    if (calm()) {
      to(key === 'a' ? moved(shown.peek(), -0.2) : key === 'd' ? moved(shown.peek(), 0.2) : zoomed(shown.peek(), key === 'w' ? 0.7 : 1 / 0.7));
      return;
    }
    const runs = own.held.size > 0;
    own.held.add(key);
    if (runs) return;
    let last = performance.now();
    let least = last + 125;
    const step = (now: number) => {
      const passed = Math.min(Math.max(now - last, 0), 50) / 1000;
      last = now;
      const has = (letter: string) => own.held.has(letter) || (now < least && letter === key);
      let range = shown.peek();
      const speed = (has('d') ? 1 : 0) - (has('a') ? 1 : 0);
      const growth = (has('s') ? 1 : 0) - (has('w') ? 1 : 0);
      if (speed) range = moved(range, speed * passed);
      if (growth) range = zoomed(range, Math.exp(growth * passed * 2.5));
      to(range, 'follow');
      if (own.held.size || now < least) own.frame = requestAnimationFrame(step);
    };
    cancelAnimationFrame(own.frame);
    own.frame = requestAnimationFrame(step);
  };
  useKeys([
    { key: 'a', does: 'Move to earlier time (hold)', run: () => hold('a') },
    { key: 'd', does: 'Move to later time (hold)', run: () => hold('d') },
    { key: 'w', does: 'Zoom in (hold)', run: () => hold('w') },
    { key: 's', does: 'Zoom out (hold)', run: () => hold('s') },
    { key: '0', does: 'Show the whole run', run: reset },
    // Listed here for the help; the listener below has the modifier.
    { key: 'Shift+← →', does: 'Move the end of the time range', run: () => {} },
    { key: 'Shift+↑ ↓', does: 'Move the start of the time range', run: () => {} },
  ], end);
  useEffect(() => {
    const up = (event: KeyboardEvent) => own.held.delete(event.key.toLowerCase());
    const blur = () => own.held.clear();
    const down = (event: KeyboardEvent) => {
      if (!event.shiftKey || event.ctrlKey || event.metaKey || (event.target as HTMLElement).matches('input, textarea, select')) return;
      const [from, till] = shown.peek();
      const step = (till - from) / 20;
      const next: Range | undefined = ({
        ArrowLeft: [from, till - step], ArrowRight: [from, till + step], ArrowUp: [from + step, till], ArrowDown: [from - step, till],
      } as Record<string, Range>)[event.key];
      if (!next) return;
      event.preventDefault();
      to([Math.max(next[0], 0), Math.min(next[1], end)]);
    };
    addEventListener('keyup', up);
    addEventListener('keydown', down);
    addEventListener('blur', blur);
    return () => {
      removeEventListener('keyup', up);
      removeEventListener('keydown', down);
      removeEventListener('blur', blur);
      own.held.clear();
      cancelAnimationFrame(own.frame);
      if (own.timer) {
        clearTimeout(own.timer);
        tell(shown.peek());
      }
    };
  }, [end]);

  const range = shown.value;
  return {
    whole, shown: range, asked: asked.value, isWhole: range[0] <= 0 && range[1] >= end, to, reset,
    pan: (share) => to(moved(shown.peek(), share)),
    zoom: (factor, at) => to(zoomed(shown.peek(), factor, at), at === undefined ? 'animate' : 'follow'),
  };
}

/** Buttons for what the keys do. */
export function TimeTools({ time }: { time: Time }): JSX.Element {
  return (
    <span class="choice" role="group" aria-label="Time">
      <button type="button" title="Earlier (a)" aria-label="Earlier" onClick={() => time.pan(-0.25)}>←</button>
      <button type="button" title="Later (d)" aria-label="Later" onClick={() => time.pan(0.25)}>→</button>
      <button type="button" title="Zoom in (w)" aria-label="Zoom in" onClick={() => time.zoom(0.6)}>+</button>
      <button type="button" title="Zoom out (s)" aria-label="Zoom out" onClick={() => time.zoom(1 / 0.6)}>−</button>
      <button type="button" title="Show the whole run (0, or double click)" disabled={time.isWhole} onClick={time.reset}>Whole run</button>
    </span>
  );
}

/** From nanoseconds to pixels and back. */
export function scale([from, to]: Range, width: number) {
  const each = Math.max(width - LEFT - RIGHT, 1) / (to - from);
  return { x: (ns: number) => LEFT + (ns - from) * each, ns: (x: number) => from + (x - LEFT) / each, each };
}

/** What the pointer does on a canvas over time: a drag selects a range, with Shift it moves, Ctrl+wheel zooms. */
export function usePointer(time: Time, width: () => number, click?: (x: number, y: number, event: PointerEvent) => void) {
  const drag = useRef<{ x: number; from: Range; moves: boolean; far: boolean } | undefined>(undefined);
  const brush = useSignal<Range | undefined>(undefined);
  const at = (x: number) => scale(time.shown, width()).ns(Math.min(Math.max(x, LEFT), width() - RIGHT));
  return {
    brush: brush.value,
    onPress: (x: number, _: number, event: PointerEvent) => {
      if (event.button === 0) drag.current = { x, from: time.shown, moves: event.shiftKey, far: false };
    },
    /** Whether the movement is a drag, and no hovering. */
    move: (x: number): boolean => {
      const now = drag.current;
      if (!now) return false;
      now.far ||= Math.abs(x - now.x) > 3;
      if (!now.far) return true;
      if (now.moves) {
        const by = (now.x - x) / scale(now.from, width()).each;
        time.to([now.from[0] + by, now.from[1] + by], 'follow');
      } else {
        const [a, b] = [at(now.x), at(x)];
        brush.value = a < b ? [a, b] : [b, a];
      }
      return true;
    },
    onRelease: (x: number, y: number, event: PointerEvent) => {
      const now = drag.current;
      drag.current = undefined;
      const range = brush.peek();
      brush.value = undefined;
      if (!now) return;
      if (!now.far) click?.(x, y, event);
      else if (!now.moves && range) time.to(range);
    },
    onWheel: (x: number, _: number, event: WheelEvent) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        time.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 150), Math.min(Math.max((x - LEFT) / Math.max(width() - LEFT - RIGHT, 1), 0), 1));
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        const by = event.deltaX / scale(time.shown, width()).each;
        time.to([time.shown[0] + by, time.shown[1] + by], 'follow');
      }
    },
  };
}

/** Draws the range that is being dragged. */
export function drawBrush({ context, width, height, ink }: Surface, shown: Range, brush: Range | undefined): void {
  if (!brush) return;
  const { x } = scale(shown, width);
  const [a, b] = [x(brush[0]), x(brush[1])];
  context.globalAlpha = 0.18;
  context.fillStyle = ink.accent;
  context.fillRect(a, 0, b - a, height);
  context.globalAlpha = 1;
  context.fillRect(a, 0, 1, height);
  context.fillRect(b - 1, 0, 1, height);
}

/** Faint lines at round times; with `labels` their times at the bottom. */
export function drawTicks({ context, width, height, ink }: Surface, shown: Range, labels = false): void {
  const { x } = scale(shown, width);
  context.fillStyle = ink.line;
  const ticks = timeTicks(shown[0], shown[1], Math.max((width - LEFT) / 110, 2));
  // Enough digits to tell neighbours apart.
  const step = ticks.length > 1 ? ticks[1]! - ticks[0]! : 1;
  for (const tick of ticks) context.fillRect(Math.round(x(tick)), 0, 1, labels ? 4 : height);
  if (!labels) return;
  context.fillStyle = ink.faint;
  context.font = '11px system-ui, sans-serif';
  for (const tick of ticks) {
    const text = clock(tick, step);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(Math.max(x(tick) - half, 0), width - 2 * half), 11);
  }
}

/** A moment, with as many digits as the step between ticks needs. */
export function clock(ns: number, step: number): string {
  if (ns === 0) return '0';
  const [unit, size] = ns >= 1e9 ? ['s', 1e9] : ns >= 1e6 ? ['ms', 1e6] : ns >= 1e3 ? ['µs', 1e3] : ['ns', 1];
  const digits = Math.min(Math.max(Math.ceil(Math.log10(Number(size) / step) - 1e-9), 0), 6);
  return `${(ns / Number(size)).toFixed(digits)} ${unit}`;
}

export function TimeAxis({ range }: { range: Range }): JSX.Element {
  return (
    <Canvas height={20} label={`Time from ${duration(range[0])} to ${duration(range[1])} since the statement arrived`}
      draw={(surface) => drawTicks(surface, range, true)} />
  );
}

/** The whole run in small, with the range that is shown below. Drag to select a range, or drag the range itself. */
export function Strip({ time, values, what, planning }: {
  time: Time;
  /** Amounts of the bins, from the start of `from` on. */
  values: { from: number; width: number; sums: Float64Array } | undefined;
  what: string;
  planning: number;
}): JSX.Element {
  const width = useRef(0);
  const drag = useRef<{ kind: 'new' | 'move' | 'from' | 'to'; at: number; range: Range } | undefined>(undefined);
  const cursor = useSignal('crosshair');
  const [from, to] = time.shown;
  const place = (x: number) => Math.min(Math.max(scale(time.whole, width.current).ns(x), 0), time.whole[1]);
  const part = (x: number): 'new' | 'move' | 'from' | 'to' => {
    if (time.isWhole) return 'new';
    const s = scale(time.whole, width.current);
    if (Math.abs(x - s.x(from)) < 6) return 'from';
    if (Math.abs(x - s.x(to)) < 6) return 'to';
    return x > s.x(from) && x < s.x(to) ? 'move' : 'new';
  };
  const text = time.isWhole ? `the whole run, ${duration(time.whole[1])}` : `${duration(from)} to ${duration(to)} of ${duration(time.whole[1])}`;
  return (
    <div
      class="strip" tabIndex={0} role="slider" aria-label="Time shown" aria-valuemin={0} aria-valuemax={Math.round(time.whole[1])}
      aria-valuenow={Math.round(from)} aria-valuetext={text} onDblClick={time.reset}
      onKeyDown={(event) => {
        if (event.shiftKey) return;
        const by = { ArrowLeft: -0.1, ArrowRight: 0.1, PageUp: -1, PageDown: 1, Home: -1e9, End: 1e9 }[event.key];
        if (by === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        time.pan(by);
      }}
    >
      <Canvas
        height={46} label={`${what}. Shown below: ${text}.`} cursor={cursor.value}
        draw={(surface) => {
          width.current = surface.width;
          drawStrip(surface, time, values, planning);
        }}
        onPress={(x) => {
          drag.current = { kind: part(x), at: place(x), range: time.shown };
        }}
        onMove={(x) => {
          const now = drag.current;
          if (!now) {
            cursor.value = { new: 'crosshair', move: 'grab', from: 'ew-resize', to: 'ew-resize' }[part(x)];
            return;
          }
          const here = place(x);
          const [a, b] = now.range;
          if (now.kind === 'move') time.to([a + here - now.at, b + here - now.at], 'follow');
          else if (now.kind === 'from') time.to([Math.min(here, b), b], 'follow');
          else if (now.kind === 'to') time.to([a, Math.max(here, a)], 'follow');
          else if (Math.abs(here - now.at) > (time.whole[1] / width.current) * 3) time.to([Math.min(here, now.at), Math.max(here, now.at)], 'follow');
        }}
        onRelease={() => {
          drag.current = undefined;
        }}
      />
    </div>
  );
}

function drawStrip(surface: Surface, time: Time, values: { from: number; width: number; sums: Float64Array } | undefined, planning: number): void {
  const { context, width, height, ink } = surface;
  const { x } = scale(time.whole, width);
  const floor = height - 14;
  drawPlanning(surface, time.whole, planning, floor, true);
  if (values) {
    const most = values.sums.reduce((a, b) => Math.max(a, b), 1e-9);
    context.fillStyle = ink.faint;
    context.beginPath();
    context.moveTo(LEFT, floor);
    values.sums.forEach((sum, i) => {
      const y = floor - (sum / most) * (floor - 4);
      context.lineTo(x(values.from + i * values.width), y);
      context.lineTo(x(values.from + (i + 1) * values.width), y);
    });
    context.lineTo(width - RIGHT, floor);
    context.fill();
  }
  context.fillStyle = ink.line;
  context.fillRect(LEFT, floor, width - LEFT - RIGHT, 1);
  context.font = '11px system-ui, sans-serif';
  context.fillStyle = ink.faint;
  context.fillText('Whole run', 0, floor / 2);
  const last = duration(time.whole[1]);
  context.fillText('0', LEFT, height - 6);
  context.fillText(last, width - RIGHT - context.measureText(last).width, height - 6);
  if (time.isWhole) return;
  const [a, b] = [x(time.shown[0]), x(time.shown[1])];
  context.fillStyle = ink.panel;
  context.globalAlpha = 0.66;
  context.fillRect(LEFT, 0, a - LEFT, floor);
  context.fillRect(b, 0, width - RIGHT - b, floor);
  context.globalAlpha = 1;
  context.strokeStyle = ink.accent;
  context.lineWidth = 1.5;
  context.strokeRect(a, 0.75, Math.max(b - a, 2), floor - 0.5);
  context.fillStyle = ink.accent;
  for (const at of [a, b]) context.fillRect(at - 2, floor / 2 - 7, 4, 14);
  const text = duration(time.shown[1] - time.shown[0]);
  context.fillText(text, Math.min(Math.max((a + b - context.measureText(text).width) / 2, LEFT + 14), width - RIGHT - 110), height - 6);
}

/** The time before execution, hatched. */
export function drawPlanning({ context, width, ink }: Surface, shown: Range, planning: number, tall: number, named = false): void {
  const { x } = scale(shown, width);
  const [a, b] = [Math.max(x(0), LEFT), Math.min(x(planning), width - RIGHT)];
  if (b - a < 1) return;
  hatch(context, a, 0, b - a, tall, ink.line, 6);
  if (!named || b - a < 62) return;
  context.fillStyle = ink.faint;
  context.font = '11px system-ui, sans-serif';
  context.fillText('planning', a + 6, tall / 2);
}

const looks = new WeakMap<Query, Map<number, number>>();

/** The number of an operator's colour: that of its kind, from 8 on if another of its kind is in the fragment. Those are hatched. */
export function lookOf(query: Query, operator: number): number {
  let look = looks.get(query);
  if (!look) {
    const taken = new Set<string>();
    look = new Map(query.plan.map((row) => {
      const n = colourOfKind(row.kind);
      const key = `${row.fragment_id} ${n}`;
      const again = taken.has(key);
      taken.add(key);
      return [row.operator_id, again ? n + 8 : n];
    }));
    looks.set(query, look);
  }
  return look.get(operator) ?? colourOfKind('');
}

export function Swatch({ n }: { n: number }): JSX.Element {
  return <span class={`swatch${n >= 8 ? ' hatched' : ''}`} style={{ background: category(n) }} aria-hidden="true" />;
}

/** The operators of each fragment from its last one down, with their depth. */
export function fragments(query: Query): Map<number, { row: PlanRow; depth: number }[]> {
  const found = new Map<number, { row: PlanRow; depth: number }[]>();
  const visit = (row: PlanRow, depth: number) => {
    found.set(row.fragment_id, [...(found.get(row.fragment_id) ?? []), { row, depth }]);
    for (const child of query.childrenOf(row.operator_id)) visit(child, child.fragment_id === row.fragment_id ? depth + 1 : 0);
  };
  for (const row of query.plan) if (row.parent_operator_id === null || !query.byId.has(row.parent_operator_id)) visit(row, 0);
  return found;
}

/** A fragment in a few words: what it makes and what from. */
export function fragmentTitle(rows: readonly { row: PlanRow }[]): string {
  const names = rows.filter(({ row }) => !row.is_internal).map(({ row }) => title(row));
  const unique = [...new Set(names.length ? names : rows.map(({ row }) => title(row)))];
  return unique.length > 3 ? `${unique[0]} … ${unique[unique.length - 1]}` : unique.join(' ← ');
}

/** The last complete answer of a view, with the parameters that it answers. */
export function useAnswered<T = Row>(view: View<T>): { rows: T[]; params: View<T>['params'] } | undefined {
  const last = useRef<{ rows: T[]; params: View<T>['params'] } | undefined>(undefined);
  if (view.rows && !view.loading && last.current?.rows !== view.rows) last.current = { rows: view.rows, params: view.params };
  return last.current;
}

/** A canvas of which only a part is visible: `draw` gets how far it is scrolled. */
export function ScrollCanvas({ total, most, label, draw, onMove, onWheel, onPress, onRelease, onLeave, cursor, name }: {
  total: number;
  most: number;
  name: string;
  label: string;
  draw: (surface: Surface, top: number) => void;
  onMove?: (x: number, y: number, event: PointerEvent) => void;
  onPress?: (x: number, y: number, event: PointerEvent) => void;
  onRelease?: (x: number, y: number, event: PointerEvent) => void;
  onWheel?: (x: number, y: number, event: WheelEvent) => void;
  onLeave?: () => void;
  cursor?: string;
}): JSX.Element {
  const top = useSignal(0);
  const height = Math.min(total, most);
  const now = Math.max(Math.min(top.value, total - height), 0);
  const shifted = (handler?: (x: number, y: number, event: PointerEvent) => void) =>
    handler && ((x: number, y: number, event: PointerEvent) => handler(x, y + now, event));
  return (
    <div class="scroller" style={{ height: `${height}px` }} tabIndex={total > most ? 0 : undefined} role={total > most ? 'region' : undefined}
      aria-label={total > most ? name : undefined} onScroll={(event) => (top.value = event.currentTarget.scrollTop)}>
      <div style={{ height: `${total}px` }}>
        <div class="pinned">
          <Canvas height={height} label={label} cursor={cursor} draw={(surface) => draw(surface, now)} onMove={shifted(onMove)}
            onPress={shifted(onPress)} onRelease={shifted(onRelease)} onWheel={onWheel} onLeave={onLeave} />
        </div>
      </div>
    </div>
  );
}

/** How opaque something is: what the pointer is on lights up less than what is selected. */
export function dimmed(isOn: boolean): number {
  const { operator, worker } = hovered.value;
  return isOn ? 1 : operator === undefined && worker === undefined ? 0.2 : 0.45;
}
