// A canvas that draws at the screen's resolution, redraws when it must, and has a sentence for its content.
import { useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { ink, theme, type Ink } from './colour';
import { hovered, selection } from './state';

export interface Surface {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  ink: Ink;
}

interface Properties {
  /** One sentence that says what is to be seen; screen readers read it. */
  label: string;
  height: number;
  draw: (surface: Surface) => void;
  /** Position in CSS pixels. */
  onMove?: (x: number, y: number, event: PointerEvent) => void;
  onLeave?: () => void;
  onPress?: (x: number, y: number, event: PointerEvent) => void;
  onRelease?: (x: number, y: number, event: PointerEvent) => void;
  onWheel?: (x: number, y: number, event: WheelEvent) => void;
  class?: string;
  cursor?: string;
  id?: string;
}

/**
 * `draw` runs in an animation frame after each render, and after changes of size, theme, selection and what the
 * pointer is on.
 */
export function Canvas(properties: Properties): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useSignal(0);
  const frame = useRef(0);
  const latest = useRef(properties);
  latest.current = properties;

  const schedule = () => {
    // One that waits stays: a movement that renders before each frame would put it off for ever.
    if (frame.current) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      const element = canvas.current;
      if (!element || width.peek() === 0) return;
      const scale = devicePixelRatio || 1;
      const [w, h] = [Math.round(width.peek() * scale), Math.round(latest.current.height * scale)];
      if (element.width !== w || element.height !== h) {
        element.width = w;
        element.height = h;
      }
      const context = element.getContext('2d')!;
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.clearRect(0, 0, width.peek(), latest.current.height);
      context.font = '12px system-ui, sans-serif';
      context.textBaseline = 'middle';
      latest.current.draw({ context, width: width.peek(), height: latest.current.height, ink: ink() });
    });
  };
  useLayoutEffect(schedule);
  useSignalEffect(() => {
    void [theme.value, selection.value, hovered.value, width.value];
    schedule();
  });
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => (width.value = Math.floor(entry!.contentRect.width)));
    observer.observe(canvas.current!.parentElement!);
    // Preact's wheel listeners are passive; zooming must keep the page from scrolling.
    const wheel = (event: WheelEvent) => latest.current.onWheel?.(event.offsetX, event.offsetY, event);
    const element = canvas.current!;
    element.addEventListener('wheel', wheel, { passive: false });
    return () => {
      observer.disconnect();
      element.removeEventListener('wheel', wheel);
      cancelAnimationFrame(frame.current);
    };
  }, []);

  const at = (handler?: (x: number, y: number, event: PointerEvent) => void) =>
    handler && ((event: PointerEvent) => {
      const box = canvas.current!.getBoundingClientRect();
      handler(event.clientX - box.left, event.clientY - box.top, event);
    });
  return (
    <div class={`canvas ${properties.class ?? ''}`}>
      <canvas
        ref={canvas}
        id={properties.id}
        role="img"
        aria-label={properties.label}
        style={{ height: `${properties.height}px`, cursor: properties.cursor ?? 'default' }}
        onPointerMove={at(properties.onMove)}
        onPointerLeave={properties.onLeave}
        onPointerDown={at((x, y, event) => {
          if (properties.onRelease) canvas.current!.setPointerCapture(event.pointerId);
          properties.onPress?.(x, y, event);
        })}
        onPointerUp={at(properties.onRelease)}
      />
    </div>
  );
}

/** The width that a canvas in this element has, in CSS pixels; 0 before the first layout. */
export function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const element = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => (width.value = Math.floor(entry!.contentRect.width)));
    observer.observe(element.current!);
    return () => observer.disconnect();
  }, []);
  return [element, width.value];
}

/** Fills with diagonal lines: what is not known for sure, or the ninth category. */
export function hatch(context: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, colour: string, gap = 5): void {
  context.save();
  context.beginPath();
  context.rect(x, y, w, h);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = x - h; at < x + w; at += gap) {
    context.moveTo(at, y + h);
    context.lineTo(at + h, y);
  }
  context.stroke();
  context.restore();
}

/** Cuts text to a width, with an ellipsis. */
export function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low ? `${text.slice(0, low)}…` : '';
}

const STEPS = [1, 2, 5, 10];

/** Round times between two, about `wanted` of them, in nanoseconds. */
export function timeTicks(from: number, to: number, wanted: number): number[] {
  const rough = Math.max((to - from) / Math.max(wanted, 1), 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = STEPS.map((s) => s * power).find((s) => s >= rough) ?? rough;
  const ticks: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return ticks;
}

const animates = () => !matchMedia('(prefers-reduced-motion: reduce)').matches;

/**
 * A pair of numbers that moves to its new value in 160 ms, so that zooming shows where one came from. Without
 * motion it jumps.
 */
export function useAnimatedRange(target: readonly [number, number]): readonly [number, number] {
  const shown = useSignal(target);
  const frame = useRef(0);
  const goal = useRef(target);
  useEffect(() => {
    if (goal.current[0] === target[0] && goal.current[1] === target[1]) return;
    goal.current = target;
    cancelAnimationFrame(frame.current);
    if (!animates()) {
      shown.value = target;
      return;
    }
    const from = shown.peek();
    const begun = performance.now();
    const step = (now: number) => {
      const t = Math.min((now - begun) / 160, 1);
      const eased = 1 - (1 - t) ** 3;
      shown.value = t === 1 ? target : [from[0] + (target[0] - from[0]) * eased, from[1] + (target[1] - from[1]) * eased];
      if (t < 1) frame.current = requestAnimationFrame(step);
    };
    frame.current = requestAnimationFrame(step);
  });
  useEffect(() => () => cancelAnimationFrame(frame.current), []);
  return shown.value;
}
