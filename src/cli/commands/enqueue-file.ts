import { createReadStream, statSync } from "node:fs";
import process from "node:process";
import { systemClock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Workable } from "../../runtime/handlers.ts";
import { type JsonRow, type NumberedLine, parseLine, readLines } from "../../runtime/json-rows.ts";
import type { EachCounts, EnqueueRow, RowOutcome } from "../../tasks/enqueue/each.ts";
import { warnNoWorker } from "../why.ts";
import { exitCodes } from "../exit-codes.ts";
import { oneLine, print, printJson } from "../output.ts";
import type { Operations } from "../remote.ts";
import { barOf, count, plural, startProgressBar } from "../progress.ts";
import { stopSignals } from "../signals.ts";

export type FileOptions = {
  /** A path, or `-` for standard input. */
  readonly file: string;
  readonly json: boolean;
  /** Defaults for rows that leave them out. */
  readonly byDefault: Partial<JsonRow>;
  readonly use: readonly Workable[];
  readonly maxPayloadBytes: number;
  readonly trace: { traceparent: string | undefined; tracestate: string | undefined };
};

// JSON may escape text to twice its size, and a row has options too.
const rowFactor = 2;
const rowOverheadBytes = 16 * 1024;
const maxRejectionsShown = 20;

/** Stores the rows of a file, one per line, and prints why rows were rejected. */
export async function enqueueFile(flotilla: Operations, options: FileOptions): Promise<void> {
  const { file, json, byDefault, maxPayloadBytes, trace } = options;
  const { stderr } = process;
  const stop = new AbortController();
  void stopSignals().received.then(() => stop.abort());
  const handlers = new Map(options.use.map((handler) => [handler.name, handler]));
  const { chunks, share } = openFile(file, stop.signal);
  const progress = startProgressBar();
  const startedMs = systemClock.monotonic();
  /** Rows whose outcome isn't known yet: their lines, and their names where they parsed. */
  const unreported: { line: number; name?: string }[] = [];
  const stored = new Set<string>();
  let rejections = 0;

  const toRow = (line: NumberedLine): EnqueueRow | Error => {
    const row: (typeof unreported)[number] = { line: line.number };
    unreported.push(row);
    try {
      const { name, input, options: own } = parseLine(line, byDefault);
      row.name = name;
      const rest = { input, options: { ...own, trace } };
      const task = handlers.get(name);
      return task ? { task, ...rest } : { task: name, ...rest };
    } catch (error) {
      return error as Error;
    }
  };
  async function* rows(): AsyncGenerator<EnqueueRow | Error> {
    try {
      const maxBytes = maxPayloadBytes * rowFactor + rowOverheadBytes;
      for await (const line of readLines(chunks, { maxBytes })) {
        yield toRow(line);
      }
    } catch (error) {
      // An aborted stream throws too.
      if (!stop.signal.aborted) throw unreadable(file, error);
    }
  }
  const onOutcome = (outcome: RowOutcome): void => {
    const { index: _, ...rest } = outcome;
    const { line, name } = unreported.shift()!;
    if (outcome.outcome !== "rejected" && name !== undefined) stored.add(name);
    if (json) return printJson({ line, ...rest });
    if (outcome.outcome !== "rejected" || ++rejections > maxRejectionsShown) return;
    progress.print(`line ${line}: ${outcome.code}: ${oneLine(outcome.message, 500)}`);
  };

  try {
    const { outcomes: _, ...counts } = await flotilla.enqueueEach(rows(), {
      signal: stop.signal,
      onOutcome,
      onProgress: ({ rows: done }) => {
        const perSecond = done / Math.max(0.001, (systemClock.monotonic() - startedMs) / 1_000);
        const read = share();
        const text = `${plural(done, "row")}, ${count(Math.round(perSecond))}/s`;
        progress.show(read === undefined ? text : `${barOf(read)}, ${text}`);
      },
    });
    progress.end();
    const more = rejections - maxRejectionsShown;
    if (more > 0) stderr.write(`and ${more} more were rejected: --json shows all\n`);
    if (json) printJson(counts);
    else print(summary(counts));
    await warnNoWorker(flotilla, stored);
    if (counts.rejected > 0) process.exitCode = exitCodes.error;
  } catch (error) {
    progress.end();
    throw error;
  }
}

/** The file's bytes, and a function that returns the share that was read. */
function openFile(file: string, signal: AbortSignal) {
  if (file === "-") {
    signal.addEventListener("abort", () => process.stdin.destroy(), { once: true });
    return { chunks: process.stdin as AsyncIterable<Uint8Array>, share: () => undefined };
  }
  let totalBytes: number;
  try {
    totalBytes = statSync(file).size;
  } catch (error) {
    throw unreadable(file, error);
  }
  const stream = createReadStream(file, { signal });
  return {
    chunks: stream as AsyncIterable<Uint8Array>,
    // Pipes and devices have no size.
    share: () => (totalBytes > 0 ? stream.bytesRead / totalBytes : undefined),
  };
}

function unreadable(file: string, error: unknown): FlotillaError {
  const what = file === "-" ? "standard input" : file;
  return new FlotillaError("invalid_option", `${what} can't be read: ${messageOf(error)}`, {
    cause: error,
  });
}

function summary({ rows, created, existing, replaced, rejected }: EachCounts): string {
  const parts = [
    `${count(created)} created`,
    ...(existing > 0 ? [`${count(existing)} existed`] : []),
    ...(replaced > 0 ? [`${count(replaced)} replaced`] : []),
    ...(rejected > 0 ? [`${count(rejected)} rejected`] : []),
  ];
  return `${plural(rows, "row")}: ${parts.join(", ")}`;
}
