/**
 * A process that appends to logs on JetStream and takes them from others, with nothing of a pod around it.
 * Where an owner would wait until another is silent, it takes a log at any time: the fence alone decides.
 */
import { openSync, writeSync } from "node:fs";
import process from "node:process";
import { connect } from "@nats-io/transport-node";
import { systemClock } from "../../../src/base/clock.ts";
import { hasCode, messageOf } from "../../../src/base/errors.ts";
import { uuidv7 } from "../../../src/base/ids.ts";
import { silentLogger } from "../../../src/base/log.ts";
import { between, fraction, seededRandom, systemRandom } from "../../../src/base/random.ts";
import { messageRecord } from "../../../src/sessions/contract/journal-harness.ts";
import { connectStreams } from "../../../src/sessions/log/jetstream/connect.ts";
import type { StreamEngine } from "../../../src/sessions/log/jetstream/engine.ts";
import { createStreamLog } from "../../../src/sessions/log/jetstream/log.ts";
import type { Head, LogRecord } from "../../../src/sessions/log/journal.ts";
import { pauseFor } from "../../crash/until.ts";
import type { NewNote } from "./evidence.ts";
import { deployment, logs } from "./streams.ts";

export type RivalGiven = {
  readonly name: string;
  readonly servers: readonly string[];
  readonly notesPath: string;
  readonly seed: number;
};

const given = JSON.parse(process.argv[2]!) as RivalGiven;
const { name } = given;
const file = openSync(given.notesPath, "a");
const note = (line: NewNote) =>
  void writeSync(file, `${JSON.stringify({ rival: name, ...line })}\n`);
const random = seededRandom(given.seed);
const ids = uuidv7(systemClock, systemRandom);
const takeShare = 0.15;
const doubledShare = 0.5;

const connection = await connect({
  servers: [...given.servers],
  maxReconnectAttempts: -1,
  reconnectTimeWait: 100,
  pingInterval: 500,
  maxPingOut: 2,
  waitOnFirstConnect: true,
  noAsyncTraces: true,
});
const engine = await connectStreams({
  connection,
  clock: systemClock,
  readJson: async () => undefined,
});
/** The places that servers have refused records for last, by stream. */
const refused = new Map<string, number>();
/**
 * Sends some messages twice at once, as a network does, and notes reads that find nothing where a server says
 * that the log goes on: it compares with what it has proposed and not yet stored.
 */
const noting: StreamEngine = {
  ...engine,
  async publish(message, condition) {
    if (fraction(random) < doubledShare) void engine.publish(message, condition);
    const answer = await engine.publish(message, condition);
    if (answer.type === "wrong_last") refused.set(condition.stream, condition.lastSequence + 1);
    return answer;
  },
  async read(stream, sequence) {
    const found = await engine.read(stream, sequence);
    const isRefused = refused.get(stream) === sequence;
    if (!found && isRefused) note({ event: "nothing", log: logIn(stream), offset: sequence });
    return found;
  },
};
const log = createStreamLog({
  engine: noting,
  deployment,
  clock: systemClock,
  random: systemRandom,
  ids,
  log: silentLogger,
  maxRecordBytes: 1_024 * 1_024,
});

/** Streams are named by their logs. */
function logIn(stream: string): number {
  const prefix = `FLOTILLA_${deployment.namespace}_`;
  return Number(stream.slice(prefix.length).split("_")[0]);
}

let stopped = false;
const owned = new Map<number, Head>();
let said = 0;

/** Asks again until it is answered, or until the end. */
async function answered<Answer>(ask: () => Promise<Answer>): Promise<Answer | undefined> {
  while (!stopped) {
    try {
      return await ask();
    } catch (error) {
      if (!hasCode(error, "unknown_outcome", "store_unavailable", "not_owner")) throw error;
      await pauseFor(between(random, 20, 250));
    }
  }
  return undefined;
}

async function take(logId: number): Promise<void> {
  const seen = (await answered(() => log.heads()))?.[logId];
  if (!seen) return;
  const recordId = ids.next();
  note({ event: "sent", log: logId, recordId, offset: seen.offset + 1 });
  const taken = await answered(() => log.take(seen, { podId: name, host: null, recordId }));
  if (!taken) return;
  const { term, offset } = taken;
  note({ event: "committed", log: logId, recordId, offset, term });
  const records: string[] = [];
  try {
    // Another may have taken it since, which an owner hears of with its first record.
    await log.recover(taken, ({ record }) => records.push(record.recordId));
  } catch (error) {
    if (!hasCode(error, "unknown_outcome", "store_unavailable", "not_owner")) throw error;
    return;
  }
  note({ event: "recovered", log: logId, offset, records });
  owned.set(logId, taken);
}

async function append(logId: number, head: Head): Promise<void> {
  const record: LogRecord = { ...messageRecord(`${name}-${++said}`, 1), recordId: ids.next() };
  const { recordId } = record;
  const at = { log: logId, recordId, offset: head.offset + 1 };
  note({ event: "sent", ...at });
  let tries = 0;
  const outcome = await answered(async () => {
    try {
      return await log.commit(head, record);
    } catch (error) {
      if (hasCode(error, "unknown_outcome") && ++tries === 1) note({ event: "unknown", ...at });
      throw error;
    }
  });
  // At the end nothing is known of it, and so nothing is said.
  if (!outcome) return void owned.delete(logId);
  if (outcome.type === "committed") {
    note({ event: "committed", ...at, term: outcome.head.term });
    owned.set(logId, outcome.head);
  } else {
    note({ event: "fenced", ...at });
    owned.delete(logId);
  }
}

/** One at a time for each log, as an owner does it. */
async function contend(logId: number): Promise<void> {
  while (!stopped) {
    const head = owned.get(logId);
    if (head && fraction(random) > takeShare) await append(logId, head);
    else if (head || fraction(random) < takeShare) await take(logId);
    await pauseFor(between(random, 20, 120));
  }
}

process.once("SIGTERM", () => (stopped = true));
// Without the test that started it, this process would never end.
process.once("disconnect", () => process.exit(1));
await answered(() => log.create(logs));
process.send?.({ ready: name });
try {
  await Promise.all(Array.from({ length: logs }, (_, logId) => contend(logId)));
} catch (error) {
  note({ event: "failed", why: messageOf(error) });
}
process.exit(0);
