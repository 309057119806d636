/** Which writes of sessions a fence has refused, told by what they asked for and what they met. */
import type { FlotillaError } from "../../../src/base/errors.ts";
import type { Head } from "../../../src/sessions/log/journal.ts";
import {
  beatHeads,
  moveHeads,
  releaseHeads,
  takeHead,
} from "../../../src/sessions/log/sql/heads.ts";
import type { Row } from "../../../src/store/database.ts";
import type { Statement } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";

// A statement is known by its template, which is the same object every time it is made.
const noHead: Head = {
  logId: 0,
  incarnation: "",
  term: 0,
  owner: null,
  host: null,
  offset: 0,
  recordId: "",
};
const record = moveHeads([]).strings;
const take = takeHead(noHead, { podId: "", host: null, recordId: "" }).strings;
const beat = beatHeads("", []).strings;
const release = releaseHeads("", []).strings;

export type Met = {
  readonly before: ReadonlyMap<number, Head>;
  readonly error?: FlotillaError;
  readonly done?: { readonly tables: readonly Row[][] };
  readonly moved?: boolean;
};

export function countFences(world: World, statements: readonly Statement[], met: Met): void {
  const [first] = statements;
  if (!first) return;
  const { done, moved } = met;
  const isEmpty = done?.tables[0]?.length === 0;
  switch (first.strings) {
    case record: {
      const places = placesOf(first);
      if (places.length > 1) world.count("record: with those of other logs");
      if (met.error) return world.count("fence: client id");
      if (!moved && !isEmpty) world.count("record: found itself");
      const stored = new Set(done?.tables[0]?.map((row) => Number(row["log_id"])));
      const fenced = places.filter(({ logId }) => !stored.has(logId));
      if (stored.size > 0 && fenced.length > 0) world.count("fence: record, beside others");
      for (const { logId, term, offset } of fenced) {
        const head = met.before.get(logId);
        if (head?.term !== term) world.count("fence: record, term");
        else world.count(head.offset === offset ? "fence: record, id" : "fence: record, offset");
      }
      return;
    }
    case take:
      return isEmpty ? world.count("fence: take") : undefined;
    case beat:
      return isEmpty ? world.count("fence: beat") : undefined;
    case release:
      return moved ? undefined : world.count("fence: release");
  }
}

/** Where records are to come behind: of each, the numbers in its row, in their order. */
function placesOf({ parts }: Statement): { logId: number; term: number; offset: number }[] {
  const bound = parts.find((part) => part !== null && typeof part === "object" && "rows" in part);
  return (bound as { rows: readonly (readonly unknown[])[] }).rows.map((row) => {
    const [logId, term, offset] = row.filter((value) => typeof value === "number");
    return { logId: logId!, term: term!, offset: offset! };
  });
}
