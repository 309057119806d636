import { expect, test } from "vitest";
import { textOf } from "../protocol/message.ts";
import { agent } from "../sessions/agents/agent.ts";
import { testFlotilla } from "./test-flotilla.ts";

test("a session that is being summed up is forked, and neither waits for the other", async () => {
  const summing = Promise.withResolvers<void>();
  const done = Promise.withResolvers<void>();
  let isHeld = true;
  const told: string[][] = [];
  const teller = agent(
    "teller",
    {
      compaction: {
        fn: async () => {
          summing.resolve();
          if (isHeld) await done.promise;
          return "what was said before";
        },
      },
    },
    ({ messages }) => {
      told.push(messages.map(textOf));
      return `answer ${told.length}`;
    },
  );
  await using t = await testFlotilla({ use: [teller] });
  const chat = await t.sessions.create(teller, { user: "ada" });
  await chat.send("one");
  await t.advance(1_000);
  const compacting = chat.compact();
  await summing.promise;
  expect((await chat.view()).state).toMatchObject({ state: "compacting" });
  const fork = await chat.fork({ atSeq: 2, users: ["ada"] });
  await fork.send("two");
  await expect.poll(() => told.length).toBe(2);
  // The summary comes later than its place, though it is of entries that the fork has.
  expect(told.at(-1)).toEqual(["one", "answer 1", "two"]);
  isHeld = false;
  done.resolve();
  await compacting;
  await t.advance(1_000);
  await chat.send("three");
  await t.advance(1_000);
  expect(told.at(-1)).toEqual(["what was said before", "three"]);
  // A whole log, and the summary is the parent's alone.
  const { entries } = await fork.entries();
  expect(entries.map(({ seq, kind, parts }) => [seq, kind, textOf({ parts })])).toEqual([
    [1, "message", "one"],
    [2, "message", "answer 1"],
    [3, "message", "two"],
    [4, "message", "answer 2"],
  ]);
  const parent = await chat.entries();
  expect(parent.entries.map(({ seq, kind }) => [seq, kind])).toEqual([
    [1, "message"],
    [2, "message"],
    [3, "summary"],
    [4, "message"],
    [5, "message"],
  ]);
});
