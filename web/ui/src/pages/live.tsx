import type { JSX } from 'preact';

export function Live(): JSX.Element {
  return <p class="message">Live</p>;
}
