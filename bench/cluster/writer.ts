import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { playRole } from "../roles.ts";
import { percentile } from "../statistics.ts";
import { type Appender, type AppenderOptions, openAppender, pause } from "./appender.ts";

/** A process that appends to logs on three servers, or reads one. */
export type WriterParams = AppenderOptions & { readonly work: WriterWork };

export type WriterWork =
  /** So many messages a second; what arrives while a record is on its way is in the next. */
  | {
      readonly type: "open";
      readonly perSecond: number;
      readonly warmMs: number;
      readonly runMs: number;
    }
  /** Records of so many messages, one after the other on each log. */
  | {
      readonly type: "closed";
      readonly messages: number;
      readonly warmMs: number;
      readonly runMs: number;
    }
  /** A log of so many records is read from its beginning to its end. */
  | { readonly type: "replay"; readonly records: number; readonly messages: number };

export type Written = {
  /** Messages a second. */
  readonly perSecond?: number;
  readonly latency?: { readonly p50: number; readonly p95: number; readonly p99: number };
  /** Megabytes a second that were read, by our log and by an ordered consumer alone. */
  readonly replayed?: { readonly flotilla: number; readonly bare: number };
};

playRole(
  async (params: WriterParams) => {
    const appender = await openAppender(params);
    const { work, logs } = params;
    try {
      if (work.type === "open") return await open(appender, logs, work);
      if (work.type === "closed") return await closed(appender, logs, work);
      return await replay(appender, work);
    } finally {
      await appender.close();
    }
  },
  { ends: "at once" },
);

/** Gives each log its messages by turns, and each record all that wait for it. */
async function open(
  { append }: Appender,
  logs: number,
  { perSecond, warmMs, runMs }: Extract<WriterWork, { type: "open" }>,
): Promise<Written> {
  const waiting = Array.from({ length: logs }, (): number[] => []);
  const busy = new Set<Promise<void>>();
  const isBusy = Array.from({ length: logs }, () => false);
  const startedMs = performance.now();
  const latencies: number[] = [];
  const drain = async (logId: number): Promise<void> => {
    isBusy[logId] = true;
    while (waiting[logId]!.length > 0) {
      const due = waiting[logId]!.splice(0);
      await append(logId, due.length);
      const nowMs = performance.now();
      for (const dueMs of due) if (dueMs - startedMs >= warmMs) latencies.push(nowMs - dueMs);
    }
    isBusy[logId] = false;
  };
  const count = Math.floor(((warmMs + runMs) * perSecond) / 1_000);
  for (let sent = 0; sent < count;) {
    const nowMs = performance.now();
    for (; sent < count; sent++) {
      const dueMs = startedMs + (sent * 1_000) / perSecond;
      if (dueMs > nowMs) break;
      const logId = sent % logs;
      waiting[logId]!.push(dueMs);
      if (isBusy[logId]) continue;
      const draining = drain(logId).finally(() => busy.delete(draining));
      busy.add(draining);
    }
    await pause(1);
  }
  await Promise.all(busy);
  const at = (share: number) => percentile(latencies, share);
  return { latency: { p50: at(0.5), p95: at(0.95), p99: at(0.99) } };
}

async function closed(
  { append }: Appender,
  logs: number,
  { messages, warmMs, runMs }: Extract<WriterWork, { type: "closed" }>,
): Promise<Written> {
  const during = async (forMs: number): Promise<number> => {
    const endMs = performance.now() + forMs;
    let acked = 0;
    const fill = async (logId: number) => {
      for (; performance.now() < endMs; acked += messages) await append(logId, messages);
    };
    await Promise.all(Array.from({ length: logs }, (_, logId) => fill(logId)));
    return acked;
  };
  await during(warmMs);
  const startedMs = performance.now();
  const acked = await during(runMs);
  return { perSecond: (acked * 1_000) / (performance.now() - startedMs) };
}

async function replay(
  { append, log, connection, streams, headOf }: Appender,
  { records, messages }: Extract<WriterWork, { type: "replay" }>,
): Promise<Written> {
  for (let left = records; left > 0; left--) await append(0, messages);
  const manager = await jetstreamManager(connection, { checkAPI: false });
  const { state } = await manager.streams.info(streams[0]!);
  const ours = async () => {
    await log.recover(headOf(0), () => {});
  };
  const bare = async () => {
    const options = { opt_start_seq: state.first_seq };
    const consumer = await jetstream(connection).consumers.get(streams[0]!, options);
    const found = await consumer.consume({ max_bytes: 8 * 1_024 * 1_024 });
    for await (const { seq } of found) if (seq >= state.last_seq) break;
  };
  const megabytesBy = async (read: () => Promise<void>): Promise<number> => {
    // Once before, so that the code is compiled and the servers have it in memory.
    await read();
    const startedMs = performance.now();
    await read();
    return state.bytes / 1e6 / ((performance.now() - startedMs) / 1_000);
  };
  return { replayed: { flotilla: await megabytesBy(ours), bare: await megabytesBy(bare) } };
}
