import type { AgentRequest } from "../../protocol/agent-http.ts";
import type { Chunk } from "../../protocol/chunk.ts";
import { createBodyReader } from "../../protocol/stream.ts";
import { signatureHeaders } from "../../sessions/turns/call-url.ts";

export const secretOf = (byte: number) => `whsec_${Buffer.alloc(32, byte).toString("base64")}`;
export const secret = secretOf(1);

/** What a pod would send. */
export function agentRequest(facts: Partial<AgentRequest> = {}): AgentRequest {
  return {
    id: "s-1",
    messages: [{ id: "m-1", role: "user", parts: [{ type: "text", text: "grüße 🚢" }] }],
    trigger: "submit-message",
    flotilla: {
      sessionId: "s-1",
      tenant: "main",
      agent: "helper",
      epoch: 3,
      attempt: 1,
      user: "ada",
      seq: 7,
    },
    ...facts,
  };
}

export type RequestOptions = {
  readonly body?: string;
  readonly secrets?: readonly string[];
  readonly nowMs?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  readonly url?: string;
};

/** A request as a pod signs it, and what is changed about it. */
export function requestOf(asking: RequestOptions = {}): Request {
  const { body = JSON.stringify(agentRequest()), url = "http://agents.example/chat" } = asking;
  return new Request(url, {
    method: "POST",
    headers: headersOf({ ...asking, body }),
    body,
    ...(asking.signal && { signal: asking.signal }),
  });
}

export function headersOf(
  asking: RequestOptions & { readonly body: string },
): Record<string, string> {
  const { body, secrets = [secret], nowMs = Date.now(), headers } = asking;
  const signed = signatureHeaders({ webhookId: "s-1:3", nowMs, body, secrets });
  return { "content-type": "application/json", ...signed, ...headers };
}

/** What a stream says, and whether it has said that it is done. */
export async function readAnswer(response: Response): Promise<{ chunks: Chunk[]; done: boolean }> {
  const reader = createBodyReader({ format: "sse" });
  const bytes = new Uint8Array(await response.arrayBuffer());
  const items = [...reader.push(bytes), ...reader.end()];
  return {
    chunks: items.flatMap((item) => (item.type === "chunk" ? [item.chunk] : [])),
    done: items.at(-1)?.type === "done",
  };
}

export async function errorIn(response: Response): Promise<{ code: string; message: string }> {
  return ((await response.json()) as { error: { code: string; message: string } }).error;
}
