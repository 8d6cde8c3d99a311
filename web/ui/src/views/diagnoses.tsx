import type { JSX } from 'preact';
import { useQuery } from '../query';

export function Diagnoses(): JSX.Element {
  const query = useQuery();
  return <p class="message">Diagnoses of query {query.id}</p>;
}
