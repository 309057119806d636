import type { IncomingMessage, ServerResponse } from "node:http";

/** How often and how much was asked for, by digest. */
export type Served = { requests: number; bytes: number; ranges: string[] };

/** What goes wrong with a request. */
export type Fault =
  | { readonly type: "status"; readonly status: number; readonly retryAfterS?: number }
  /** The connection breaks after so many bytes of this answer. */
  | { readonly type: "cut"; readonly afterBytes: number }
  /** All of it comes, but one byte is another. */
  | { readonly type: "corrupt" }
  /** More comes than was asked for. */
  | { readonly type: "longer" }
  /** It is another version than before, as its tag says. */
  | { readonly type: "changed" }
  | { readonly type: "no_ranges" }
  /** It begins and never ends. */
  | { readonly type: "stall"; readonly afterBytes: number };

export type Serving = {
  readonly content: Uint8Array;
  readonly digest: string;
  readonly type: string;
  readonly fault: Fault | undefined;
  readonly counted: Served;
};

/** Answers with all of it or, where the client has the beginning already, with the rest. */
export function serveBlob(
  request: IncomingMessage,
  response: ServerResponse,
  { content, digest, type, fault, counted }: Serving,
): void {
  if (fault?.type === "status") {
    const { status, retryAfterS } = fault;
    const later = retryAfterS === undefined ? {} : { "retry-after": String(retryAfterS) };
    return void response.writeHead(status, later).end();
  }
  const etag = fault?.type === "changed" ? `"${digest}-changed"` : `"${digest}"`;
  const from = fault?.type === "no_ranges" ? 0 : rangeOf(request, etag);
  if (request.headers.range) counted.ranges.push(request.headers.range);
  const headers = {
    "content-type": type,
    "docker-content-digest": digest,
    etag,
    "accept-ranges": "bytes",
  };
  if (from > 0 && from >= content.length) {
    const range = `bytes */${content.length}`;
    return void response.writeHead(416, { ...headers, "content-range": range }).end();
  }
  let body = Buffer.from(content.subarray(from));
  if (fault?.type === "corrupt" && body.length > 0) body[body.length >> 1]! ^= 1;
  if (fault?.type === "longer") body = Buffer.concat([body, Buffer.from("and more")]);
  const range = `bytes ${from}-${content.length - 1}/${content.length}`;
  response.writeHead(from > 0 ? 206 : 200, {
    ...headers,
    ...(from > 0 && { "content-range": range }),
    // Without a length, what is too long shows only while it is read.
    ...(fault?.type !== "longer" && { "content-length": body.length }),
  });
  if (request.method === "HEAD") return void response.end();
  if (fault?.type === "cut" || fault?.type === "stall") {
    const part = body.subarray(0, fault.afterBytes);
    counted.bytes += part.length;
    response.write(part, () => fault.type === "cut" && response.destroy());
    // A client that has gone isn't kept waiting for.
    return void request.once("close", () => response.destroy());
  }
  counted.bytes += body.length;
  response.end(body);
}

/** Only open ranges are understood, and only of what the client has seen: all else gets everything. */
function rangeOf({ headers }: IncomingMessage, etag: string): number {
  const asked = /^bytes=(\d+)-$/.exec(headers.range ?? "");
  if (!asked) return 0;
  const condition = headers["if-range"];
  return condition === undefined || condition === etag ? Number(asked[1]) : 0;
}
