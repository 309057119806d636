import { describe, expect, test } from "vitest";
import type { Call } from "../crash/sessions/script.ts";
import { clusterViolations, type Happened, mostAtOnce, vacuity } from "./checkers.ts";
import type { Archives, ClusterEvidence, Look, Replica } from "./evidence.ts";

const session = "s";
const client = "ada";
const entry = {
  seq: 1,
  messageId: "ada-1",
  role: "user",
  author: client,
  text: "ada-1",
  epoch: null,
  outcome: null,
  clientId: "ada-1",
};
const look = (askedMs: number, lastSeq: number, change: Partial<Look> = {}): Look => ({
  reader: "fay",
  session,
  pod: "p1",
  askedMs,
  atMs: askedMs + 1,
  lastSeq,
  ...change,
});
const head = (term: number, offset: number, log = 0) => ({ log, incarnation: "i", term, offset });
const call = (event: Call["event"], atMs: number, of: string, attempt = 1): Call => ({
  atMs,
  where: "agent",
  event,
  agent: "remote",
  session: of,
  epoch: 1,
  attempt,
});
const replica = (server: string, digests: readonly string[]): Replica => ({
  log: 0,
  server,
  messages: digests.map((digest, at) => ({ sequence: at + 1, digest })),
});
const rows = { message: { "s 1": "first", "s 2": "second" }, session: { s: "two" } };
const archives = (change: Partial<Archives>): Archives => ({
  live: rows,
  rebuilt: { session: { s: "two" }, message: { "s 2": "second", "s 1": "first" } },
  trimmed: [],
  behind: [],
  ...change,
});

const calm: ClusterEvidence = {
  history: [
    { atMs: 1, client, type: "invoke", session, id: "ada-1", on: "ada#1", text: "ada-1" },
    { atMs: 2, client, type: "ok", session, id: "ada-1", seq: 1, duplicate: false, tries: 1 },
  ],
  stored: [
    {
      session,
      agent: null,
      state: "idle",
      lastSeq: 1,
      header: { lastSeq: 1, pending: 0, busy: false },
      entries: [entry],
    },
  ],
  reads: [],
  // What is asked before the ack may see it or not.
  looks: [look(0, 0), look(1.5, 1), look(3, 1, { pod: "p2" }), look(5, 1)],
  heads: [head(1, 1), head(1, 5), head(2, 6), head(1, 3, 1)],
  owned: [
    { log: 0, term: 1, pod: "p1" },
    { log: 0, term: 1, pod: "p1" },
    { log: 0, term: 2, pod: "p2" },
    { log: 1, term: 1, pod: "p2" },
  ],
  calls: [
    call("called", 1, "a"),
    call("ended", 3, "a"),
    call("called", 3, "b"),
    call("ended", 4, "b"),
  ],
  callsMax: 1,
  replicas: [replica("n1", ["x", "y"]), replica("n2", ["x", "y"])],
  archives: archives({}),
};

