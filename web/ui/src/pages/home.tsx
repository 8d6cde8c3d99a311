import type { JSX } from 'preact';

export function Home(): JSX.Element {
  return <p class="message">Home</p>;
}
