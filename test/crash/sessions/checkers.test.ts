import { describe, expect, test } from "vitest";
import { sessionViolations } from "./checkers.ts";
import type { SessionEvidence, StoredSession } from "./evidence.ts";
import type { NewHistoryEvent, Shown } from "./history.ts";

type Stored = StoredSession["entries"][number];

const user = (seq: number, id: string): Stored => ({
  seq,
  messageId: id,
  role: "user",
  author: id.split("-")[0]!,
  text: id,
  epoch: null,
  outcome: null,
  clientId: id,
});
const answer = (seq: number, epoch: number, to: string, outcome = "completed"): Stored => ({
  seq,
  messageId: `answer ${epoch}`,
  role: "assistant",
  author: "local",
  text: outcome === "completed" ? `attempt 1: re ${to}` : "",
  epoch,
  outcome,
  clientId: null,
});
const shownOf = (entry: Stored): Shown => entry;

function storedOf(entries: Stored[], change: Partial<StoredSession> = {}): StoredSession {
  const lastSeq = entries.length;
  const header = { lastSeq, pending: 0, busy: false };
  return { session: "s", agent: "local", state: "idle", lastSeq, header, entries, ...change };
}

const session = "s";
const invoke = (id: string, on = "ada#1"): NewHistoryEvent => ({
  client: id.split("-")[0]!,
  type: "invoke",
  session,
  id,
  on,
});
const ok = (id: string, seq: number, tries = 1): NewHistoryEvent => ({
  client: id.split("-")[0]!,
  type: "ok",
  session,
  id,
  seq,
  duplicate: false,
  tries,
});
const join = (lastSeq: number, on = "ada#1"): NewHistoryEvent => ({
  client: "ada",
  type: "join",
  session,
  on,
  lastSeq,
});
const joined = (lastSeq: number, on = "ada#1"): NewHistoryEvent => ({
  client: "ada",
  type: "joined",
  session,
  on,
  lastSeq,
});
const deliver = (entry: Stored, on = "ada#1"): NewHistoryEvent => ({
  client: "ada",
  type: "deliver",
  session,
  on,
  entry: shownOf(entry),
});

const judged = (
  events: NewHistoryEvent[],
  stored: StoredSession,
  reads: SessionEvidence["reads"] = [],
) =>
  sessionViolations({
    history: events.map((event, atMs) => ({ atMs, ...event })),
    stored: [stored],
    reads,
  });

const all = [user(1, "ada-1"), answer(2, 1, "ada-1"), user(3, "ada-2"), answer(4, 2, "ada-2")];
const calm = [
  join(0),
  joined(0),
  invoke("ada-1"),
  ok("ada-1", 1),
  deliver(all[0]!),
  deliver(all[1]!),
  invoke("ada-2"),
  ok("ada-2", 3),
  deliver(all[2]!),
  deliver(all[2]!),
  deliver(all[3]!),
];

