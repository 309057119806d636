import { describe, expect, test } from "vitest";
import type { StoredMessage } from "../log-reader.ts";
import { rivalVacuity, rivalViolations } from "./checkers.ts";
import type { NewNote, Note, RivalEvidence } from "./evidence.ts";

const at = (recordId: string, offset: number) => ({ log: 0, recordId, offset });
const by = (rival: string, note: NewNote): Note => ({ rival, ...note });
const message = (
  sequence: number,
  recordId: string,
  facts: Partial<StoredMessage> = {},
): StoredMessage => ({ sequence, recordId, kind: "record", term: 1, owner: "r1", ...facts });
const messages = [
  message(1, "take-1", { kind: "owner" }),
  message(2, "a"),
  message(3, "take-2", { kind: "owner", term: 2, owner: "r2" }),
  message(4, "b", { term: 2, owner: "r2" }),
];
const digests = (all: readonly StoredMessage[]) =>
  all.map(({ sequence, recordId }) => ({ sequence, digest: recordId }));
const stored = (all: readonly StoredMessage[]): Partial<RivalEvidence> => ({
  stored: [{ log: 0, messages: all }],
});

const calm: RivalEvidence = {
  notes: [
    by("r1", { event: "sent", ...at("take-1", 1) }),
    by("r1", { event: "committed", ...at("take-1", 1), term: 1 }),
    by("r1", { event: "recovered", log: 0, offset: 1, records: [] }),
    by("r1", { event: "sent", ...at("a", 2) }),
    by("r1", { event: "committed", ...at("a", 2), term: 1 }),
    by("r2", { event: "sent", ...at("take-2", 3) }),
    by("r1", { event: "sent", ...at("lost", 3) }),
    by("r1", { event: "unknown", ...at("lost", 3) }),
    by("r2", { event: "committed", ...at("take-2", 3), term: 2 }),
    by("r2", { event: "recovered", log: 0, offset: 3, records: ["a"] }),
    by("r1", { event: "fenced", ...at("lost", 3) }),
    // It was never told what became of it.
    by("r2", { event: "sent", ...at("b", 4) }),
    by("r2", { event: "unknown", ...at("b", 4) }),
  ],
  stored: [{ log: 0, messages }],
  replicas: [
    { log: 0, server: "n1", messages: digests(messages) },
    { log: 0, server: "n2", messages: digests(messages) },
  ],
};
const without = (sequence: number) => messages.filter((each) => each.sequence !== sequence);
const noted = (...notes: Note[]): Partial<RivalEvidence> => ({ notes: [...calm.notes, ...notes] });

describe("the checkers of rivals", () => {
  test("find nothing wrong with what is right, and nothing in what is unknown", () => {
    expect(rivalViolations(calm)).toEqual([]);
    expect(rivalViolations({ ...calm, ...stored(messages.slice(0, 3)) })).toEqual([]);
  });

  const cases: [string, Partial<RivalEvidence>, RegExp][] = [
    [
      "a committed record that is lost",
      stored(messages.slice(0, 1)),
      /^S1: r1 .* a at 2 .*nothing/,
    ],
    [
      "one under another term",
      stored([messages[0]!, message(2, "a", { term: 2, owner: "r2", kind: "owner" })]),
      /^S1: r1 .* a at 2 .* of term 2/,
    ],
    [
      "a fenced record that is stored",
      stored([...messages, message(5, "lost", { term: 2, owner: "r2" })]),
      /^O3: lost of r1 was fenced, and is at 5/,
    ],
    ["a gap", stored(without(2)), /^S2: 3 is message 2 of log 0/],
    [
      "a record that no rival sent",
      stored([...messages, message(5, "other", { term: 2, owner: "r2" })]),
      /^S2: other is at 5/,
    ],
    [
      "a record at two places",
      stored([...messages, message(5, "b", { term: 2, owner: "r2" })]),
      /^S2: b is at 5/,
    ],
    ["a term that falls", stored([...messages, message(5, "c")]), /^O1: the term .* falls at 5/],
    [
      "a record of a rival that doesn't own the log",
      stored([...messages, message(5, "c", { term: 2, owner: "r1" })]),
      /^O1: r1 has 5 of log 0/,
    ],
    [
      "an owner that has read too little",
      noted(by("r2", { event: "recovered", log: 0, offset: 3, records: [] })),
      /^S9: r2 has read 0 records/,
    ],
    [
      "replicas that differ",
      {
        replicas: [
          calm.replicas[0]!,
          { log: 0, server: "n2", messages: [{ sequence: 2, digest: "z" }] },
        ],
      },
      /^S8: n2 has another 2 of log 0/,
    ],
    ["a rival that failed", noted(by("r1", { event: "failed", why: "why" })), /^R2: r1 failed/],
  ];
  test.each(cases)("notice %s", (_, change, violation) => {
    expect(rivalViolations({ ...calm, ...change })).toContainEqual(
      expect.stringMatching(violation),
    );
  });

  test("say what rivals lacked", () => {
    const notes = calm.notes.filter(({ event }) => event !== "fenced");
    expect(rivalVacuity({ ...calm, notes })).toEqual([
      "two hundred records",
      "a record that was fenced",
      "logs that were taken",
      "an unknown outcome that was a commit",
      "an unknown outcome where another's record was",
      "a refusal with nothing at the place",
    ]);
    const known = [
      by("r2", { event: "nothing", log: 0, offset: 4 }),
      by("r2", { event: "committed", ...at("b", 4), term: 2 }),
    ];
    expect(rivalVacuity({ ...calm, notes: [...calm.notes, ...known] })).toEqual([
      "two hundred records",
      "logs that were taken",
    ]);
  });
});
