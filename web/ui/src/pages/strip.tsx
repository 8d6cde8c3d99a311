// The strip above the statements: the workers, and what runs now.
import type { JSX } from 'preact';
import { useView, type View } from '../data';
import { bytes, duration } from '../format';
import { Link } from '../panel';
import { Progress, State } from './progress';
import { ago, oneLine, useRunning } from './running';

/** A row of the view `workers`. */
export interface Worker {
  worker_id: number;
  state: string;
  address: string;
  clock_offset_ns: number;
  clock_error_ns: number;
  rss_bytes: number | null;
  cpu_share: number | null;
  cores: number | null;
  read_ago_ns: number | null;
}

export function nameOf(worker: { worker_id: number }, all: number): string {
  return worker.worker_id > 0 ? `Worker ${worker.worker_id}` : all > 1 ? 'Master' : 'Process';
}

export function useWorkers(): View<Worker> {
  return useView<Worker>('workers', {}, 3000);
}

const SHOWN = 3;

export function Strip(): JSX.Element {
  const workers = useWorkers();
  const { view: running, of } = useRunning(1000);
  const rows = workers.rows ?? [];
  const active = running.rows ?? [];
  return (
    <div class="top-strip">
      <section aria-label="Workers">
        <h2>{rows.length > 1 ? 'Workers' : 'Process'} {rows.some((row) => row.state !== 'alive') && <span class="badge bad">not all are alive</span>}</h2>
        <ul class="worker-cells">
          {rows.map((row) => (
            <li key={row.worker_id}>
              <Link to={`/cluster?sel=w:${row.worker_id}`}>
                <span class="name">{nameOf(row, rows.length)}</span> <State state={row.state} />
                <span class="reading"><b>{row.cpu_share === null ? '–' : row.cpu_share.toFixed(2)}</b> {row.cores !== null && `of ${Number(row.cores.toFixed(2))} `}cores busy</span>
                <span class="reading"><b>{bytes(row.rss_bytes)}</b> memory</span>
                <span class="when">{row.read_ago_ns === null ? 'no reading yet' : `read ${ago(row.read_ago_ns)}`}</span>
              </Link>
            </li>
          ))}
        </ul>
        {workers.error && <p class="message bad" role="alert">{workers.error}</p>}
      </section>
      <section aria-label="Running statements">
        <h2><Link to="/live">Running now</Link> <span class="faint">{active.length}</span></h2>
        <div class="now">
          {running.error ? <p class="bad" role="alert">{running.error}</p> : active.length === 0 && <p class="faint">No statement runs. Readings of the workers are taken while one does.</p>}
          {active.slice(0, SHOWN).map((row) => (
            <Link key={row.query_id} to="/live" class="one">
              <State state={row.state} /> <code>{oneLine(row.sql)}</code> <span class="number">{duration(row.elapsed_ns)}</span>
              <Progress of={of(row)} label={`Progress of query ${row.query_id}`} />
            </Link>
          ))}
          {active.length > SHOWN && <Link to="/live">{active.length - SHOWN} more</Link>}
        </div>
      </section>
    </div>
  );
}
