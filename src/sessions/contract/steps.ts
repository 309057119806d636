import { describe, expect, test } from "vitest";
import type { EndedStep } from "../conversation/command.ts";
import type { Journal, LogRecord, TurnRef } from "../log/journal.ts";
import {
  elsewhere,
  entry,
  fresh,
  header,
  headOf,
  type JournalHarness,
  record,
  turn,
} from "./journal-harness.ts";

const epoch = 3;

function step(key: string, seq: number, facts: Partial<EndedStep> = {}): EndedStep {
  const value = JSON.stringify(`${key} ${seq}`);
  return { key, seq, kind: "done", inputHash: null, value, tookMs: 5, forgets: false, ...facts };
}

/** A record with steps of a turn, beside a header of its session or without one. */
function stepsRecord(
  sessionId: string,
  rows: readonly EndedStep[],
  { attempt = 1, ...more }: Partial<LogRecord> & { attempt?: number } = {},
): LogRecord {
  return record({ steps: [{ sessionId, epoch, attempt, rows }], ...more });
}

/** The header of a session whose turn has stored steps. */
function stepping(sessionId: string, attempt = 1) {
  return header(sessionId, { lastSeq: 1, epoch, work: turn({ epoch, attempt, hasSteps: true }) });
}

async function valuesOf(journal: Journal, ref: TurnRef): Promise<Record<string, unknown>> {
  const rows = await journal.steps(ref);
  return Object.fromEntries(rows.map(({ key, value }) => [key, value && JSON.parse(value)]));
}

