import type { Context } from "hono";
import { FlotillaError } from "../base/errors.ts";
import type { ListOptions } from "../queue/client.ts";
import { type JsonRow, parseRow } from "../runtime/rows.ts";

/** What `POST /v1/tasks` takes. */
export async function parseEnqueue(c: Context, maxBytes: number): Promise<JsonRow> {
  return parseRow("the body", await jsonBody(c, maxBytes));
}

/** What `GET /v1/tasks` takes. The filters are checked where tasks are listed. */
export function parseFilter(c: Context): ListOptions {
  const { limit, ...rest } = c.req.query();
  return { ...rest, ...(limit !== undefined && { limit: asNumber("limit", limit) }) };
}

export async function jsonBody(c: Context, maxBytes: number): Promise<unknown> {
  const type = typeOf(c);
  if (type !== "application/json") {
    throw new FlotillaError(
      "unsupported",
      `the body must be JSON: send \`Content-Type: application/json\`, not ${JSON.stringify(type ?? "nothing")}`,
    );
  }
  const bytes = await readBody(c, maxBytes);
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new FlotillaError("invalid_input", "the body isn't JSON in UTF-8", { cause: error });
  }
}

/** What the body says it is, without parameters. */
export function typeOf(c: Context): string | undefined {
  return c.req.header("content-type")?.split(";")[0]?.trim().toLowerCase();
}

/** Read bit by bit, because a body needn't say how long it is, and needn't keep to what it said. */
export async function readBody(c: Context, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of c.req.raw.body ?? []) {
    bytes += chunk.length;
    if (bytes > maxBytes) {
      throw new FlotillaError(
        "payload_too_large",
        `the body takes more than ${maxBytes} bytes: store it elsewhere and pass a reference`,
        { details: { maxBytes } },
      );
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

export function asObject(what: string, value: unknown): Record<string, unknown> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Record<string, unknown>;
  }
  throw new FlotillaError("invalid_input", `${what} must be an object`);
}

export function asNumber(what: string, text: string): number {
  if (/^-?\d{1,15}$/.test(text)) return Number(text);
  throw new FlotillaError(
    "invalid_option",
    `${what} must be a whole number, not ${JSON.stringify(text.slice(0, 40))}`,
  );
}
