// The alerts that hold now, on the first page and on the page of the cluster.
import type { JSX } from 'preact';
import { useView, type View } from '../data';
import { clipped } from '../describe';
import { capital, Copy, readable } from '../views/diagnoses';
import { Link } from '../panel';
import { ago } from './running';
import './alerts.css';

/** A row of the view `alerts`. */
export interface Alert {
  alert: string;
  subject: string;
  severity: 'critical' | 'warning' | 'info';
  since_ns: number;
  cause: string;
  value: number | null;
  threshold: number | null;
  evidence_sql: string;
}

const LOOK = { critical: 'bad', warning: 'warn', info: '' };
const SHOWN = 3;

export const useAlerts = (): View<Alert> => useView<Alert>('alerts', {}, 15_000);

/** Every alert, with what it is computed from. */
export function Alerts({ alerts }: { alerts: readonly Alert[] }): JSX.Element {
  return (
    <ul class="alerts">
      {alerts.map((row) => (
        <li key={`${row.alert} ${row.subject}`} class={LOOK[row.severity]}>
          <span class={`badge ${LOOK[row.severity]}`}>{row.severity}</span> <b>{capital(row.alert)}</b> <span>{row.subject}</span> <span class="faint">since {ago(row.since_ns).replace(/ ago$/, '')}</span>
          <p>{readable(row.cause)}</p>
          <details><summary>Evidence{row.value !== null && row.threshold !== null && `: ${Number(row.value.toPrecision(3))}, threshold ${Number(row.threshold.toPrecision(3))}`}</summary><Copy name="Evidence" sql={row.evidence_sql} /></details>
        </li>
      ))}
    </ul>
  );
}

/** The worst alerts in a line each; nothing without alerts. */
export function AlertStrip(): JSX.Element | null {
  const { rows } = useAlerts();
  if (!rows?.length) return null;
  return (
    <section class="alert-strip" aria-label="Alerts">
      <ul>
        {rows.slice(0, SHOWN).map((row) => (
          <li key={`${row.alert} ${row.subject}`}><span class={`badge ${LOOK[row.severity]}`}>{row.severity}</span> <Link to="/cluster">{capital(row.alert)}, {clipped(row.subject, 60)}: {readable(row.cause)}</Link></li>
        ))}
        {rows.length > SHOWN && <li><Link to="/cluster">{rows.length - SHOWN} more</Link></li>}
      </ul>
    </section>
  );
}