/** What becomes of the steps of turns that a record holds. */
export function stepsContract(scene: JournalHarness): void {
  describe("steps of turns", () => {
    /** A session whose turn may store steps, and what is stored of them. */
    const begun = async () => {
      const sessionId = fresh("session");
      const ref = { sessionId, epoch };
      const first = record({ entries: [entry(sessionId, 1)], headers: [stepping(sessionId)] });
      let head = headOf(await scene.journal.commit(await scene.own(), first));
      return {
        sessionId,
        ref,
        get head() {
          return head;
        },
        stored: () => valuesOf(scene.another, ref),
        async commit(next: LogRecord) {
          head = headOf(await scene.journal.commit(head, next));
        },
      };
    };

    test("are read as they were stored, in the order of their numbers", async () => {
      const { sessionId, ref, commit } = await begun();
      const large = JSON.stringify("x".repeat(20_000));
      await commit(stepsRecord(sessionId, [step("z", 1), step("large", 2, { value: large })]));
      await commit(
        stepsRecord(sessionId, [
          step("a[ü]", 3, { kind: "failed", inputHash: "hash", value: '{"code":"aborted"}' }),
          step("once", 4, { kind: "begun", value: "null" }),
        ]),
      );
      // A codec may make it longer.
      const bytes = (value: string) =>
        expect.toSatisfy((stored: number) => {
          const plain = Buffer.byteLength(value);
          return stored === plain || (stored > plain && stored < 2 * plain + 100);
        }) as number;
      const failed = '{"code":"aborted"}';
      const common = { kind: "done", inputHash: null, ageMs: expect.any(Number) as number };
      expect(await scene.another.steps(ref)).toEqual([
        { ...common, key: "z", seq: 1, value: '"z 1"', bytes: bytes('"z 1"') },
        { ...common, key: "large", seq: 2, value: undefined, bytes: bytes(large) },
        {
          ...common,
          key: "a[ü]",
          seq: 3,
          kind: "failed",
          inputHash: "hash",
          value: failed,
          bytes: bytes(failed),
        },
        { ...common, key: "once", seq: 4, kind: "begun", value: "null", bytes: bytes("null") },
      ]);
      expect(await scene.another.stepValue(ref, "large")).toBe(large);
      expect(await scene.another.stepValue(ref, "other")).toBeUndefined();
      expect(await scene.another.steps({ ...ref, epoch: 4 })).toEqual([]);
      expect(await scene.another.steps({ ...ref, sessionId: fresh("session") })).toEqual([]);
    });

    test("of a record that is sent again are stored once", async () => {
      const { sessionId, ref, head } = await begun();
      const rows = [step("a", 1), step("a/b", 2), step("c", 3)];
      const sent = stepsRecord(sessionId, rows);
      const after = headOf(await scene.journal.commit(head, sent));
      expect(headOf(await scene.another.commit(head, sent))).toEqual(after);
      expect(await valuesOf(scene.journal, ref)).toEqual({ a: "a 1", "a/b": "a/b 2", c: "c 3" });
    });

    test("of a record that is fenced are not stored", async () => {
      const { sessionId, head, stored } = await begun();
      for (const at of elsewhere(head)) {
        const fenced = stepsRecord(sessionId, [step("a", 1)]);
        expect(await scene.journal.commit(at, fenced)).toEqual({ type: "fenced" });
      }
      expect(await stored()).toEqual({});
    });

    test("replace those before them under the same key, and never those after them", async () => {
      const { sessionId, commit, stored } = await begun();
      await commit(stepsRecord(sessionId, [step("pay", 1, { kind: "begun" }), step("a", 2)]));
      await commit(stepsRecord(sessionId, [step("pay", 3)]));
      expect(await stored()).toEqual({ pay: "pay 3", a: "a 2" });
      await commit(stepsRecord(sessionId, [step("pay", 1, { kind: "begun" })]));
      expect(await stored()).toEqual({ pay: "pay 3", a: "a 2" });
      await commit(stepsRecord(sessionId, [step("b", 4), step("b", 5), step("b", 4)]));
      expect(await stored()).toEqual({ pay: "pay 3", a: "a 2", b: "b 5" });
    });

    test("take the place of those within them, and of no others", async () => {
      const { sessionId, commit, stored } = await begun();
      const inner = ["a/b", "a/b/c", "a@1/b", "a@2/b", "a/z[1]"];
      const others = ["a#2", "a#2/b", "a[1]/b", "a0", "aA", "b/a/b", "ab/c"];
      const rows = [...inner, ...others].map((key, at) => step(key, at + 1));
      await commit(stepsRecord(sessionId, rows));
      await commit(stepsRecord(sessionId, [step("a", 50, { forgets: true })]));
      expect(Object.keys(await stored())).toEqual([...others, "a"]);
    });

    test("that come late again delete nothing that was stored after them", async () => {
      const { sessionId, commit, stored } = await begun();
      const round = step("loop", 2, { kind: "round", forgets: true });
      await commit(stepsRecord(sessionId, [step("loop@1/model", 1)]));
      await commit(stepsRecord(sessionId, [round]));
      await commit(stepsRecord(sessionId, [step("loop@2/model", 3)]));
      await commit(stepsRecord(sessionId, [round]));
      expect(Object.keys(await stored())).toEqual(["loop", "loop@2/model"]);
    });

    test("stay when another attempt begins, in the same record too", async () => {
      const { sessionId, commit, stored } = await begun();
      await commit(stepsRecord(sessionId, [step("a", 1)]));
      await commit(stepsRecord(sessionId, [step("b", 2)], { headers: [stepping(sessionId, 2)] }));
      await commit(stepsRecord(sessionId, [step("c", 3)], { attempt: 2 }));
      expect(await stored()).toEqual({ a: "a 1", b: "b 2", c: "c 3" });
    });

    test("go in the record that stores the answer, and those of other turns stay", async () => {
      const { sessionId, ref, commit, stored } = await begun();
      const [other, neighbour] = [await begun(), { ...ref, epoch: 30 }];
      await other.commit(stepsRecord(other.sessionId, [step("a", 1)]));
      await commit(stepsRecord(sessionId, [step("a", 1)]));
      const rows = [step("n", 1)];
      await commit(record({ steps: [{ ...neighbour, attempt: 1, rows }] }));
      const answer = entry(sessionId, 2, { role: "assistant", clientId: null, epoch });
      const idle = header(sessionId, { lastSeq: 2, epoch });
      // What ended in the same record as the turn is of no use any more.
      const last = { entries: [answer], headers: [idle], stepsOver: [ref] };
      await commit(stepsRecord(sessionId, [step("b", 2)], last));
      expect(await stored()).toEqual({});
      expect(await valuesOf(scene.journal, neighbour)).toEqual({ n: "n 1" });
      expect(await other.stored()).toEqual({ a: "a 1" });
    });

    test("go with their session", async () => {
      const { sessionId, ref, commit, stored } = await begun();
      await commit(stepsRecord(sessionId, [step("a", 1)]));
      const deleted = header(sessionId, { status: "deleted", lastSeq: 1, epoch, work: null });
      await commit(
        stepsRecord(sessionId, [step("b", 2)], { headers: [deleted], stepsOver: [ref] }),
      );
      expect(await stored()).toEqual({});
    });
  });
}
