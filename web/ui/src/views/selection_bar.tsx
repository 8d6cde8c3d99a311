import type { JSX } from 'preact';
import { useQuery } from '../query';

export function SelectionBar(): JSX.Element {
  const query = useQuery();
  return <p class="message">SelectionBar of query {query.id}</p>;
}
