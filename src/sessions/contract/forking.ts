import { type MovableClock, movableClock } from "../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { seededRandom } from "../../base/random.ts";
import type { Entry } from "../../protocol/message.ts";
import type { Database } from "../../store/database.ts";
import { sql, table } from "../../store/sql.ts";
import type { AgentFacts, Command, CommandResult } from "../conversation/command.ts";
import { createService, type ServiceParts } from "../create-service.ts";
import { createForkCollector } from "../fork-collector.ts";
import type { Journal } from "../log/journal.ts";
import { createOwner } from "../log/owner.ts";
import type { SessionService } from "../service.ts";

const agentFacts: AgentFacts = { during: "queue", attempts: 3, compaction: null };

/** There are all agents but this one. */
export const unknownAgent = "unknown";

/** What becomes of commands on their way to the owner. */
export type OnTheWay = (
  command: Command,
  go: () => Promise<CommandResult>,
) => Promise<CommandResult>;

/**
 * The service of sessions over one owner of one log, whose turns no pod runs: what is asked of an agent
 * stays under way.
 */
export async function startForking(
  store: Database,
  journal: Journal,
  { ahead, clock = movableClock() }: { ahead?: ServiceParts["ahead"]; clock?: MovableClock } = {},
) {
  const random = seededRandom(3);
  const ids = uuidv7(clock, random);
  if ((await journal.heads()).length === 0) await journal.create(1);
  const [seen] = await journal.heads();
  const head = await journal.take(seen!, { podId: "pod-1", host: null, recordId: ids.next() });
  const owner = createOwner(head!, await journal.recover(head!), {
    journal,
    clock,
    random,
    ids,
    log: silentLogger,
    facts: () => ({
      nowMs: clock.now(),
      newId: () => `@${ids.next()}`,
      agent: (name) => (name === unknownAgent ? undefined : agentFacts),
      runnerFor: () => "pod-1",
    }),
    prime: () => undefined,
    onCommitted() {},
    onFenced() {},
    isFresh: () => true,
  });
  const harness = {
    onTheWay: undefined as OnTheWay | undefined,
    beforeWrite: undefined as (() => Promise<unknown>) | undefined,
  };
  const database: Database = {
    ...store,
    async write(...given) {
      const { beforeWrite } = harness;
      harness.beforeWrite = undefined;
      await beforeWrite?.();
      return store.write(...given);
    },
  };
  const router = {
    submit(tenant: string, sessionId: string, command: Command): Promise<CommandResult> {
      const go = () => owner.submit(tenant, sessionId, command);
      return harness.onTheWay ? harness.onTheWay(command, go) : go();
    },
    close() {},
  };
  const collector = createForkCollector({ database, router, clock, random, log: silentLogger });
  const service: SessionService = createService({
    database,
    journal,
    coldJournal: journal,
    heads: { of: async () => owner.head },
    router,
    forks: collector,
    ids,
    clock,
    random,
    maxPayloadBytes: 100_000,
    localHeader: () => undefined,
    ahead,
  } as unknown as ServiceParts);

  const say = (sessionId: string, text: string, id = text) =>
    service.send("default", sessionId, {
      id,
      author: "ada",
      parts: [{ type: "text", text }],
    });
  return {
    clock,
    journal,
    owner,
    service,
    collector,
    say,
    /** Sets what becomes of commands from here on. */
    onTheWay(way: OnTheWay | undefined) {
      harness.onTheWay = way;
    },
    /** Does something else before the next write that is no record. */
    beforeWrite(act: () => Promise<unknown>) {
      harness.beforeWrite = act;
    },
    /** A session of messages `1` to `count`. */
    async talked(sessionId: string, count: number): Promise<void> {
      await service.create("default", { sessionId, users: ["ada"] });
      for (let at = 1; at <= count; at++) await say(sessionId, `${sessionId}-${at}`);
    },
    /** What a session has said, read from its beginning in pages of so many. */
    async read(sessionId: string, limit = 1_000): Promise<string[]> {
      const texts: string[] = [];
      for (let after = 0; ;) {
        const { entries, next } = await service.entries("default", sessionId, { after, limit });
        texts.push(...entries.map(textOf));
        const seqs = entries.map(({ seq }) => seq);
        if (seqs.some((seq, at) => seq !== after + at + 1))
          throw new Error(`a gap: ${seqs.join()}`);
        if (next === null) return texts;
        after = next;
      }
    },
    /** The same from its end, in pages. */
    async readBack(sessionId: string, limit = 1_000): Promise<string[]> {
      const texts: string[] = [];
      for (let upTo = Number.MAX_SAFE_INTEGER; ;) {
        const page = await journal.tail(sessionId, { after: 0, upTo, limit, maxBytes: 1_000_000 });
        texts.unshift(...page.map(textOf));
        if (page.length === 0 || page[0]!.seq === 1) return texts;
        upTo = page[0]!.seq - 1;
      }
    },
  };
}

/** How many rows of entries and of forks the database has of these sessions. */
export async function rowsOf(database: Database, ...sessionIds: string[]) {
  const counts = async (sessionId: string) => {
    const [row] = await database.read(sql`
      select (select count(*) from ${table("message")} where session_id = ${sessionId}) as entries,
        (select count(*) from ${table("session_fork")} where session_id = ${sessionId}) as forks`);
    return { entries: Number(row!["entries"]), forks: Number(row!["forks"]) };
  };
  return Promise.all(sessionIds.map(counts));
}

export function textOf({ parts }: Entry): string {
  return parts.map(({ text }) => String(text)).join("");
}
