import type { Part, UIMessage } from "../../protocol/message.ts";
import type { EntryNote } from "../../protocol/view.ts";
import type { ContextPolicy, HistoryMode } from "../agents/spec.ts";

/** The newest messages that an agent is to be told, without what its policy leaves out. */
export function applyPolicy(
  messages: readonly UIMessage[],
  { history, context }: { readonly history: HistoryMode; readonly context: ContextPolicy },
): readonly UIMessage[] {
  const left: UIMessage[] = [];
  for (const message of messages) {
    const outcome = noteOf(message)?.outcome;
    const isBroken = outcome === "cut" || outcome === "stopped";
    const parts = message.parts.filter(
      (part) => !isSkipped(part.type, context.skipParts) && !isOpen(part, isBroken),
    );
    // Answers that failed, or of which nothing is left, say nothing to anybody.
    if (parts.every(({ type }) => type === "step-start")) continue;
    left.push(parts.length === message.parts.length ? message : { ...message, parts });
  }
  const most = history.mode === "entire" ? Infinity : history.count;
  const count = Math.min(most, context.lastN ?? Infinity, left.length);
  return left.slice(left.length - count);
}

/** What the log says of a message. */
export function noteOf({ metadata }: UIMessage): EntryNote | undefined {
  return (metadata as { flotilla?: EntryNote } | undefined)?.flotilla;
}

function isSkipped(type: string, skipParts: readonly string[]): boolean {
  return skipParts.some((kind) =>
    kind.endsWith("*") ? type.startsWith(kind.slice(0, -1)) : type === kind,
  );
}

/** A call that never came to its end: models refuse to be told of one without a result. */
function isOpen(part: Part, wasCut: boolean): boolean {
  if (typeof part["toolCallId"] !== "string") return false;
  return part["state"] === "input-streaming" || (wasCut && part["state"] === "input-available");
}
