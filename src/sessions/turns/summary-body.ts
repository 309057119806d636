import { AgentFailure } from "./failure.ts";
import {
  type Body,
  bytesOf,
  checkStatus,
  headerOf,
  isPlain,
  notAnAnswer,
  readBody,
} from "./read-body.ts";

const plainBytesMost = 1024 * 1024;

/** A compactor may answer as agents do, or with the summary as it is: text, or JSON that holds it. */
export async function* readSummaryBody(answer: Body, touch: () => void): AsyncGenerator<unknown> {
  const type = headerOf(answer, "content-type")?.split(";")[0]?.trim().toLowerCase();
  if (type !== "text/plain" && type !== "application/json") {
    yield* readBody(answer, touch);
    return;
  }
  checkStatus(answer);
  if (!isPlain(answer)) throw notAnAnswer(answer);
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of bytesOf(answer, plainBytesMost)) {
    touch();
    text += decoder.decode(bytes, { stream: true });
  }
  const summary = type === "text/plain" ? text : summaryIn(text);
  yield { type: "text-start", id: "summary" };
  yield { type: "text-delta", id: "summary", delta: summary };
  yield { type: "text-end", id: "summary" };
  yield { type: "finish" };
}

function summaryIn(json: string): string {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    value = undefined;
  }
  const found = (value as { summary?: unknown } | null | undefined)?.summary ?? value;
  if (typeof found === "string") return found;
  throw new AgentFailure("agent_invalid", 'a summary as JSON is {"summary": "…"}');
}
