/** Records as a log that keeps bytes gives them back, so that nothing is lost that a record holds. */
import type { Journal } from "../../../src/sessions/log/journal.ts";
import { decodeRecord, encodeRecord } from "../../../src/sessions/log/record-codec.ts";
import type { World } from "../world.ts";

export function throughBytes({ count }: World): (journal: Journal) => Journal {
  return (journal) => ({
    ...journal,
    async commit(at, record) {
      count("record: by its bytes");
      return journal.commit(at, decodeRecord(encodeRecord(record, { maxBytes: Infinity })));
    },
  });
}
