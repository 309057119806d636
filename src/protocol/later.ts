import { isJsonObject, type Json } from "../base/json.ts";
import type { Part } from "./message.ts";

/**
 * What a tool call waits for whose output comes after its answer has ended. It is `flotilla.later` in
 * `callProviderMetadata` of the call's part, so that user interfaces can show it.
 */
export type LaterMark = {
  /** The task or flow whose output it gets. */
  readonly task?: string;
  /** The signal whose payload it gets. */
  readonly signal?: string;
  /** What the payload of the signal must be, as JSON Schema. */
  readonly schema?: Json;
  /** About when the call fails if the signal hasn't come. */
  readonly untilMs?: number;
};

/** What a call waits for, or has waited for; undefined if its output was never to come later. */
export function laterOf(part: Part): LaterMark | undefined {
  const metadata = part["callProviderMetadata"];
  const own = isJsonObject(metadata) ? metadata["flotilla"] : undefined;
  const later = isJsonObject(own) ? own["later"] : undefined;
  return isJsonObject(later) ? later : undefined;
}

/** The metadata of a call that waits. */
export function withLaterMark(metadata: unknown, later: LaterMark): object {
  const others = isJsonObject(metadata) ? metadata : {};
  return { ...others, flotilla: { later } };
}

/** A chunk of an agent without `flotilla` in its metadata, which only the runner may put there. */
export function withoutOwnMetadata(chunk: Record<string, unknown>): Record<string, unknown> {
  const metadata = chunk["providerMetadata"];
  if (!isJsonObject(metadata) || metadata["flotilla"] === undefined) return chunk;
  const { flotilla: _, ...others } = metadata;
  return { ...chunk, providerMetadata: others };
}

/** True for a call without a result, which its client, a user or something later is to give. */
export function isOpenCall(part: Part): boolean {
  const { toolCallId, state, providerExecuted } = part;
  if (typeof toolCallId !== "string" || providerExecuted === true) return false;
  return state === "input-available" || state === "approval-requested";
}

/** True for a call whose output is to come later, and has not. */
export function isWaitingCall(part: Part): boolean {
  return part["state"] === "input-available" && laterOf(part) !== undefined;
}
