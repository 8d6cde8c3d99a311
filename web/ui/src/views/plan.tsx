import type { JSX } from 'preact';
import { useQuery } from '../query';

export function Plan(): JSX.Element {
  const query = useQuery();
  return <p class="message">Plan of query {query.id}</p>;
}
