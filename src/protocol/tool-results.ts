import type { Part, ToolResult } from "./message.ts";

/**
 * Parts with what clients said of their calls. The first word on a call counts: one that has its
 * output, or was allowed or refused already, stays as it is, whoever else answers.
 */
export function applyToolResults(parts: readonly Part[], results: readonly ToolResult[]): Part[] {
  const applied = [...parts];
  for (const result of results) {
    // The same id may stand for calls in several steps; it is the last one that waits.
    const index = applied.findLastIndex((part) => isAbout(part, result));
    const part = applied[index];
    if (part !== undefined) applied[index] = withResult(part, result);
  }
  return applied;
}

function isAbout(part: Part, result: ToolResult): boolean {
  if (part.type !== "dynamic-tool" && !part.type.startsWith("tool-")) return false;
  if (part["toolCallId"] !== result.toolCallId) return false;
  const approvalId = "approvalId" in result ? result.approvalId : undefined;
  const approval = part["approval"] as { readonly id?: unknown } | undefined;
  return approvalId === undefined || approval?.id === approvalId;
}

function withResult(part: Part, result: ToolResult): Part {
  const state = part["state"];
  const approval = part["approval"] as { readonly approved?: unknown } | undefined;
  if ("approved" in result) {
    if (state !== "approval-requested") return part;
    const { approved, reason } = result;
    const answered = { ...approval, approved, ...(reason === undefined ? {} : { reason }) };
    return { ...part, state: "approval-responded", approval: answered };
  }
  if (
    state !== "input-available" &&
    state !== "approval-requested" &&
    state !== "approval-responded"
  ) {
    return part;
  }
  // A call that was never allowed but has an output doesn't wait for anybody any more.
  const { approval: _, ...call } = part;
  const allowed: Part = approval?.approved === true ? part : call;
  return "output" in result
    ? { ...allowed, state: "output-available", output: result.output }
    : { ...allowed, state: "output-error", errorText: result.errorText };
}
