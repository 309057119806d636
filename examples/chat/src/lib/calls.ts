import type { UIMessage } from "@ai-sdk/react";

/** A call of a tool, as messages have it. */
export type Call = {
  readonly toolCallId: string;
  readonly name: string;
  readonly state: string;
  readonly input: unknown;
  readonly output: unknown;
  readonly errorText: string | undefined;
  readonly approval:
    | { readonly id: string; readonly approved?: boolean; readonly reason?: string }
    | undefined;
};

/** The call that a part of a message is, if it is one. */
export function callOf(part: UIMessage["parts"][number]): Call | undefined {
  const isCall = part.type === "dynamic-tool" || part.type.startsWith("tool-");
  if (!isCall || !("toolCallId" in part)) return undefined;
  const fields = part as Readonly<Record<string, unknown>>;
  const name = part.type === "dynamic-tool" ? String(fields["toolName"]) : part.type.slice(5);
  return {
    toolCallId: part.toolCallId,
    name,
    state: String(fields["state"]),
    input: fields["input"],
    output: fields["output"],
    errorText: fields["errorText"] as string | undefined,
    approval: fields["approval"] as Call["approval"],
  };
}

/** The tool that runs in the browser, and only if its user wants it. */
export const timeZoneTool = "time_zone";

/**
 * Whether the last answer ended with calls that are all decided now, so that its agent is to go on. Once
 * it has, something is behind them.
 */
export function isDecided({ messages }: { messages: readonly UIMessage[] }): boolean {
  const last = messages.at(-1);
  if (last?.role !== "assistant") return false;
  const part = last.parts.findLast(({ type }) => type !== "step-start");
  const call = part && callOf(part);
  if (!call || last.parts.some((each) => isOpen(callOf(each)))) return false;
  return call.state === "approval-responded" || isRunHere(call);
}

function isOpen(call: Call | undefined): boolean {
  if (!call) return false;
  if (call.state === "approval-requested") return true;
  return call.name === timeZoneTool && call.state === "input-available";
}

function isRunHere({ name, state }: Call): boolean {
  return name === timeZoneTool && (state === "output-available" || state === "output-error");
}
