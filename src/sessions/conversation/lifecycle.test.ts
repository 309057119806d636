import { expect, test } from "vitest";
import type { Command } from "./command.ts";
import { decideCommand } from "./decide.ts";
import { compacted, plain, startConversation } from "../contract/conversation-harness.ts";

const created: Extract<Command, { type: "create" }> = {
  type: "create",
  sessionId: "s",
  tenant: "t",
  agents: ["helper"],
  users: ["ann"],
  metadata: null,
};

test("a session that is created again is the one that is there, unless it should be another", () => {
  const talk = startConversation();
  talk.say("one");
  const again = talk.ask({ ...created, users: ["bob"] });
  expect(again).toMatchObject({
    answer: { duplicate: true, lastSeq: 1 },
    header: { users: ["ann"] },
  });
  expect(talk.ask({ ...created, agents: ["other"] })).toMatchObject({ code: "conflict" });
  expect(talk.ask({ ...created, tenant: "another" })).toMatchObject({ code: "conflict" });
});

test("the id of a deleted session stays taken, and none of its messages is left", () => {
  const talk = startConversation();
  talk.say("a secret");
  talk.say("another");
  talk.ask({ type: "delete" });
  expect(talk.effects).toMatchObject([{ type: "abort_turn", keep: false }]);
  expect(talk.header).toMatchObject({ status: "deleted", lastSeq: 2, epoch: 1, work: null });
  expect(JSON.stringify(talk.header)).not.toMatch(/secret|another|helper|ann/);
  expect(talk.ask(created)).toMatchObject({ type: "refused", code: "conflict" });
  expect(talk.ask({ ...created, agents: [] })).toMatchObject({ code: "conflict" });
});

test("only participants have a place up to which they have read, within what there is", () => {
  const talk = startConversation();
  talk.say("one");
  const readTo = (user: string, seq: number) => talk.ask({ type: "read", user, seq });
  expect(readTo("ann", 1)).toMatchObject({ read: { user: "ann", seq: 1 } });
  expect(readTo("bob", 1)).not.toHaveProperty("read");
  expect(readTo("ann", 2)).toMatchObject({ type: "refused", code: "invalid_input" });
});

test("metadata has a version, by which a change that didn't see another is refused", () => {
  const talk = startConversation();
  const set = (ifVersion?: number) =>
    talk.ask({ type: "metadata", metadata: "{}", ...(ifVersion !== undefined && { ifVersion }) });
  expect(set(0)).toMatchObject({ metadata: "{}", answer: { metadataVersion: 1 } });
  expect(set(0)).toMatchObject({ type: "refused", code: "conflict" });
  expect(set()).toMatchObject({ answer: { metadataVersion: 2 } });
});

test("the users are changed as a set, and bounded", () => {
  const talk = startConversation();
  const { header } = talk;
  talk.ask({ type: "members", addUsers: ["ann"], removeUsers: ["nobody"] });
  expect(talk.header).toBe(header);
  talk.ask({ type: "members", addUsers: ["bob", "bob"], removeUsers: ["ann"] });
  expect(talk.header.users).toEqual(["bob"]);
  const many = Array.from({ length: 101 }, (_, at) => `user-${at}`);
  expect(talk.ask({ type: "members", addUsers: many })).toMatchObject({ code: "invalid_input" });
  expect(talk.ask({ type: "members", agents: many })).toMatchObject({ code: "invalid_input" });
});

test("a session without agents is a log", () => {
  const talk = startConversation({});
  expect(talk.say("one")).toMatchObject({ answer: { seq: 1 }, effects: [] });
  expect(talk.header).toMatchObject({ lastSeq: 1, work: null });
  expect(talk.say("two", { to: "helper" })).toMatchObject({ code: "invalid_input" });
});

test("archiving ends a compaction, and unarchiving lets the conversation go on", () => {
  const talk = startConversation({ helper: compacted });
  talk.say("one", { tokens: 70 });
  talk.finish("first");
  talk.say("two");
  talk.ask({ type: "archive" });
  expect(talk.effects).toMatchObject([{ type: "abort_turn", epoch: 2, keep: false }]);
  expect(talk.entries.at(-1)).toMatchObject({ outcome: "stopped", author: "helper" });
  talk.ask({ type: "unarchive" });
  talk.say("three");
  expect(talk.header.work).not.toBeNull();
});

test("a turn that ends after its session was unarchived is followed by what waited", () => {
  const talk = startConversation({ helper: plain });
  talk.say("one");
  talk.say("two");
  talk.ask({ type: "archive" });
  talk.ask({ type: "unarchive" });
  talk.finish("half");
  expect(talk.header.work).toMatchObject({ type: "turn", epoch: 2 });
});

test("a pod whose clock is behind doesn't make a session appear older", () => {
  const talk = startConversation();
  talk.nowMs = 5_000;
  talk.say("one");
  talk.nowMs = 4_000;
  talk.finish("first");
  expect(talk.header).toMatchObject({ createdAtMs: 1_000, activeAtMs: 5_000 });
});

test("no turn goes to an agent that isn't there", () => {
  const facts = { nowMs: 0, newId: () => "id", agent: () => undefined, runnerFor: () => null };
  const named = { sessionId: "s", tenant: "t", agents: ["ghost"], users: [], metadata: null };
  expect(decideCommand(undefined, { type: "create", ...named }, facts)).toMatchObject({
    type: "refused",
    code: "not_found",
  });
  const made = decideCommand(undefined, { type: "create", ...named, agents: [] }, facts);
  if (made.type !== "decided") throw new Error("a session without agents was refused");
  expect(decideCommand(made.header, { type: "members", agents: ["ghost"] }, facts)).toMatchObject({
    type: "refused",
    code: "not_found",
  });
});
