import { once, on } from "node:events";
import { createReadStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { Parser, type ReadEntry } from "tar";
import { codeOf } from "../disk/durable.ts";
import type { ImageLimits } from "../limits.ts";
import { Refused } from "../refused.ts";

/** Names are the longest things that headers of headers carry. */
const metaBytesMost = 64 * 1024;

/**
 * The entries of a packed layer, in their order. An archive is refused at the first thing that is wrong
 * with it, and at its end if the end marker is missing: what was cut between two entries looks whole.
 */
export async function* tarEntries(
  path: string,
  limits: ImageLimits,
  signal?: AbortSignal,
): AsyncGenerator<ReadEntry, void, undefined> {
  signal?.throwIfAborted();
  const parser = new Parser({
    strict: true,
    zstd: false,
    maxMetaEntrySize: metaBytesMost,
    // The parser would unpack what is packed twice, past our count. With 0 it gives up.
    maxDecompressionRatio: 0,
  });
  let current: ReadEntry | undefined;
  let isWhole = false;
  let fault: unknown;
  const stop = new AbortController();
  const fail = (thrown: unknown) => {
    fault ??= refusal(thrown);
    stop.abort(fault);
    // Whoever reads this entry would wait for the rest forever.
    current?.destroy(fault);
  };
  const onAbort = () => fail(signal!.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  parser.on("error", fail);
  parser.on("eof", () => (isWhole = true));
  parser.on("ignoredEntry", ({ type, path: name }: ReadEntry) =>
    fail(new Refused("special_file", `"${name}" is a ${type}`)),
  );
  parser.on("meta", (text: string) => {
    if (text.includes(" GNU.sparse.")) fail(new Refused("bad_archive", "sparse files"));
  });

  const pump = async (): Promise<void> => {
    for await (const chunk of unpacked(path, limits, signal)) {
      if (!parser.write(chunk) && !stop.signal.aborted) {
        await once(parser, "drain", { signal: stop.signal });
      }
      stop.signal.throwIfAborted();
    }
    parser.end();
  };
  const entries = on(parser, "entry", { close: ["end"], signal: stop.signal });
  const pumped = pump().catch(fail);
  try {
    for await (const [entry] of entries as AsyncIterable<[ReadEntry]>) {
      current = entry;
      // Whoever reads it is told; where nobody does, the fault is thrown here.
      entry.on("error", () => {});
      if (fault === undefined) yield entry;
      if (fault !== undefined) throw fault;
      // What nobody has read is read past.
      entry.resume();
    }
  } catch (thrown) {
    throw fault ?? thrown;
  } finally {
    current = undefined;
    signal?.removeEventListener("abort", onAbort);
    stop.abort();
    await pumped;
  }
  if (fault !== undefined) throw fault;
  if (!isWhole) throw new Refused("bad_archive", "the archive has no end");
}

async function* unpacked(
  path: string,
  limits: ImageLimits,
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer> {
  const file = createReadStream(path);
  const gunzip = createGunzip();
  // Its errors come out of `gunzip` too, which is where they are looked for.
  const piped = pipeline(file, gunzip, { ...(signal && { signal }) }).catch(() => {});
  let bytes = 0;
  try {
    for await (const chunk of gunzip as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > limits.unpackedBytes + limits.entries * 1024) {
        throw new Refused("too_large", `the archive has more than ${bytes} bytes`);
      }
      if (bytes > limits.ratioFromBytes && bytes > limits.ratio * gunzip.bytesWritten) {
        throw new Refused("bomb", `it unpacks to more than ${limits.ratio} times its size`);
      }
      yield chunk;
    }
  } finally {
    file.destroy();
    gunzip.destroy();
    await piped;
  }
}

/** What the parsers throw says that the archive is bad. What the disk throws doesn't. */
function refusal(thrown: unknown): unknown {
  const isParsers = /^(TAR_|Z_)/.test(thrown instanceof Error ? codeOf(thrown) : "");
  const isTars = thrown instanceof Error && "tarCode" in thrown;
  if (!isParsers && !isTars) return thrown;
  return new Refused("bad_archive", (thrown as Error).message, { cause: thrown });
}
