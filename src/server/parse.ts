import type { Context } from "hono";
import { FlotillaError } from "../base/errors.ts";
import { comingIn, isGone } from "./admission/admission.ts";

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

/** The same where the body may be left out, which says as much as one that holds nothing. */
export async function optionalJsonBody(c: Context, maxBytes: number): Promise<unknown> {
  const isEmpty = c.req.raw.body === null || c.req.header("content-length") === "0";
  return isEmpty ? {} : jsonBody(c, maxBytes);
}

/** What the body says it is, without parameters. */
export function typeOf(c: Context): string | undefined {
  return c.req.header("content-type")?.split(";")[0]?.trim().toLowerCase();
}

/** Read bit by bit, because a body needn't say how long it is, and needn't keep to what it said. */
export async function readBody(c: Context, maxBytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  const coming = comingIn(c);
  let bytes = 0;
  try {
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
      coming?.add(chunk.length);
    }
  } catch (error) {
    // A client that hangs up is no trouble of the server's, whose log it would fill.
    if (error instanceof FlotillaError || !isGone(c)) throw error;
    throw new FlotillaError("closed", "the client has left", { cause: error });
  } finally {
    coming?.end();
  }
  return Buffer.concat(chunks);
}
