import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { open, rm, stat } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import { type Digest, digestOfFile } from "../disk/digest.ts";
import { publish, unless } from "../disk/durable.ts";
import { removeLeftovers, type Writer } from "../disk/temporary.ts";
import type { ImageLimits } from "../limits.ts";
import { Refused } from "../refused.ts";
import { checkStatus } from "./client.ts";
import { checkSize } from "./manifest.ts";
import { findPart, noteEtag, type Part } from "./part.ts";

export type Download = {
  readonly url: string;
  readonly digest: Digest;
  readonly bytes: number;
  /** Where it goes, once it is whole. */
  readonly target: string;
  readonly writer: Writer;
  readonly limits: ImageLimits;
  readonly signal: AbortSignal;
  /** How long there may be nothing. */
  readonly idleMs?: number;
  readonly onProgress?: (bytes: number) => void;
};

/** Where it began, and how much came: with what was there already, that makes all of it. */
export type Downloaded = { readonly resumedAt: number; readonly received: number };

/**
 * Downloads a blob to a temporary file beside its target, goes on where an earlier attempt stopped, and
 * renames it when all of it is there, checked and on disk. So the target is whole or it isn't there.
 */
export async function download(asked: Download): Promise<Downloaded> {
  const { target, writer, digest, bytes, limits, signal } = asked;
  checkSize(bytes, limits);
  if (await isThere(target, { digest, bytes, signal })) {
    await removeLeftovers(target, writer.runId);
    return { resumedAt: bytes, received: 0 };
  }
  const part = await findPart(target, writer);
  // All of it came, and the crash was before the rename.
  if (part.bytes === bytes && (await digestOfFile(part.path, signal)) === digest) {
    await finish(asked, part.path);
    return { resumedAt: bytes, received: 0 };
  }
  return fetchRest(asked, part);
}

/** Whether it is there and is what it should be. */
export async function isThere(
  path: string,
  { digest, bytes, signal }: Pick<Download, "digest" | "bytes" | "signal">,
): Promise<boolean> {
  const found = await stat(path).catch(unless("ENOENT"));
  if (!found?.isFile() || found.size !== bytes) return false;
  return (await digestOfFile(path, signal)) === digest;
}

async function fetchRest(asked: Download, part: Part): Promise<Downloaded> {
  const { url, target, writer, digest, bytes, idleMs = 30_000 } = asked;
  const isBegun = part.etag !== null && part.bytes > 0 && part.bytes < bytes;
  const idle = idleTimer(idleMs);
  const signal = AbortSignal.any([asked.signal, idle.signal]);
  try {
    const condition = { range: `bytes=${part.bytes}-`, "if-range": part.etag ?? "" };
    const answer = await fetch(url, { signal, ...(isBegun && { headers: condition }) });
    await checkStatus(answer, isBegun ? [200, 206] : [200]);
    // The server decides whether ours is the beginning of what it has.
    const resumedAt = answer.status === 206 ? checkRange(answer, part.bytes, bytes) : 0;
    if (resumedAt === 0) {
      // What was there is of another version, and must not be taken for the beginning of this one.
      await rm(part.path, { force: true });
      await noteEtag(target, writer, strongTag(answer));
    }
    const hash = createHash("sha256");
    if (resumedAt > 0) await hashBeginning(part.path, resumedAt, hash);
    const received = await write(answer, part.path, resumedAt, { ...asked, hash, idle });
    const total = resumedAt + received;
    if (total < bytes) throw new Error(`${url} ended after ${total} of ${bytes} bytes`);
    if (`sha256:${hash.digest("hex")}` !== digest) {
      // None of it can be believed, so the next attempt begins anew.
      await removeLeftovers(target, writer.runId);
      throw new Error(`${url} isn't what its digest says`);
    }
    await finish(asked, part.path);
    return { resumedAt, received };
  } catch (thrown) {
    if (idle.signal.aborted && !asked.signal.aborted) {
      throw new Error(`${url} sent nothing for ${idleMs} ms`, { cause: thrown });
    }
    throw thrown;
  } finally {
    idle.stop();
  }
}

async function write(
  answer: Response,
  path: string,
  from: number,
  { hash, idle, bytes, url, onProgress }: Download & { hash: Hash; idle: IdleTimer },
): Promise<number> {
  const file = await open(path, from > 0 ? "r+" : "w");
  let at = from;
  try {
    await file.truncate(from);
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      idle.reset();
      if (at + chunk.length > bytes) {
        throw new Refused("too_large", `${url} has more than its ${bytes} bytes`);
      }
      await file.write(chunk, 0, chunk.length, at);
      hash.update(chunk);
      at += chunk.length;
      onProgress?.(at);
    }
    await file.sync();
  } finally {
    await file.close();
  }
  return at - from;
}

async function finish({ target, writer }: Download, part: string): Promise<void> {
  await publish(part, target);
  await removeLeftovers(target, writer.runId);
}

/** A tag that only says "much the same" is no ground to put two halves together. */
function strongTag(answer: Response): string | null {
  const etag = answer.headers.get("etag");
  return etag === null || etag.startsWith("W/") ? null : etag;
}

function checkRange(answer: Response, from: number, bytes: number): number {
  const range = answer.headers.get("content-range");
  if (range === `bytes ${from}-${bytes - 1}/${bytes}`) return from;
  throw new Error(`${answer.url} sent "${range}" and was asked for ${from} to ${bytes - 1}`);
}

async function hashBeginning(path: string, bytes: number, hash: Hash): Promise<void> {
  await pipeline(createReadStream(path, { end: bytes - 1 }), hash, { end: false });
}

type IdleTimer = { readonly signal: AbortSignal; reset: () => void; stop: () => void };

function idleTimer(ms: number): IdleTimer {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(new Error("idle")), ms);
  return { signal: stop.signal, reset: () => timer.refresh(), stop: () => clearTimeout(timer) };
}
