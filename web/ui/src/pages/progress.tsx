// The share of a statement's time that is over. Solid: for sure; hatched: perhaps.
import type { JSX } from 'preact';
import type { Estimate } from './running';
import './progress.css';

const percent = (part: number) => `${(part * 100).toFixed(2)}%`;

export function Progress({ of, label }: { of: Estimate; label: string }): JSX.Element {
  const { low, high } = of;
  const known = low !== undefined && high !== undefined;
  return (
    <span
      class={known ? 'progress' : 'progress unknown'} role="progressbar" aria-label={label} aria-valuetext={of.text}
      aria-valuemin={0} aria-valuemax={100} aria-valuenow={known ? Math.round(low * 100) : undefined} title={of.text}
    >
      {known && <>
        <span class="perhaps" style={{ width: percent(high) }} />
        <span class="done" style={{ width: percent(low) }} />
      </>}
    </span>
  );
}

/** A badge with a shape, so that its colour is not alone. */
export function State({ state }: { state: string }): JSX.Element {
  const [shape, kind] = STATES[state] ?? ['·', ''];
  return <span class={`badge ${kind}`}><span aria-hidden="true">{shape} </span>{state}</span>;
}

const STATES: Record<string, readonly [string, string]> = {
  alive: ['●', 'good'], running: ['▶', 'good'], finished: ['✓', ''], waiting: ['◌', 'warn'], leaving: ['◐', 'warn'],
  cancelled: ['○', 'warn'], lost: ['✕', 'bad'], failed: ['✕', 'bad'], ended: ['✓', ''],
};
