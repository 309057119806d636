/** Which writes of sessions a fence has refused, told by what they asked for and what they met. */
import type { FlotillaError } from "../../../src/base/errors.ts";
import type { Head } from "../../../src/sessions/log/journal.ts";
import { beatHeads, moveHead, releaseHeads, takeHead } from "../../../src/sessions/log/sql.ts";
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
  beat: 0,
};
const record = moveHead(noHead, "").strings;
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
      if (met.error) return world.count("fence: client id");
      if (!isEmpty) return moved ? undefined : world.count("record: found itself");
      const { logId, term, offset } = placeOf(first);
      const head = met.before.get(logId);
      if (head?.term !== term) return world.count("fence: record, term");
      return world.count(head.offset === offset ? "fence: record, id" : "fence: record, offset");
    }
    case take:
      return isEmpty ? world.count("fence: take") : undefined;
    case beat:
      return isEmpty ? world.count("fence: beat") : undefined;
    case release:
      return moved ? undefined : world.count("fence: release");
  }
}

/** Where a record is to come behind: the numbers that its statement binds, in their order. */
function placeOf({ parts }: Statement): { logId: number; term: number; offset: number } {
  const numbers = parts.filter((part) => typeof part === "number");
  return { logId: numbers[1]!, term: numbers[2]!, offset: numbers[3]! };
}
