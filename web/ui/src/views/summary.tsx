import type { JSX } from 'preact';
import { useQuery } from '../query';

export function Summary(): JSX.Element {
  const query = useQuery();
  return <p class="message">Summary of query {query.id}</p>;
}