describe("the checkers of a cluster", () => {
  test("find nothing wrong with what is right", () => {
    expect(clusterViolations(calm)).toEqual([]);
  });

  const cases: [string, Partial<ClusterEvidence>, RegExp][] = [
    ["an ack that a later read doesn't show", { looks: [look(3, 0)] }, /^S4: fay was told by p1/],
    [
      "a tail that falls from one pod to another",
      { looks: [look(3, 4), look(5, 3, { pod: "p2" })] },
      /^S7: fay was told 4 by p1, then 3 by p2/,
    ],
    ["a term that falls", { heads: [head(2, 6), head(1, 7)] }, /^O1: log 0 .* to term 1/],
    [
      "a term that falls, and was seen to go on",
      { heads: [head(3, 6), head(3, 7), head(2, 7)] },
      /^O1: log 0 .* from term 3 at 7 to term 2 at 7$/,
    ],
    ["a log whose end falls", { heads: [head(2, 7), head(2, 5)] }, /^O1: log 0 .* at 5$/],
    [
      "a log whose end falls by and by",
      { heads: [head(2, 7), head(2, 6), head(2, 5)] },
      /^O1: log 0 .* from term 2 at 6 to term 2 at 5$/,
    ],
    [
      "a row of a log that falls",
      { heads: [head(2, 6), head(2, 5)], archives: undefined },
      /^O1: log 0 .* at 5$/,
    ],
    [
      "a row of a log that falls by a term",
      { heads: [head(4, 6), head(3, 6)], archives: undefined },
      /^O1: log 0 .* to term 3 at 6$/,
    ],
    [
      "two owners of a term",
      { owned: [...calm.owned, { log: 0, term: 2, pod: "p3" }] },
      /^O1: term 2 of log 0 was owned by p2 and p3/,
    ],
    [
      "more answers at once than the throttle allows",
      {
        calls: [
          call("called", 1, "a"),
          call("called", 2, "b"),
          call("ended", 3, "a"),
          call("ended", 4, "b"),
        ],
      },
      /^H1: 2 answers were wanted at once/,
    ],
    [
      "a replica with another message",
      { replicas: [replica("n1", ["x", "y"]), replica("n2", ["x", "z"])] },
      /^S8: n2 has another 2 of log 0/,
    ],
    [
      "a replica that ends early",
      { replicas: [replica("n1", ["x", "y"]), replica("n2", ["x"])] },
      /^S8: log 0 ends at 1 on n2/,
    ],
    [
      "a replica with a hole",
      {
        replicas: [
          replica("n1", ["x", "y", "z"]),
          { ...replica("n2", []), messages: [1, 3].map((sequence) => ({ sequence, digest: "x" })) },
        ],
      },
      /^S8: n2 has nothing before 3 of log 0/,
    ],
    [
      "a row of the archive that its log doesn't make",
      { archives: archives({ live: { ...rows, message: { ...rows.message, "s 3": "third" } } }) },
      /^S8: message s 3 is archived as third, and its log makes nothing of it/,
    ],
    [
      "a row that the archive lacks",
      { archives: archives({ live: { ...rows, message: { "s 1": "first" } } }) },
      /^S8: message s 2 is archived as nothing, and its log makes second of it/,
    ],
    [
      "a row of the archive that its log makes another of",
      { archives: archives({ live: { ...rows, session: { s: "one" } } }) },
      /^S8: session s is archived as one, and its log makes two of it/,
    ],
    [
      "a table that the archive lacks",
      { archives: archives({ live: { session: rows.session } }) },
      /^S8: message s 1 is archived as nothing/,
    ],
    [
      "a log that isn't archived to its end",
      { archives: archives({ behind: [3] }) },
      /^S8: log 3 has records that the archive lacks/,
    ],
    [
      "other bytes than were sent",
      { stored: [{ ...calm.stored[0]!, entries: [{ ...entry, text: "ada-2" }] }] },
      /^S1: ada-1 in s says "ada-2", and "ada-1" was sent/,
    ],
    ["what is lost, as the checkers of sessions do", { stored: [] }, /^S1: ada-1 in s .* is lost/],
  ];
  test.each(cases)("notice %s", (_, change, violation) => {
    expect(clusterViolations({ ...calm, ...change })).toContainEqual(
      expect.stringMatching(violation),
    );
  });

  const unacked: [string, ClusterEvidence["heads"]][] = [
    ["record", [head(2, 6), head(2, 5), head(2, 8)]],
    ["record, more than once", [head(2, 6), head(2, 5), head(2, 6), head(2, 5), head(2, 8)]],
    ["owner, after which the one before goes on", [head(1, 5), head(3, 6), head(2, 5), head(2, 9)]],
    ["owner, of which another has the term then", [head(1, 5), head(2, 6), head(1, 5), head(2, 7)]],
  ];
  test.each(unacked)(
    "find nothing wrong with a log that loses its last, unacked %s",
    (_, heads) => {
      expect(clusterViolations({ ...calm, heads })).toEqual([]);
    },
  );

  test("tell of a few rows where many are wrong", () => {
    const many = Object.fromEntries([1, 2, 3, 4, 5].map((seq) => [`s ${seq}`, "x"]));
    const told = clusterViolations({
      ...calm,
      archives: archives({ live: { ...rows, message: many } }),
    });
    expect(told).toHaveLength(4);
    expect(told.at(-1)).toBe("S8: 2 more rows of message differ from their logs");
  });

  test("compare no archive with a log that was trimmed, and say so", () => {
    const part = archives({ rebuilt: {}, trimmed: [2] });
    expect(clusterViolations({ ...calm, archives: part })).toEqual([]);
  });

  test("count answers by their ends, and none that was cut off with its pod", () => {
    const cut = [call("called", 1, "a"), call("aborted", 9, "a"), call("called", 2, "b")];
    expect(mostAtOnce({ calls: [...cut, call("ended", 3, "b")] })).toBe(1);
    const again = [call("called", 2, "a", 2), call("ended", 4, "a", 2)];
    expect(mostAtOnce({ calls: [...cut, ...again, call("ended", 3, "b")] })).toBe(2);
  });

  test("count an answer that its attempt asked for again from then on", () => {
    const givenUp = [call("called", 1, "a"), call("aborted", 2, "a")];
    const other = [call("called", 3, "b"), call("ended", 4, "b")];
    const again = [call("called", 5, "a"), call("ended", 6, "a")];
    expect(mostAtOnce({ calls: [...givenUp, ...other, ...again] })).toBe(1);
  });

  test("say what a storm lacked", () => {
    const wanted = { faults: ["kill", "cut"], fences: ["record"] };
    const rough: Happened = {
      fired: ["cut", "kill"],
      refused: { record: 1 },
      looks: 50,
      invoked: 200,
      acked: 100,
      mostAtOnce: 2,
      callsMax: 2,
      trimmed: [],
    };
    expect(vacuity(wanted, rough)).toEqual([]);
    const few = { looks: 49, acked: 99, mostAtOnce: 1 };
    const mild = { ...rough, ...few, fired: ["cut"], refused: {}, trimmed: [2] };
    expect(vacuity(wanted, mild)).toEqual([
      'the fault "kill"',
      'a refusal by the fence "record"',
      "success of most operations: 99 of 200",
      "a hundred messages",
      "fifty reads",
      "all messages of log 2, to rebuild the archive of them",
      "as many answers at once as may be",
    ]);
  });
});