describe("the checkers of sessions", () => {
  test("find nothing wrong with what is right, and nothing in what is unknown", () => {
    const reads = [{ reader: "a", session, entries: all.map(shownOf) }];
    expect(judged(calm, storedOf(all), reads)).toEqual([]);
    const unknown = [...calm, invoke("ada-3")];
    expect(judged(unknown, storedOf(all))).toEqual([]);
    const late = [...all, user(5, "ada-3"), answer(6, 3, "", "failed")];
    expect(judged(unknown, storedOf(late))).toEqual([]);
  });

  const cases: [string, NewHistoryEvent[], StoredSession, RegExp][] = [
    [
      "a lost message",
      [...calm, invoke("ada-3"), ok("ada-3", 5)],
      storedOf(all),
      /^S1: ada-3.*lost/,
    ],
    [
      "one at another place",
      [...calm.slice(0, 7), ok("ada-2", 4)],
      storedOf(all),
      /^S1: ada-2.*at 3/,
    ],
    [
      "one that no client sent",
      calm.filter((each) => !("id" in each && each.id === "ada-2")),
      storedOf(all),
      /^S2: ada-2.*no client sent it/,
    ],
    [
      "one that was refused",
      [
        ...calm,
        invoke("ada-3"),
        { client: "ada", type: "refused", session, id: "ada-3", code: "conflict", final: true },
      ],
      storedOf([...all, user(5, "ada-3"), answer(6, 3, "ada-3")]),
      /^O2: ada-3/,
    ],
    [
      "one that is stored twice",
      calm,
      storedOf([...all, user(5, "ada-2"), answer(6, 3, "ada-2")]),
      /^S3: ada-2.*2 times/,
    ],
    ["an id with two seqs", [...calm, ok("ada-2", 5)], storedOf(all), /^S3: ada-2.*acked at 3,5/],
    [
      "a seq for two ids",
      [...calm, invoke("bob-1"), ok("bob-1", 3)],
      storedOf(all),
      /^S3: s#3 was given to ada-2 and bob-1/,
    ],
    [
      "a later message before an earlier one",
      [invoke("ada-1"), ok("ada-1", 2), invoke("bob-1"), ok("bob-1", 1)],
      storedOf([user(1, "bob-1"), user(2, "ada-1")], { agent: null }),
      /^S4: ada-1 was acked/,
    ],
    [
      "a connection's messages turned round",
      [invoke("ada-1"), invoke("ada-2"), ok("ada-2", 1), ok("ada-1", 2)],
      storedOf([user(1, "ada-2"), user(2, "ada-1")], { agent: null }),
      /^S4: ada#1 sent ada-1 before ada-2/,
    ],
    [
      "a gap in the store",
      calm,
      storedOf([all[0]!, all[1]!, all[2]!, { ...all[3]!, seq: 5 }]),
      /^S2: s has 5 as its entry 4/,
    ],
    [
      "a header that counts wrongly",
      calm,
      storedOf(all, { lastSeq: 5 }),
      /^S2: s has 4 entries, and says 5/,
    ],
    [
      "a delivery of what isn't stored",
      [...calm, deliver(user(5, "bob-1"))],
      storedOf(all),
      /^S6: ada was given s#5/,
    ],
    [
      "a seq that changes",
      [...calm, deliver({ ...all[3]!, text: "other" })],
      storedOf(all),
      /^S2: ada was given .*other/,
    ],
    [
      "a gap in what is delivered",
      [join(0), deliver(all[1]!)],
      storedOf(all),
      /^S5: ada#1 was given 2 after 0/,
    ],
    [
      "a reset",
      [...calm, { client: "ada", type: "reset", session, reason: "ahead" }],
      storedOf(all),
      /^O6: ada was reset/,
    ],
    [
      "a tail that goes back",
      [...calm, join(4, "ada#2"), joined(3, "ada#2")],
      storedOf(all),
      /^S7: ada#2 knew s up to 4/,
    ],
    ["a message without an answer", calm, storedOf(all.slice(0, 3)), /^W2: ada-2.*never answered/],
    [
      "an answer to something earlier",
      calm,
      storedOf([...all.slice(0, 3), answer(4, 2, "ada-1")]),
      /^W2: ada-2.*never answered/,
    ],
    [
      "a session that is never idle",
      calm,
      storedOf(all, { state: "catching_up" }),
      /^W2: s is catching_up/,
    ],
    [
      "two answers of a turn",
      calm,
      storedOf([...all, answer(5, 2, "ada-2")]),
      /^W1: in s an answer of turn 2/,
    ],
  ];
  test.each(cases)("notice %s", (_, events, stored, violation) => {
    expect(judged(events, stored)).toContainEqual(expect.stringMatching(violation));
  });

  test("notice a server or a client that has other entries than the store", () => {
    const reads = [{ reader: "a", session, entries: all.slice(0, 3).map(shownOf) }];
    expect(judged(calm, storedOf(all), reads)).toEqual([
      expect.stringMatching(/^S5: in the end a/),
    ]);
  });
});
