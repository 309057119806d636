import { defaultMaxDepth, isJsonObject, type Json } from "../../base/json.ts";
import type { Chunk } from "../chunk.ts";
import { jsonBytes, storable } from "../limits.ts";
import { applyJsonPatch } from "./json-patch.ts";

/** Reads the events of an agent that speaks AG-UI as chunks. */
export type AgUiReader = {
  /** The chunks that an event means: none for one that is unknown, as of a later version. */
  push(event: unknown): readonly Chunk[] | { readonly error: string };
};

type Fields = { readonly [field: string]: unknown };
type Kind = "text" | "reasoning" | "call";

// A message may have as much.
const maxHeldBytes = 1024 * 1024;
const major = "1";

/** The data part of an answer with the state that an agent has told last. */
export const statePart = "data-agui-state";

/**
 * Holds an agent to the order that AG-UI has: a run begins once and ends once, and nothing is told of what
 * wasn't begun. What it tells for other readers of its protocol, such as snapshots of messages, is left out:
 * the log has them.
 */
export function createAgUiReader(): AgUiReader {
  const open = { text: new Set<string>(), reasoning: new Set<string>(), call: new Set<string>() };
  /** Messages of other roles, which are no part of an answer. */
  const others = new Set<string>();
  const inputs = new Map<string, string>();
  const calls = new Set<string>();
  let heldBytes = 0;
  let stage: "before" | "running" | "over" = "before";
  /** What a chunk event has begun, which no event ends. */
  let implied: { kind: Kind; id: string } | undefined;
  let state: Json = null;

  const hold = (value: unknown) => {
    heldBytes += jsonBytes(value);
    if (heldBytes > maxHeldBytes)
      throw new Refusal(`tells more than ${maxHeldBytes} bytes of calls and state`);
  };
  const begin = (kind: Kind, id: string, toolName?: string): Chunk[] => {
    if (open[kind].has(id)) throw new Refusal(`begins ${JSON.stringify(id.slice(0, 80))} twice`);
    open[kind].add(id);
    if (kind !== "call") return [{ type: `${kind}-start`, id }];
    inputs.set(id, "");
    calls.add(id);
    return [{ type: "tool-input-start", toolCallId: id, toolName, dynamic: true }];
  };
  const more = (kind: Kind, id: string, delta: string): Chunk[] => {
    if (!open[kind].has(id))
      throw new Refusal(`goes on with ${JSON.stringify(id.slice(0, 80))}, which isn't begun`);
    if (delta === "") return [];
    if (kind !== "call") return [{ type: `${kind}-delta`, id, delta }];
    hold(delta);
    inputs.set(id, inputs.get(id)! + delta);
    return [{ type: "tool-input-delta", toolCallId: id, inputTextDelta: delta }];
  };
  const end = (kind: Kind, id: string, names: ReadonlyMap<string, string>): Chunk[] => {
    if (!open[kind].delete(id))
      throw new Refusal(`ends ${JSON.stringify(id.slice(0, 80))}, which isn't begun`);
    if (kind !== "call") return [{ type: `${kind}-end`, id }];
    const call = { toolCallId: id, toolName: names.get(id), dynamic: true };
    const text = inputs.get(id)!;
    inputs.delete(id);
    const input = text === "" ? {} : parsed(text);
    if (input !== undefined) return [{ type: "tool-input-available", ...call, input }];
    return [{ type: "tool-input-error", ...call, input: text, errorText: "its input isn't JSON" }];
  };
  const names = new Map<string, string>();

  /** A chunk event begins what it is about, if nothing has, and ends what another has begun. */
  const chunked = (kind: Kind, event: Fields, idField: string): Chunk[] => {
    const id = optionalText(event, idField) ?? (implied?.kind === kind ? implied.id : undefined);
    if (id === undefined) throw new Refusal(`needs ${idField} in its first ${text(event, "type")}`);
    const chunks: Chunk[] = [];
    if (implied?.id !== id || implied.kind !== kind) {
      chunks.push(...endImplied());
      if (kind === "call") names.set(id, text(event, "toolCallName"));
      chunks.push(...begin(kind, id, names.get(id)));
      implied = { kind, id };
    }
    return [...chunks, ...more(kind, id, optionalText(event, "delta") ?? "")];
  };
  const endImplied = (): Chunk[] => {
    if (!implied) return [];
    const { kind, id } = implied;
    implied = undefined;
    return end(kind, id, names);
  };

  const finish = (event: Fields): Chunk[] => {
    stage = "over";
    const { outcome } = event;
    const kind = isJsonObject(outcome) ? outcome["type"] : "success";
    if (kind === "cancelled") return [{ type: "abort", reason: "the agent cancelled its run" }];
    const interrupts = isJsonObject(outcome) && kind === "interrupt" ? outcome["interrupts"] : [];
    const asked = Array.isArray(interrupts) ? interrupts.filter(isJsonObject).flatMap(asking) : [];
    return [...asked, { type: "finish", finishReason: asked.length > 0 ? "tool-calls" : "stop" }];
  };
  /** A call that waits for a decision; of an interrupt without a call, one is made to hold it. */
  const asking = (interrupt: Fields): Chunk[] => {
    const approvalId = text(interrupt, "id");
    const of = optionalText(interrupt, "toolCallId");
    const reason = optionalText(interrupt, "message") ?? optionalText(interrupt, "reason");
    const toolCallId = of !== undefined && calls.has(of) ? of : `interrupt-${approvalId}`;
    const { responseSchema } = interrupt;
    const input = { reason: reason ?? null, ...(responseSchema != null && { responseSchema }) };
    const made: Chunk[] =
      toolCallId === of
        ? []
        : [
            {
              type: "tool-input-available",
              toolCallId,
              toolName: "interrupt",
              dynamic: true,
              input,
            },
          ];
    const request = { type: "tool-approval-request", approvalId, toolCallId };
    return [...made, { ...request, ...(reason !== undefined && { reason }) }];
  };

  const read = (event: Fields): Chunk[] => {
    const type = text(event, "type");
    if (stage === "over") throw new Refusal(`goes on with ${type} after its end`);
    if (stage === "before" && type !== "RUN_STARTED" && type !== "RUN_ERROR")
      throw new Refusal(`begins with ${type}, and not with RUN_STARTED`);
    const isChunk = type.endsWith("_CHUNK");
    const before = isChunk ? [] : endImplied();
    return [...before, ...readOne(type, event)];
  };
  const readOne = (type: string, event: Fields): Chunk[] => {
    switch (type) {
      case "RUN_STARTED": {
        if (stage !== "before") throw new Refusal("begins its run twice");
        const version = optionalText(event, "protocolVersion") ?? major;
        if (version.split(".")[0] !== major)
          throw new Refusal(`speaks version ${version.slice(0, 20)}, not ${major}`);
        stage = "running";
        return [{ type: "start" }];
      }
      case "RUN_FINISHED":
        return finish(event);
      case "RUN_ERROR":
        stage = "over";
        return [{ type: "error", errorText: text(event, "message") }];
      case "TEXT_MESSAGE_START": {
        const id = text(event, "messageId");
        if ((event["role"] ?? "assistant") === "assistant") return begin("text", id);
        others.add(id);
        return [];
      }
      case "TEXT_MESSAGE_CONTENT":
      case "TEXT_MESSAGE_END": {
        const id = text(event, "messageId");
        if (others.has(id)) return [];
        return type === "TEXT_MESSAGE_END"
          ? end("text", id, names)
          : more("text", id, text(event, "delta"));
      }
      case "TEXT_MESSAGE_CHUNK":
        return chunked("text", event, "messageId");
      case "REASONING_MESSAGE_START":
        return begin("reasoning", text(event, "messageId"));
      case "REASONING_MESSAGE_CONTENT":
        return more("reasoning", text(event, "messageId"), text(event, "delta"));
      case "REASONING_MESSAGE_END":
        return end("reasoning", text(event, "messageId"), names);
      case "REASONING_MESSAGE_CHUNK":
        return chunked("reasoning", event, "messageId");
      case "TOOL_CALL_START": {
        const id = text(event, "toolCallId");
        names.set(id, text(event, "toolCallName"));
        return begin("call", id, names.get(id));
      }
      case "TOOL_CALL_ARGS":
        return more("call", text(event, "toolCallId"), text(event, "delta"));
      case "TOOL_CALL_END":
        return end("call", text(event, "toolCallId"), names);
      case "TOOL_CALL_CHUNK":
        return chunked("call", event, "toolCallId");
      case "TOOL_CALL_RESULT": {
        const { content } = event;
        const output = typeof content === "string" ? (parsed(content) ?? content) : content;
        const toolCallId = text(event, "toolCallId");
        return [{ type: "tool-output-available", toolCallId, output: output ?? null }];
      }
      case "STATE_SNAPSHOT":
        hold(event["snapshot"]);
        state = shallow(event["snapshot"] ?? null);
        return [{ type: statePart, id: "state", data: state }];
      case "STATE_DELTA": {
        hold(event["delta"]);
        const delta = shallow(event["delta"] ?? null);
        // What the change copies is looked at before, because the size of a state that has doubled is too late.
        const next = applyJsonPatch(state, delta, { maxBytes: maxHeldBytes });
        if ("error" in next) throw new Refusal(next.error);
        hold(next.value);
        state = shallow(next.value);
        return [{ type: statePart, id: "state", data: state }];
      }
      case "CUSTOM":
        return [
          {
            type: "data-agui-custom",
            data: { name: text(event, "name"), value: event["value"] ?? null },
          },
        ];
      default:
        return [];
    }
  };

  return {
    push(event) {
      try {
        return read(isJsonObject(event) ? event : {});
      } catch (error) {
        if (error instanceof Refusal) return { error: `the agent ${error.message}` };
        throw error;
      }
    },
  };
}

/** Cut where it nests too deeply to be stored, so that it can be copied without end of the stack. */
function shallow(value: unknown): Json {
  return storable(value, defaultMaxDepth) as Json;
}

class Refusal extends Error {}

function text(event: Fields, field: string): string {
  const value = Object.hasOwn(event, field) ? event[field] : undefined;
  if (typeof value === "string") return value;
  const { type } = event;
  const name = typeof type === "string" ? type.slice(0, 40) : "an event";
  throw new Refusal(`sends ${name} whose ${field} isn't text`);
}

function optionalText(event: Fields, field: string): string | undefined {
  return event[field] == null ? undefined : text(event, field);
}

function parsed(json: string): Json | undefined {
  try {
    return JSON.parse(json) as Json;
  } catch {
    return undefined;
  }
}
