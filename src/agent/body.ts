import { FlotillaError } from "../base/errors.ts";
import { type Refusal, refusal } from "./refusal.ts";

export type RequestBody = ReadableStream<Uint8Array> | Uint8Array | string | null;

/** How to have the body that was signed, for whoever has read it already. */
export const bodyWasRead =
  "the body was read before its signature could be checked, which is of the very bytes: " +
  "mount the agent before express.json() and the like, keep them with express.json({ verify(request, _response, bytes) { request.rawBody = bytes } }), " +
  "or use express.raw({ type: () => true }) for its route";

/** The whole body, or why it isn't taken. */
export async function readBytes(
  body: RequestBody,
  { maxBytes, announced }: { maxBytes: number; announced: string | undefined },
): Promise<Uint8Array | Refusal> {
  // Said before it is sent, so that none of it has to be held.
  if (Number(announced ?? 0) > maxBytes) return tooLarge(maxBytes);
  if (body === null) return new Uint8Array();
  if (typeof body === "string") return within(new TextEncoder().encode(body), maxBytes);
  if (body instanceof Uint8Array) return within(body, maxBytes);
  if (body.locked) throw new FlotillaError("invalid_option", bodyWasRead);
  const reader = body.getReader();
  const pieces: Uint8Array[] = [];
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return joined(pieces, length);
      length += value.length;
      if (length > maxBytes) return tooLarge(maxBytes);
      pieces.push(value);
    }
  } finally {
    // Not cancelled: that would close the connection before the refusal is sent.
    reader.releaseLock();
  }
}

function within(bytes: Uint8Array, maxBytes: number): Uint8Array | Refusal {
  return bytes.length > maxBytes ? tooLarge(maxBytes) : bytes;
}

function tooLarge(maxBytes: number): Refusal {
  return refusal(
    413,
    "payload_too_large",
    `a request may take ${maxBytes} bytes: raise \`maxBytes\` here, or have the agent told less by its \`history\``,
  );
}

export function joined(pieces: readonly Uint8Array[], length: number): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
