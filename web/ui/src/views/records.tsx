import type { JSX } from 'preact';
import { useQuery } from '../query';

export function Records(): JSX.Element {
  const query = useQuery();
  return <p class="message">Records of query {query.id}</p>;
}
