import type { Json } from "../../base/json.ts";
import type { Part, ToolResult, UIMessage } from "../../protocol/message.ts";

type Fields = { readonly [name: string]: unknown };

const stateOrder: { readonly [state: string]: number } = {
  "input-available": 1,
  "approval-requested": 1,
  "approval-responded": 2,
  "output-available": 3,
  "output-error": 3,
};

/**
 * The page's decisions on tool calls that aren't in the log yet: outputs of tools that it ran, and
 * approvals of its user.
 */
export function decisionsIn(local: UIMessage, stored: UIMessage | undefined): ToolResult[] {
  return callsOf(local).flatMap((part) => {
    const known = callsOf(stored).findLast((each) => each["toolCallId"] === part["toolCallId"]);
    return known && isAhead(part, known) ? [resultOf(part)] : [];
  });
}

/** Whether the page has decisions that aren't in the log yet. */
export function hasDecisions(local: UIMessage, stored: UIMessage): boolean {
  return decisionsIn(local, stored).length > 0;
}

/** The same decisions have the same id, so that sending them twice stores them once. */
export function toolResultId(messageId: string, results: readonly ToolResult[]): string {
  return `t-${hash(JSON.stringify([messageId, results]))}`;
}

/** Whether two JSON values are equal. Undefined counts as absent. */
export function isEqual(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return false;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const [a, b] = [one as Fields, other as Fields];
  for (const name in a) if (a[name] !== undefined && !isEqual(a[name], b[name])) return false;
  for (const name in b) if (b[name] !== undefined && a[name] === undefined) return false;
  return true;
}

function callsOf(message: UIMessage | undefined): Part[] {
  return (message?.parts ?? []).filter(({ toolCallId }) => typeof toolCallId === "string");
}

function isAhead(part: Part, known: Part): boolean {
  const [is, was] = [
    stateOrder[String(part["state"])] ?? 0,
    stateOrder[String(known["state"])] ?? 4,
  ];
  return is > 1 && was >= 1 && is > was;
}

function resultOf(part: Part): ToolResult {
  const toolCallId = part["toolCallId"] as string;
  if (part["state"] === "output-available") {
    return { toolCallId, output: (part["output"] ?? null) as Json };
  }
  if (part["state"] === "output-error") {
    return { toolCallId, errorText: String(part["errorText"]) };
  }
  const { id, approved, reason } = part["approval"] as {
    readonly id?: string;
    readonly approved: boolean;
    readonly reason?: string;
  };
  return {
    toolCallId,
    approved,
    ...(id !== undefined && { approvalId: id }),
    ...(reason !== undefined && { reason }),
  };
}

/** A 53-bit hash: enough to distinguish the decisions on one message. */
function hash(text: string): string {
  let [high, low] = [0xdeadbeef, 0x41c6ce57];
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    high = Math.imul(high ^ code, 2_654_435_761);
    low = Math.imul(low ^ code, 1_597_334_677);
  }
  return `${(high >>> 0).toString(36)}${(low >>> 0).toString(36)}`;
}
