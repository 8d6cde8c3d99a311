// One time axis for everything on the cluster page. Idle time between queries can be folded to a short gap.

export interface Piece {
  from: number;
  to: number;
  left: number;
  right: number;
  /** A gap without queries, drawn shorter than it was. */
  folded: boolean;
}

const GAP = 22;
const LEAST = 26;

/** Pieces of time, in order, from `left` on over `width` pixels. */
export function pieces(spans: readonly { start_ns: number; end_ns: number }[], left: number, width: number, folds: boolean): Piece[] {
  if (!spans.length) return [];
  const sorted = [...spans].sort((a, b) => a.start_ns - b.start_ns);
  const busy: [number, number][] = [];
  for (const { start_ns, end_ns } of sorted) {
    const last = busy[busy.length - 1];
    if (last && start_ns <= last[1]) last[1] = Math.max(last[1], end_ns);
    else busy.push([start_ns, end_ns]);
  }
  const whole = busy[busy.length - 1]![1] - busy[0]![0];
  if (!folds) return [{ from: busy[0]![0], to: busy[0]![0] + Math.max(whole, 1), left, right: left + width, folded: false }];
  const total = busy.reduce((sum, [from, to]) => sum + to - from, 0);
  // A gap is folded if it is longer than a tenth of all time with queries.
  const merged: [number, number][] = [];
  for (const [from, to] of busy) {
    const last = merged[merged.length - 1];
    if (last && from - last[1] <= total * 0.1) last[1] = to;
    else merged.push([from, to]);
  }
  const room = Math.max(width - GAP * (merged.length - 1) - LEAST * merged.length, 0);
  const shown = merged.reduce((sum, [from, to]) => sum + to - from, 0) || 1;
  const all: Piece[] = [];
  let x = left;
  merged.forEach(([from, to], i) => {
    const before = merged[i - 1];
    if (before) {
      all.push({ from: before[1], to: from, left: x, right: x + GAP, folded: true });
      x += GAP;
    }
    const w = LEAST + ((to - from) / shown) * room;
    all.push({ from, to, left: x, right: x + w, folded: false });
    x += w;
  });
  return all;
}

export function toX(all: readonly Piece[], at: number): number {
  const piece = all.find((one) => at <= one.to) ?? all[all.length - 1];
  if (!piece) return 0;
  return piece.left + Math.min(Math.max((at - piece.from) / (piece.to - piece.from || 1), 0), 1) * (piece.right - piece.left);
}

export function toTime(all: readonly Piece[], x: number): number {
  const piece = all.find((one) => x <= one.right) ?? all[all.length - 1];
  if (!piece) return 0;
  return piece.from + Math.min(Math.max((x - piece.left) / (piece.right - piece.left || 1), 0), 1) * (piece.to - piece.from);
}
