import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { guide } from "../../../examples/demo/agents.ts";
import { transcribe } from "../../../examples/demo/tasks.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { type Part, textOf } from "../../../src/protocol/message.ts";
import type { Pod } from "../../../src/runtime/pod.ts";
import { startPod } from "../../../src/runtime/start-pod.ts";

let folder: string;
let pod: Pod;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-guide-"));
  const store = `sqlite:${join(folder, "test.db")}`;
  pod = await startPod({ store, use: [guide, transcribe], log: silentLogger, dataDir: false });
});
afterAll(async () => {
  await pod.stop();
  rmSync(folder, { recursive: true, force: true });
});

const begin = () => pod.sessions.create(guide, { user: "ada" });
type Chat = Awaited<ReturnType<typeof begin>>;

/** Says what came of a call, and gives the message as its agent then went on with it. */
async function decide(chat: Chat, messageId: string, result: object) {
  const { seq } = await chat.toolResult(messageId, [result as never]);
  for await (const event of chat.events({ after: seq })) {
    if (event.type === "entry" && event.entry.messageId === messageId) return event.entry;
  }
  throw new Error("the session has ended");
}
const call = (parts: readonly Part[]) => parts.find(({ type }) => type.startsWith("tool-"));

describe("the guide of the demo", () => {
  test.each([
    [true, "output-available", "Done."],
    [false, "output-denied", "Then I won't."],
  ])("orders only with the user's approval (%s)", async (approved, state, says) => {
    const chat = await begin();
    const asked = await chat.ask("Order a coffee");
    expect(call(asked.parts)).toMatchObject({ type: "tool-order", state: "approval-requested" });
    const result = { toolCallId: "c1", approvalId: "a1", approved };
    const whole = await decide(chat, asked.messageId, result);
    expect(call(whole.parts)).toMatchObject({ state });
    expect(textOf(whole)).toContain(says);
    // Its next answer is about what is said next.
    expect(textOf(await chat.ask("why?"))).toContain("Because");
  });

  test.each([
    [{ timeZone: "Europe/Rome", time: "10:24" }, "It is 10:24 in Europe/Rome."],
    [{ refused: true }, "As you like."],
  ])("has the browser show the time (%j)", async (output, says) => {
    const chat = await begin();
    const asked = await chat.ask("What time is it?");
    expect(call(asked.parts)).toMatchObject({ type: "tool-time_zone", state: "input-available" });
    const whole = await decide(chat, asked.messageId, { toolCallId: "c2", output });
    expect(textOf(whole)).toContain(says);
  });

  test("starts a task, thinks, and fails on request", async () => {
    const chat = await begin();
    const work = await chat.ask("Do some work for me");
    const { taskId } = call(work.parts)!["output"] as { taskId: string };
    expect(await pod.tasks.get(taskId)).toMatchObject({ name: "transcribe" });
    expect((await chat.ask("why?")).parts[0]).toMatchObject({ type: "reasoning" });
    const failed = await chat.ask("Fail, please");
    expect(failed).toMatchObject({ outcome: "cut", error: { code: "agent_failed" } });
    expect(failed.error!.message).toContain("You asked me to fail");
  });
});
