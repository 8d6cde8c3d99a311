// Amounts as people read them. Units and digits follow the text report.
import type { Int } from './data';

/** `toLocaleString` makes one of these each time. */
const separated = new Intl.NumberFormat('en');

function digits(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 100) return separated.format(Math.round(value));
  return value.toFixed(size >= 10 ? 1 : 2);
}

/** A duration of nanoseconds, in three digits: `28.9 s`, `4.12 ms`. */
export function duration(ns: Int | null | undefined): string {
  if (ns === null || ns === undefined) return '–';
  const value = Number(ns);
  const size = Math.abs(value);
  if (size >= 120e9) return `${Math.floor(value / 60e9)} min ${Math.round((value % 60e9) / 1e9)} s`;
  if (size >= 1e9) return `${digits(value / 1e9)} s`;
  if (size >= 1e6) return `${digits(value / 1e6)} ms`;
  if (size >= 1e3) return `${digits(value / 1e3)} µs`;
  return `${Math.round(value)} ns`;
}

export function bytes(amount: Int | null | undefined): string {
  if (amount === null || amount === undefined) return '–';
  let value = Number(amount);
  for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
    if (Math.abs(value) < 1024 || unit === 'TiB') return `${unit === 'B' ? value : digits(value)} ${unit}`;
    value /= 1024;
  }
  return '';
}

/** A whole number with separators, exact. */
export function count(amount: Int | null | undefined): string {
  return amount === null || amount === undefined ? '–' : separated.format(amount);
}

/** A number in at most four characters for marks and edges: `7.0 M`. */
export function short(amount: Int | null | undefined): string {
  if (amount === null || amount === undefined) return '–';
  const value = Number(amount);
  const size = Math.abs(value);
  for (const [unit, at] of [['G', 1e9], ['M', 1e6], ['k', 1e3]] as const) {
    if (size >= at) return `${(value / at).toFixed(size / at >= 100 ? 0 : 1)} ${unit}`;
  }
  return Number.isInteger(value) ? String(value) : digits(value);
}

export function share(part: number | null | undefined): string {
  if (part === null || part === undefined || Number.isNaN(part)) return '–';
  const percent = part * 100;
  if (percent > 0 && percent < 0.1) return '< 0.1 %';
  return `${percent >= 10 ? Math.round(percent) : percent.toFixed(1)} %`;
}

export function times(factor: number): string {
  return `${digits(factor)} ×`;
}

/** `1 row`, `2 rows`. */
export function plural(amount: Int, one: string, many = `${one}s`): string {
  return `${count(amount)} ${Number(amount) === 1 ? one : many}`;
}
