import { describe, expect, test } from "vitest";
import { eventLoopTurns, movableClock } from "../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { seededRandom } from "../../base/random.ts";
import type { Command } from "../conversation/command.ts";
import type { CommitResult, Journal, LogRecord } from "./journal.ts";
import { createMemoryJournal } from "./memory-journal.ts";
import { createOwner, type Owner } from "./owner.ts";
import { encodeRecord } from "./record-codec.ts";

const tenant = "default";
const kib = 1_024;

/** What becomes of a commit, given what would store the record. */
type Commit = (store: () => Promise<CommitResult>) => Promise<CommitResult>;

/** An owner with one session, whose log takes records of so many bytes. */
async function startOwner({ maxRecordBytes = Infinity, agent = false } = {}) {
  const clock = movableClock();
  const ids = uuidv7(clock, seededRandom(7));
  const journal: Journal = createMemoryJournal({ ids, maxRecordBytes });
  await journal.create(1);
  const records: LogRecord[] = [];
  /** What becomes of the next commits; those after them are as they should be. */
  const commits: Commit[] = [];
  const take = async (podId: string): Promise<Owner> => {
    const [seen] = await journal.heads();
    const head = await journal.take(seen!, { podId, host: null, recordId: ids.next() });
    return createOwner(head!, await journal.recover(head!), {
      journal: {
        ...journal,
        commit(at, record) {
          records.push(record);
          const store = () => journal.commit(at, record);
          return commits.shift()?.(store) ?? store();
        },
      },
      clock,
      random: seededRandom(1),
      ids,
      log: silentLogger,
      facts: () => ({
        nowMs: clock.now(),
        newId: () => ids.next(),
        agent: () => (agent ? { during: "queue", attempts: 3, compaction: null } : undefined),
        runnerFor: () => null,
      }),
      prime: () => undefined,
      onCommitted: () => {},
      onFenced: () => {},
      isFresh: () => true,
    });
  };
  let owner = await take("pod-1");
  const submit = (command: Command) => owner.submit(tenant, "s", command);
  const agents = agent ? ["helper"] : [];
  await submit({ type: "create", sessionId: "s", tenant, agents, users: [], metadata: null });
  records.length = 0;
  return {
    clock,
    journal,
    records,
    commits,
    say: (clientId: string, text: string) => submit(message(clientId, text)),
    async moveToAnotherPod() {
      owner = await take("pod-2");
    },
    /** Submits commands while the record of another one is under way, and waits for all of them. */
    async together(commands: readonly Command[]): Promise<(number | string | undefined)[]> {
      const gate = Promise.withResolvers<void>();
      commits.unshift(async (store) => (await gate.promise, store()));
      const first = submit(message("first", "first"));
      await eventLoopTurns();
      const rest = commands.map(submit);
      await eventLoopTurns();
      gate.resolve();
      await first;
      const settled = await Promise.allSettled(rest);
      return settled.map((each) =>
        each.status === "fulfilled" ? each.value.seq : (each.reason as FlotillaError).code,
      );
    },
  };
}

describe("the size of records", () => {
  test("a record ends where its commands have 512 KiB, and the next goes on in their order", async () => {
    const { together, records } = await startOwner();
    const large = Array.from({ length: 9 }, (_, at) => message(`m${at}`, "a".repeat(120 * kib)));
    expect(await together(large)).toEqual([2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(records.map(({ entries }) => entries.length)).toEqual([1, 4, 4, 1]);
  });

  test("many small commands are in one record", async () => {
    const { together, records } = await startOwner();
    await together(Array.from({ length: 1_000 }, (_, at) => message(`m${at}`, "a".repeat(200))));
    expect(records.map(({ entries }) => entries.length)).toEqual([1, 1_000]);
  });

  test("an answer of 1 MiB is stored, beside what was sent meanwhile", async () => {
    const { together, journal } = await startOwner({ agent: true, maxRecordBytes: 4_000 * kib });
    const parts = [{ type: "text", text: "a".repeat(1_024 * kib) }];
    const reply = { outcome: "completed", parts, tokens: 1 } as const;
    const answer: Command = { type: "turn_finished", epoch: 1, attempt: 1, reply };
    const seqs = await together([message("before", "b"), answer, message("after", "c")]);
    expect(seqs).toEqual([2, 3, 4]);
    const [stored] = await journal.entries("s", { after: 2, limit: 1 });
    expect(stored!.parts).toEqual(parts);
  });

  test("a command that the log has no room for in one record is refused alone", async () => {
    const maxRecordBytes = 64 * kib;
    const { together, records, journal } = await startOwner({ maxRecordBytes });
    const told = await together([
      message("before", "b"),
      message("large", "a".repeat(100 * kib)),
      // Six bytes for each character, which is more than it seems.
      message("escaped", "\u0001".repeat(20 * kib)),
      message("after", "c"),
    ]);
    expect(told).toEqual([2, "payload_too_large", "payload_too_large", 3]);
    const stored = await journal.entries("s", { after: 0, limit: 10 });
    expect(stored.map(({ messageId }) => messageId)).toEqual(["first", "before", "after"]);
    const sizes = records.map((each) => encodeRecord(each, { maxBytes: Infinity }).length);
    expect(sizes.some((bytes) => bytes > maxRecordBytes)).toBe(true);
  });

  test("S3: what was stored isn't refused by the next owner for a size that it has only now", async () => {
    const { commits, say, moveToAnotherPod } = await startOwner();
    await say("a", "a");
    await moveToAnotherPod();
    const tooLarge: Commit = async () => {
      throw new FlotillaError("payload_too_large", "the log takes less");
    };
    commits.push(tooLarge);
    expect(await say("a", "a")).toMatchObject({ seq: 1, duplicate: true });
    commits.push(tooLarge, tooLarge);
    await expect(say("b", "b")).rejects.toMatchObject({ code: "payload_too_large" });
    expect(await say("c", "c")).toMatchObject({ seq: 2 });
  });

  test("what a full log refuses isn't tried in parts, and is told at once", async () => {
    const { together, commits, records, say } = await startOwner();
    commits.push(full);
    const told = await together([message("a", "a"), message("b", "b"), message("c", "c")]);
    expect(told).toEqual(["overloaded", "overloaded", "overloaded"]);
    expect(records).toHaveLength(2);
    expect(await say("a", "a")).toMatchObject({ seq: 2 });
  });

  test("O2: a log that is full says nothing of a record that may have been stored before", async () => {
    const { clock, commits, say, journal } = await startOwner();
    const lost: Commit = async (store) => {
      await store();
      throw new FlotillaError("unknown_outcome", "the answer was lost");
    };
    commits.push(lost, full);
    const answer = say("a", "a");
    await clock.advance(5_000);
    expect(await answer).toMatchObject({ seq: 1 });
    expect(await journal.entries("s", { after: 0, limit: 10 })).toHaveLength(1);
  });
});

const full: Commit = async () => {
  throw new FlotillaError("overloaded", "the log is full");
};

function message(clientId: string, text: string): Command {
  return {
    type: "append",
    clientId,
    messageId: clientId,
    role: "user",
    author: "ada",
    parts: [{ type: "text", text }],
    tokens: 1,
  };
}
