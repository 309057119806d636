import type { Chunk, Part, UIMessage } from "flotilla";
import { slowly } from "./saying.ts";

/** A call whose answer ends the message: nobody waits for it, and it may come tomorrow. */
export function* order(what: string): Generator<Chunk> {
  const input = { what, price: "3.50 €" };
  yield { type: "tool-input-available", toolCallId: "c1", toolName: "order", input };
  yield { type: "tool-approval-request", toolCallId: "c1", approvalId: "a1" };
}

/** A call that the browser runs: whoever shows it sends what came of it. */
export function* timeZone(): Generator<Chunk> {
  const input = { reason: "to tell the time" };
  yield { type: "tool-input-available", toolCallId: "c2", toolName: "time_zone", input };
}

/** The call at the end of an answer that was decided since. */
export function callIn(message: UIMessage | undefined): Part | undefined {
  if (message?.role !== "assistant") return undefined;
  const last = message.parts.findLast(({ type }) => type !== "step-start");
  const isDecided =
    (last?.type === "tool-order" && last["state"] === "approval-responded") ||
    (last?.type === "tool-time_zone" && last["state"] === "output-available");
  return isDecided ? last : undefined;
}

/** What is said now goes on where the message ended. */
export async function* goOn(call: Part, signal: AbortSignal): AsyncGenerator<Chunk | string> {
  const toolCallId = String(call["toolCallId"]);
  if (call.type === "tool-time_zone") {
    const { timeZone, time } = call["output"] as { timeZone?: string; time?: string };
    yield* slowly(
      time ? `It is ${time} in ${timeZone}.` : "As you like. It is time for tea.",
      signal,
    );
  } else if ((call["approval"] as { approved?: boolean }).approved) {
    yield { type: "tool-output-available", toolCallId, output: { receipt: "№ 4711" } };
    yield* slowly("Done. You will hear from me when it is here.", signal);
  } else {
    yield { type: "tool-output-denied", toolCallId };
    yield* slowly("Then I won't.", signal);
  }
}
