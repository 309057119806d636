import { createHash, createHmac } from "node:crypto";
import { secretKey } from "../../protocol/agent-http.ts";

export type Signed = {
  readonly webhookId: string;
  readonly nowMs: number;
  readonly body: string;
  readonly secrets: readonly string[];
};

/** The headers by which an agent knows a request for ours, after Standard Webhooks. */
export function signatureHeaders({
  webhookId,
  nowMs,
  body,
  secrets,
}: Signed): Record<string, string> {
  const timestamp = String(Math.floor(nowMs / 1_000));
  const signed = `${webhookId}.${timestamp}.${body}`;
  const signatures = secrets.map((secret) => {
    const key = secretKey("the agent", secret);
    return `v1,${createHmac("sha256", key).update(signed).digest("base64")}`;
  });
  return {
    "webhook-id": webhookId,
    "webhook-timestamp": timestamp,
    ...(signatures.length > 0 && { "webhook-signature": signatures.join(" ") }),
  };
}

/**
 * The same for every try of every runner at the same work, and for nothing else. Session ids may hold
 * what a header can't.
 */
export function webhookIdOf(sessionId: string, epoch: number): string {
  const plain = `${sessionId}:${epoch}`;
  if (/^[A-Za-z0-9_:-]{1,128}$/.test(plain)) return plain;
  return createHash("sha256").update(plain).digest("hex");
}
