import type { JSX } from 'preact';

export function Compare({ query, other }: { query: number; other: number }): JSX.Element {
  return <p class="message">{query} against {other}</p>;
}
