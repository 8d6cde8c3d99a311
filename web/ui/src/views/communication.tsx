import type { JSX } from 'preact';
import { useQuery } from '../query';

export function Communication(): JSX.Element {
  const query = useQuery();
  return <p class="message">Communication of query {query.id}</p>;
}
