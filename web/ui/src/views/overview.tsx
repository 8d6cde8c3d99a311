import type { JSX } from 'preact';
import { useQuery } from '../query';

export function Overview(): JSX.Element {
  const query = useQuery();
  return <p class="message">Overview of query {query.id}</p>;
}
