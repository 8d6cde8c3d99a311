import type { JSX } from 'preact';
import { useQuery } from '../query';

export function Traces(): JSX.Element {
  const query = useQuery();
  return <p class="message">Traces of query {query.id}</p>;
}
