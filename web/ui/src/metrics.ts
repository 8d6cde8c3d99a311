// Readings of nodes: what they are called, how they are written, and when they are worth a look.
import { bytes, count, share } from './format';

/** A name, a label of a few letters, and from where on a reading is conspicuous, in the order in which they are drawn. */
const LOOKS: Record<string, readonly [name: string, label: string, notable: number]> = {
  cpu_share: ['Cores busy', 'Cores', 0],
  rss_bytes: ['Memory of the process', 'Memory', 0],
  throttled_share: ['Throttled by the quota of a control group', 'Throttled', 0.05],
  foreign_cpu_share: ['Cores that other programs used', 'Others', 0.3],
  steal_share: ['Cores that the hypervisor took', 'Stolen', 0.05],
  psi_cpu_share: ['Time in which a thread waited for a core', 'CPU wait', 0.3],
  psi_io_share: ['Time in which a thread waited for a disk', 'Disk wait', 0.1],
  psi_memory_share: ['Time in which a thread waited for memory', 'Paging', 0.02],
  major_faults_per_second: ['Pages read since they were not in memory', 'Faults', 50],
  read_bytes_per_second: ['Read from disk', 'Read', Infinity],
  written_bytes_per_second: ['Written to disk', 'Written', Infinity],
  network_bytes_per_second: ['Network traffic of the machine', 'Network', Infinity],
};

/** What bounds a reading. It is drawn as a line, not as a lane of its own. */
const LIMITS: Record<string, string> = { cpu_share: 'effective_cores', rss_bytes: 'memory_limit_bytes' };
const ORDER = Object.keys(LOOKS);

export const nameOfMetric = (metric: string) => LOOKS[metric]?.[0] ?? metric.replaceAll('_', ' ');
export const labelOfMetric = (metric: string) => LOOKS[metric]?.[1] ?? metric.slice(0, 9);
export const limitOf = (metric: string) => LIMITS[metric];

/** Whether a metric has a lane, and whether its highest reading is worth one at once. */
export const isLane = (metric: string) => metric !== 'machine_cores' && !Object.values(LIMITS).includes(metric);
export const isNotable = (metric: string, highest: number) => highest >= (LOOKS[metric]?.[2] ?? Infinity);

export function byOrder(a: string, b: string): number {
  const place = (metric: string) => (ORDER.indexOf(metric) + ORDER.length + 1) % (ORDER.length + 1);
  return place(a) - place(b) || (a < b ? -1 : 1);
}

/** A reading with its unit. */
export function reading(metric: string, value: number): string {
  if (metric.endsWith('_bytes')) return bytes(Math.round(value));
  if (metric.endsWith('_bytes_per_second')) return `${bytes(Math.round(value))}/s`;
  if (metric.endsWith('_per_second')) return `${count(Math.round(value))}/s`;
  return metric.startsWith('psi_') ? share(value) : `${value.toFixed(2)} cores`;
}
