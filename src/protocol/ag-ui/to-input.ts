import { isJsonObject } from "../../base/json.ts";
import type { AgentRequest } from "../agent-http.ts";
import { type Part, textOf, type UIMessage } from "../message.ts";
import { statePart } from "./to-chunks.ts";

type Message = { readonly id: string; readonly role: string; readonly [field: string]: unknown };

/** What an agent that speaks AG-UI is asked: the same turn is the same run. */
export function runInputOf(request: AgentRequest): object {
  const { messages, flotilla } = request;
  const { sessionId, epoch } = flotilla;
  const asked = messages.findLast(({ role }) => role === "user");
  const metadata = isJsonObject(asked?.metadata) ? asked.metadata["agUi"] : undefined;
  const given = isJsonObject(metadata) ? metadata : {};
  const last = messages.at(-1);
  const resume = last?.role === "assistant" ? last.parts.flatMap(decisionOf) : [];
  const props = isJsonObject(given["forwardedProps"]) ? given["forwardedProps"] : {};
  return {
    threadId: sessionId,
    runId: `${sessionId}:${epoch}`,
    protocolVersion: "1.0",
    messages: messages.flatMap(messagesOf),
    tools: listIn(given["tools"]),
    context: listIn(given["context"]),
    state: given["state"] ?? stateIn(messages) ?? {},
    forwardedProps: { ...props, flotilla },
    ...(resume.length > 0 && { resume }),
  };
}

function messagesOf(message: UIMessage): Message[] {
  const { id, role } = message;
  if (role === "system") return [{ id, role, content: textOf(message) }];
  if (role === "user") return [{ id, role, content: contentOf(message) }];
  return answerMessages(message);
}

/** Text as text, which every agent takes; with files as parts. */
function contentOf(message: UIMessage): unknown {
  const parts = message.parts.flatMap((part): object[] => {
    if (part.type === "text") return [{ type: "text", text: part["text"] }];
    const { url, mediaType } = part;
    if (part.type !== "file" || typeof url !== "string" || typeof mediaType !== "string") return [];
    const kind = /^(image|audio|video)\//.exec(mediaType)?.[1] ?? "document";
    const [, value] = /^data:[^,]*;base64,(.*)$/s.exec(url) ?? [];
    const source =
      value === undefined
        ? { type: "url", value: url, mimeType: mediaType }
        : { type: "data", value, mimeType: mediaType };
    return [{ type: kind, source }];
  });
  return parts.every((part) => "text" in part) ? textOf(message) : parts;
}

/** An answer as its texts with their calls, each followed by the results. */
function answerMessages({ id, parts }: UIMessage): Message[] {
  const messages: Message[] = [];
  let text = "";
  let calls: { id: unknown; type: "function"; function: object }[] = [];
  let results: Message[] = [];
  const flush = () => {
    if (text === "" && calls.length === 0) return;
    const own = messages.length === 0 ? id : `${id}#${messages.length}`;
    const toolCalls = calls.length > 0 ? { toolCalls: calls } : {};
    messages.push({ id: own, role: "assistant", content: text, ...toolCalls }, ...results);
    [text, calls, results] = ["", [], []];
  };
  for (const part of parts) {
    if (part.type === "text") {
      if (calls.length > 0) flush();
      text += String(part["text"]);
    }
    const { toolCallId } = part;
    if (typeof toolCallId !== "string" || part["state"] === "input-streaming") continue;
    const name = part.type === "dynamic-tool" ? part["toolName"] : part.type.slice("tool-".length);
    const args = JSON.stringify(part["input"] ?? {});
    calls.push({ id: toolCallId, type: "function", function: { name, arguments: args } });
    const result = resultOf(part);
    if (result) results.push({ id: `${id}#${toolCallId}`, role: "tool", toolCallId, ...result });
  }
  flush();
  return messages;
}

function resultOf({ state, output, errorText }: Part): object | undefined {
  if (state === "output-available")
    return { content: typeof output === "string" ? output : JSON.stringify(output ?? null) };
  if (state === "output-error") return { content: String(errorText), error: String(errorText) };
  return state === "output-denied" ? { content: "denied", error: "denied" } : undefined;
}

function decisionOf({ approval }: Part): object[] {
  if (!isJsonObject(approval) || typeof approval["approved"] !== "boolean") return [];
  const { id: interruptId, approved, reason } = approval;
  const payload = { approved, ...(reason !== undefined && { reason }) };
  return [{ interruptId, status: "resolved", payload }];
}

/** The state that the agent has told last. */
function stateIn(messages: readonly UIMessage[]): unknown {
  const parts = messages.flatMap((message) => message.parts);
  return parts.findLast(({ type }) => type === statePart)?.["data"];
}

function listIn(value: unknown): unknown[] {
  return Array.isArray(value) ? (value as unknown[]) : [];
}
