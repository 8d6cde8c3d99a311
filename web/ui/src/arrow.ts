// Reads Arrow IPC streams of the four types that the server sends: BIGINT, DOUBLE, VARCHAR and BOOLEAN.
import type { Value } from './data';

// Kinds of messages and types, as Arrow's Message.fbs and Schema.fbs number them.
const SCHEMA = 1;
const RECORD_BATCH = 3;
const INT = 2;
const FLOAT = 3;
const UTF8 = 5;
const BOOL = 6;

interface Field { name: string; type: number }

const texts = new TextDecoder();

/** Columns of a stream, in order, and the values of each. */
export function readStream(bytes: Uint8Array): { columns: string[]; values: Value[][] } {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const int = (at: number) => view.getInt32(at, true);
  /** A 64-bit integer that says where something is. */
  const long = (at: number) => view.getUint32(at, true) + int(at + 4) * 2 ** 32;
  /** Where the n-th field of a flatbuffer's table is; 0 if it has its default. */
  const field = (table: number, n: number) => {
    const names = table - int(table);
    const offset = 4 + 2 * n < view.getUint16(names, true) ? view.getUint16(names + 4 + 2 * n, true) : 0;
    return offset && table + offset;
  };
  /** Where what a field points to is. */
  const target = (table: number, n: number) => {
    const at = field(table, n);
    return at && at + int(at);
  };
  const text = (from: number, to: number) => texts.decode(bytes.subarray(from, to));

  let fields: Field[] = [];
  const values: Value[][] = [];

  function readSchema(schema: number): void {
    const list = target(schema, 1);
    fields = Array.from({ length: int(list) }, (_, i) => {
      const entry = list + 4 + 4 * i;
      const table = entry + int(entry);
      const name = target(table, 0);
      const type = field(table, 2);
      values.push([]);
      return { name: name ? text(name + 4, name + 4 + int(name)) : '', type: type && view.getUint8(type) };
    });
  }

  function readBatch(batch: number, body: number): void {
    const length = field(batch, 0);
    const rows = length && long(length);
    const buffers = target(batch, 2);
    let next = buffers + 4;
    const buffer = () => {
      const [start, size] = [body + long(next), long(next + 8)];
      next += 16;
      return { start, size };
    };
    const bit = (start: number, row: number) => ((bytes[start + (row >> 3)]! >> (row & 7)) & 1) === 1;
    fields.forEach(({ name, type }, column) => {
      const valid = buffer();
      const data = buffer();
      const start = data.start;
      let read: (row: number) => Value;
      if (type === INT) {
        read = (row) => {
          const at = start + 8 * row;
          const value = long(at);
          return Number.isSafeInteger(value) ? value : view.getBigInt64(at, true);
        };
      } else if (type === FLOAT) read = (row) => view.getFloat64(start + 8 * row, true);
      else if (type === BOOL) read = (row) => bit(start, row);
      else if (type === UTF8) {
        const content = buffer().start;
        read = (row) => text(content + int(start + 4 * row), content + int(start + 4 * row + 4));
      } else throw new Error(`column ${name} has a type that this page does not read`);
      const into = values[column]!;
      for (let row = 0; row < rows; row++) into.push(valid.size && !bit(valid.start, row) ? null : read(row));
    });
  }

  // A message: a mark, the length of its description, its description, its body. The last has length 0.
  for (let at = 0; at + 8 <= bytes.length && int(at + 4) > 0;) {
    const start = at + 8;
    const message = start + int(start);
    const body = start + int(at + 4);
    const kind = field(message, 1);
    const header = target(message, 2);
    if (kind && view.getUint8(kind) === SCHEMA) readSchema(header);
    else if (kind && view.getUint8(kind) === RECORD_BATCH) readBatch(header, body);
    const size = field(message, 3);
    at = body + (size && long(size));
  }
  return { columns: fields.map(({ name }) => name), values };
}
