// The durations of a statement's runs as bars from zero, the newest at the right. A failed run is a cross, a
// cancelled one a ring; a diamond marks the first run with another plan.
import type { JSX } from 'preact';
import { duration, plural } from '../format';

/** A row of the view `statement_history`. */
export interface Run {
  fingerprint: string;
  query_id: number;
  status: 'finished' | 'failed' | 'cancelled';
  profile_level: string;
  elapsed_ns: number;
  rows_returned: number | null;
  ago_ns: number;
  sql: string;
  error: string | null;
  plan_fingerprint: string | null;
}

const SLOTS = 40;
const WIDTH = 160;
const HEIGHT = 30;
const TOP = 7;
const STEP = WIDTH / SLOTS;

/** Runs whose plan differs from the plan of the finished run before. */
export function planChanges(runs: readonly Run[]): Set<number> {
  const changes = new Set<number>();
  let plan: string | null = null;
  for (const run of runs) {
    if (run.status !== 'finished' || !run.plan_fingerprint) continue;
    if (plan && plan !== run.plan_fingerprint) changes.add(run.query_id);
    plan = run.plan_fingerprint;
  }
  return changes;
}

export function Sparkline({ runs, median, change }: { runs: readonly Run[]; median: number | null; change: string }): JSX.Element {
  const shown = runs.slice(-SLOTS);
  const finished = shown.filter((run) => run.status === 'finished');
  const most = Math.max(...finished.map((run) => run.elapsed_ns), 1);
  const changes = planChanges(shown);
  const last = shown[shown.length - 1];
  const paths = { bar: '', other: '', last: '', cross: '', ring: '', plan: '', diamond: '' };
  shown.forEach((run, i) => {
    const x = WIDTH - (shown.length - i) * STEP;
    const [middle, h] = [x + STEP / 2, Math.max((run.elapsed_ns / most) * (HEIGHT - TOP - 1), 1)];
    if (run.status === 'failed') paths.cross += `M${middle - 2} ${HEIGHT - 7}l4 4m0 -4l-4 4`;
    else if (run.status === 'cancelled') paths.ring += `M${middle - 2} ${HEIGHT - 5}a2 2 0 1 0 4 0a2 2 0 1 0 -4 0`;
    else {
      const rectangle = `M${(x + 0.75).toFixed(2)} ${HEIGHT - 1}v${-h.toFixed(2)}h${STEP - 1.5}v${h.toFixed(2)}z`;
      if (run === last) paths.last += rectangle;
      else if (run.profile_level !== last?.profile_level) paths.other += rectangle;
      else paths.bar += rectangle;
    }
    if (changes.has(run.query_id)) {
      paths.plan += `M${x} ${TOP}V${HEIGHT}`;
      paths.diamond += `M${x} 0.5l3 3l-3 3l-3 -3z`;
    }
  });
  const failures = shown.filter((run) => run.status === 'failed').length;
  const label = `${plural(shown.length, 'run')}${finished.length ? `, ${duration(Math.min(...finished.map((run) => run.elapsed_ns)))} to ${duration(most)}` : ''}${
    failures ? `, ${failures} failed` : ''}${changes.size ? `, the plan changed ${changes.size === 1 ? 'once' : `${changes.size} times`}` : ''}`;
  const at = median === null ? undefined : HEIGHT - 1 - Math.min((median / most) * (HEIGHT - TOP - 1), HEIGHT - TOP - 1);
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} role="img" aria-label={label}>
      <path class="base" d={`M0 ${HEIGHT - 0.5}H${WIDTH}`} />
      <path class="run" d={paths.bar} /><path class="run other" d={paths.other} />
      <path class={`run last ${change === 'slower' ? 'slow' : ''}`} d={paths.last} />
      {at !== undefined && shown.length > 1 && <path class="median" d={`M${WIDTH - shown.length * STEP} ${at.toFixed(1)}H${WIDTH}`} />}
      <path class="plan" d={paths.plan} /><path class="diamond" d={paths.diamond} />
      <path class="cross" d={paths.cross} /><path class="ring" d={paths.ring} />
    </svg>
  );
}
