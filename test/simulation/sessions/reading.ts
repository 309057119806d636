/** Pages of a session, judged in the moment in which they are given. */
import type { EntriesPage } from "../../../src/sessions/service.ts";
import type { World } from "../world.ts";
import { exactly } from "./words.ts";
import type { Witness } from "./witness.ts";

export type Asked = {
  readonly sessionId: string;
  readonly after: number;
  readonly limit: number;
  /** The furthest position that a client knew of when it was read. */
  readonly atLeast: number;
  readonly where: string;
};

export function judgePage(world: World, witness: Witness, page: EntriesPage, asked: Asked): void {
  const { sessionId, after, limit, atLeast, where } = asked;
  const { entries, lastSeq } = page;
  const seen = witness.sessions.get(sessionId);
  if (!seen || seen.header.status === "deleted") return;
  const what = `${sessionId} read at ${where}`;
  world.count("client: a page");
  if (lastSeq < atLeast) world.violate("S7", `${what}: it has ${lastSeq}, and ${atLeast} was told`);
  if (lastSeq > seen.entries.length) world.violate("S6", `${what}: ${lastSeq} isn't stored`);
  if (page.incarnation !== witness.headOf(sessionId)?.incarnation) {
    world.violate("O6", `${what}: of the incarnation "${page.incarnation}"`);
  }
  const wanted = Math.min(limit, Math.max(0, atLeast - after));
  if (entries.length < wanted) world.violate("S1", `${what}: ${entries.length} of ${wanted}`);
  entries.forEach((entry, at) => {
    if (entry.seq !== after + at + 1) world.violate("S2", `${what}: a gap before ${entry.seq}`);
    if (witness.textOf(sessionId, entry.seq) !== exactly(entry)) {
      world.violate("S2", `${what}: ${entry.seq} isn't what is stored`);
    }
  });
}
