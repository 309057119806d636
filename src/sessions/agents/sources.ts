import { FlotillaError } from "../../base/errors.ts";
import { checkAgentUrl } from "./address.ts";
import { secretKey } from "../../protocol/agent-http.ts";
import type { UrlSource } from "./spec.ts";

export type UrlOptions = {
  url: string;
  /** Sent with every request. */
  headers?: Readonly<Record<string, string>>;
  /** `whsec_…` signs requests after Standard Webhooks; several while one is replaced by another. */
  secret?: string | readonly string[];
  /** Lets it be on this machine or in a private network, and without TLS. Default false. */
  allowPrivate?: boolean;
};

const secretsMost = 4;
const headersMost = 32;
const headerBytesMost = 8_192;
const headerName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const headerValue = /^[\t\x20-\x7e\x80-\xff]*$/;

// What says how long the request is, and whom it is from, isn't for anybody to say otherwise.
const ownHeaders = new Set([
  "accept-encoding",
  "connection",
  "content-length",
  "content-type",
  "expect",
  "host",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
  "webhook-id",
  "webhook-signature",
  "webhook-timestamp",
]);

export function checkUrlSource(what: string, given: UrlOptions): UrlSource {
  const { headers = {}, secret = [], allowPrivate = false } = given;
  if (typeof allowPrivate !== "boolean") {
    throw new FlotillaError("invalid_option", `${what}: allowPrivate must be true or false`);
  }
  const url = checkAgentUrl(`${what}: url`, given.url, allowPrivate);
  checkHeaders(what, headers);
  const secrets = Array.isArray(secret) ? [...secret] : [secret as string];
  if (secrets.length > secretsMost) {
    throw new FlotillaError(
      "invalid_option",
      `${what}: it can have ${secretsMost} secrets at most`,
    );
  }
  for (const each of secrets) secretKey(what, each);
  return { url, headers: { ...headers }, secrets, allowPrivate };
}

function checkHeaders(what: string, headers: unknown): void {
  const wrong = (why: string) => new FlotillaError("invalid_option", `${what}: headers ${why}`);
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) {
    throw wrong("must be an object of texts");
  }
  const all = Object.entries(headers);
  if (all.length > headersMost) throw wrong(`can be ${headersMost} at most`);
  for (const [name, value] of all) {
    const shown = JSON.stringify(name.slice(0, 60));
    if (!headerName.test(name)) throw wrong(`can't be named ${shown}`);
    if (ownHeaders.has(name.toLowerCase()))
      throw wrong(`can't hold ${shown}, which is set for you`);
    if (typeof value !== "string" || value.length > headerBytesMost || !headerValue.test(value)) {
      throw wrong(`hold a value of ${shown} that can't be sent`);
    }
  }
}
