import type { JSX } from 'preact';
import { useQuery } from '../query';

export function Details(): JSX.Element {
  const query = useQuery();
  return <p class="message">Details of query {query.id}</p>;
}
