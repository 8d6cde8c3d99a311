import type { JSX } from 'preact';

export function Cluster(): JSX.Element {
  return <p class="message">Cluster</p>;
}
