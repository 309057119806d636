import crypto from "node:crypto";
import zlib from "node:zlib";
import type { Header } from "../../conversation/header.ts";
import type { Head } from "../journal.ts";
import type { NewMessage, StoredMessage } from "./engine.ts";

/**
 * The messages of a log's stream. Each is one of three kinds, told by the end of its subject, and carries
 * whose it is, in which term, and a hash over all messages before it and its own. A message without the
 * header `Fl-V` isn't Flotilla's.
 */
export type LogMessage = {
  readonly kind: MessageKind;
  readonly recordId: string;
  readonly term: number;
  /** The pod that owns the log from here on; null where it was released. */
  readonly owner: string | null;
  /** The process of the owner. Only the message that it took the log with has it. */
  readonly host: string | null;
  readonly chain: string;
  readonly body: Uint8Array;
};

export type MessageKind = "record" | "owner" | "mark";

/** What a stored message is, once it is decoded. */
export type DecodedMessage =
  | { readonly type: "message"; readonly message: LogMessage }
  /** Not Flotilla's. */
  | { readonly type: "stray" }
  | { readonly type: "damaged"; readonly why: string };

/** Up to where the archive has a log, and what a pod that takes it can't find above that. */
export type Mark = {
  /** The offset of the last message that is archived. */
  readonly archived: number;
  /** The chain at that message. */
  readonly chain: string;
  /** Sessions with work under way whose last record is archived. */
  readonly busy: readonly Header[];
};

const version = "1";
const kinds = { record: "r", owner: "o", mark: "m" } as const;
const chainForm = /^[0-9a-f]{16}$/;
/** Ids are Flotilla's own. A value that could end a header line never gets into one. */
const idForm = /^[\x21-\x7e]{1,256}$/;
const termForm = /^(?:0|[1-9]\d{0,14})$/;

export function messageSubject(prefix: string, kind: MessageKind): string {
  return `${prefix}.${kinds[kind]}`;
}

/** The chain of a stream before its first message. */
export function firstChain(incarnation: string): string {
  return hashOf(incarnation);
}

/**
 * The chain at a message, from that at the message before it. Ids tell messages of different pasts apart, so a
 * checksum of the body is enough, against damage: a pod that takes a log reads all of it before it serves, and
 * would spend a third of that time on hashes of bodies.
 */
export function nextChain(
  chain: string,
  { recordId, body }: Pick<LogMessage, "recordId" | "body">,
): string {
  return hashOf(`${chain} ${recordId} ${body.length} ${zlib.crc32(body)}`);
}

function hashOf(text: string): string {
  return crypto.hash("sha256", text, "hex").slice(0, 16);
}

/** A message of an owner, behind one with this chain. */
export function messageOn(
  { term, owner, host }: Pick<Head, "term" | "owner" | "host">,
  kind: MessageKind,
  recordId: string,
  chain: string,
  body: Uint8Array,
): LogMessage {
  const ownHost = kind === "owner" ? host : null;
  const next = nextChain(chain, { recordId, body });
  return { kind, recordId, term, owner, host: ownHost, chain: next, body };
}

export function encodeMessage(prefix: string, message: LogMessage): NewMessage {
  const { kind, recordId, term, owner, host, chain, body } = message;
  return {
    subject: messageSubject(prefix, kind),
    headers: {
      "Fl-V": version,
      "Fl-Record": recordId,
      "Fl-Term": String(term),
      ...(owner !== null && { "Fl-Pod": owner }),
      ...(host !== null && { "Fl-Host": encodeURIComponent(host) }),
      "Fl-Chain": chain,
    },
    body,
  };
}

export function decodeMessage(prefix: string, stored: StoredMessage): DecodedMessage {
  const { subject, headers, body } = stored;
  const given = headers["Fl-V"];
  if (given === undefined) return { type: "stray" };
  const damaged = (why: string): DecodedMessage => ({ type: "damaged", why });
  if (given !== version) return damaged(`has the form ${given}, of a newer release`);
  const kind = (Object.keys(kinds) as MessageKind[]).find(
    (each) => subject === messageSubject(prefix, each),
  );
  if (kind === undefined) return damaged(`has the subject ${subject}`);
  const recordId = headers["Fl-Record"] ?? "";
  if (!idForm.test(recordId)) return damaged("has no record id");
  const term = headers["Fl-Term"] ?? "";
  if (!termForm.test(term)) return damaged("has no term");
  const chain = headers["Fl-Chain"] ?? "";
  if (!chainForm.test(chain)) return damaged("has no chain");
  const owner = headers["Fl-Pod"] ?? null;
  if (owner === null ? kind !== "owner" : !idForm.test(owner)) return damaged("names no pod");
  const host = decodeHost(headers["Fl-Host"]);
  if (host === undefined) return damaged("names no host");
  return {
    type: "message",
    message: { kind, recordId, term: Number(term), owner, host, chain, body },
  };
}

function decodeHost(given: string | undefined): string | null | undefined {
  if (given === undefined) return null;
  try {
    return decodeURIComponent(given);
  } catch {
    return undefined;
  }
}

export function toBody(value: object): Uint8Array {
  return Buffer.from(JSON.stringify(value));
}

/** Undefined if the bytes are no mark. */
export function decodeMark(body: Uint8Array): Mark | undefined {
  const found = fromBody(body);
  if (!isObject(found)) return undefined;
  const { archived, chain, busy } = found;
  if (!Number.isSafeInteger(archived) || (archived as number) < 0) return undefined;
  if (typeof chain !== "string" || !chainForm.test(chain)) return undefined;
  if (!Array.isArray(busy) || !busy.every(isHeader)) return undefined;
  return { archived: archived as number, chain, busy };
}

/** Enough to tell a header from anything else. Its owner wrote it from a value of that type. */
function isHeader(found: unknown): found is Header {
  if (!isObject(found)) return false;
  const { sessionId, lastSeq, work } = found;
  return typeof sessionId === "string" && Number.isSafeInteger(lastSeq) && isObject(work);
}

function isObject(found: unknown): found is Record<string, unknown> {
  return typeof found === "object" && found !== null && !Array.isArray(found);
}

/** Undefined if the bytes are no JSON. */
export function fromBody(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as unknown;
  } catch {
    return undefined;
  }
}
