import { expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { messageRecord } from "../contract/journal-harness.ts";
import type { CommitResult, Head, Log } from "./journal.ts";
import { observedLog, type LogOutcome } from "./observed-log.ts";

const head: Head = {
  logId: 0,
  incarnation: "one",
  term: 1,
  owner: "pod-1",
  host: null,
  offset: 7,
  recordId: "r7",
};
const committed: CommitResult = { type: "committed", head: { ...head, offset: 8 } };

function observing(outcomes: (CommitResult | Error)[]) {
  let nowMs = 0;
  const events: LogOutcome[] = [];
  const log = observedLog<Pick<Log, "commit" | "take" | "recover">>(
    {
      async commit() {
        const outcome = outcomes.shift()!;
        if (outcome instanceof Error) throw outcome;
        return outcome;
      },
      async take(seen: Head) {
        nowMs += 30;
        return seen.owner === "other" ? undefined : { ...seen, term: seen.term + 1 };
      },
      async recover() {
        nowMs += 12;
        return { busy: [] };
      },
    },
    {
      clock: { ...systemClock, monotonic: () => nowMs },
      onEvent: (event) => events.push(event),
    },
  );
  return { log, events };
}

test("a record whose outcome is unknown is counted, and each time that it is sent again", async () => {
  const unknown = new FlotillaError("unknown_outcome", "no answer");
  const { log, events } = observing([unknown, unknown, committed, committed]);
  const record = messageRecord("s", 1);
  await expect(log.commit(head, record)).rejects.toThrow("no answer");
  await expect(log.commit(head, record)).rejects.toThrow("no answer");
  await log.commit(head, record);
  await log.commit(head, messageRecord("s", 2));
  expect(events.map(({ type }) => type)).toEqual([
    "record_unknown",
    "record_resent",
    "record_unknown",
    "record_resent",
  ]);
});

test("a fence is counted, and a definite refusal is none", async () => {
  const full = new FlotillaError("overloaded", "full");
  const { log, events } = observing([full, { type: "fenced" }]);
  const record = messageRecord("s", 1);
  await expect(log.commit(head, record)).rejects.toThrow("full");
  await log.commit(head, record);
  expect(events).toEqual([{ type: "record_fenced" }]);
});

test("a take lasts until all is read, and one that another pod won isn't counted", async () => {
  const { log, events } = observing([]);
  await log.take({ ...head, owner: "other" }, { podId: "p", host: null, recordId: "r" });
  const taken = await log.take(head, { podId: "p", host: null, recordId: "r" });
  await log.recover(taken!);
  expect(events).toEqual([{ type: "log_taken", tookMs: 42 }]);
});

test("a take that was never read is forgotten with the next one of its log", async () => {
  const { log, events } = observing([]);
  const owner = { podId: "p", host: null, recordId: "r" };
  const lost = await log.take(head, owner);
  const taken = await log.take(lost!, owner);
  await log.recover(lost!);
  expect(events).toEqual([]);
  await log.recover(taken!);
  expect(events).toEqual([{ type: "log_taken", tookMs: 54 }]);
});
