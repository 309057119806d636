import { isOpenCall, isWaitingCall, laterOf } from "../../protocol/later.ts";
import type { Part, ToolResult } from "../../protocol/message.ts";
import type { Header, PendingApproval } from "./header.ts";

/** Bounds the header. More calls that wait at once are the work of no person. */
export const maxApprovals = 16;
const maxTextChars = 500;

/** The calls that wait, as far as is known. */
export function approvalsOf({ approvals, lastSeq }: Header): readonly PendingApproval[] {
  return approvals !== undefined && approvals.seq === lastSeq ? approvals.calls : [];
}

/** What the header says of approvals after another entry: what it said before, if that was known. */
export function approvalsAt(header: Header, seq: number): Pick<Header, "approvals"> {
  if (header.approvals === undefined) return {};
  return { approvals: { seq, calls: approvalsOf(header) } };
}

/**
 * The header after an answer was stored: the calls of its message are those that the answer has open. One
 * that was open before waits since then.
 */
export function withAnswer(
  header: Header,
  { messageId, parts, nowMs }: { messageId: string; parts: readonly Part[]; nowMs: number },
): Header {
  const known = approvalsOf(header);
  const others = known.filter((each) => each.messageId !== messageId);
  const open = parts.flatMap((part) => {
    const call = callOf(part, messageId, nowMs);
    if (!call) return [];
    const before = known.find(
      (each) => each.messageId === messageId && each.toolCallId === call.toolCallId,
    );
    return [before ? { ...call, sinceMs: before.sinceMs } : call];
  });
  const calls = [...others, ...open].slice(0, maxApprovals);
  if (calls.length === 0 && header.approvals === undefined) return header;
  return { ...header, approvals: { seq: header.lastSeq, calls } };
}

/** The header after results were stored for calls of a message. */
export function withResults(
  header: Header,
  messageId: string,
  results: readonly ToolResult[],
): Header {
  if (header.approvals === undefined) return header;
  const isDecided = (call: PendingApproval) =>
    call.messageId === messageId && results.some((result) => isAbout(result, call));
  const calls = approvalsOf(header).filter((call) => !isDecided(call));
  return { ...header, approvals: { seq: header.lastSeq, calls } };
}

function isAbout(result: ToolResult, { toolCallId, approvalId }: PendingApproval): boolean {
  if (result.toolCallId !== toolCallId) return false;
  const given = "approvalId" in result ? result.approvalId : undefined;
  return given === undefined || approvalId === undefined || given === approvalId;
}

function callOf(part: Part, messageId: string, nowMs: number): PendingApproval | undefined {
  if (!isOpenCall(part)) return undefined;
  const toolCallId = part["toolCallId"] as string;
  const tool = toolOf(part);
  if (toolCallId.length > maxTextChars || tool.length > maxTextChars) return undefined;
  const base = { messageId, toolCallId, tool, sinceMs: nowMs };
  if (part["state"] === "approval-requested") {
    const { id } = (part["approval"] ?? {}) as { readonly id?: unknown };
    return { ...base, ...(isShort(id) && { approvalId: id }) };
  }
  const { signal, untilMs } = (isWaitingCall(part) && laterOf(part)) || {};
  if (!isShort(signal)) return undefined;
  return { ...base, signal, ...(typeof untilMs === "number" && { untilMs }) };
}

function toolOf(part: Part): string {
  const { type, toolName } = part;
  return type === "dynamic-tool" ? String(toolName) : type.slice("tool-".length);
}

function isShort(value: unknown): value is string {
  return typeof value === "string" && value.length <= maxTextChars;
}
