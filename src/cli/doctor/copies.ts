import { hash } from "node:crypto";
import { messageOf } from "../../base/errors.ts";
import type { StreamCopy, StreamEngine } from "../../sessions/log/jetstream/engine.ts";
import { type Deployment, type LogLife, streamName } from "../../sessions/log/jetstream/streams.ts";
import { type Check, failed, ok, warn } from "./check.ts";

/** What was read of the copies of one log. */
export type LogCopies = {
  readonly logId: number;
  readonly copies: readonly StreamCopy[];
  /** The message that was read again and again, and what the servers that answered have there. */
  readonly sequence: number;
  readonly answers: readonly string[];
};

const name = "copies";
/** Servers answer in turn, at random: of three, each does so among this many, but once in a thousand times. */
const reads = 18;

/**
 * Whether all servers have their copy of each log, and the same in it. The last message of a log has a hash
 * over all before it, so that one message is compared in place of all. Which server answers isn't said.
 */
export async function checkCopies(
  engine: Pick<StreamEngine, "readFrom" | "state">,
  deployment: Deployment,
  lives: readonly LogLife[],
): Promise<Check> {
  try {
    const all: LogCopies[] = [];
    // One after the other, since a message may have megabytes, and there may be 256 logs.
    for (const life of lives)
      all.push(await readCopies(engine, streamName(deployment, life), life.logId));
    return judgeCopies(all, deployment);
  } catch (error) {
    return warn(name, messageOf(error));
  }
}

async function readCopies(
  engine: Pick<StreamEngine, "readFrom" | "state">,
  stream: string,
  logId: number,
): Promise<LogCopies> {
  const state = await engine.state(stream);
  const sequence = state?.lastSequence ?? 0;
  const answers: string[] = [];
  const isEmpty = !state || state.firstSequence > sequence;
  const tries = isEmpty || state.copies.length === 0 ? 0 : reads;
  for (let nth = 0; nth < tries; nth++) {
    // A copy that doesn't have it yet gives nothing.
    for await (const { subject, headers, body } of engine.readFrom(stream, {
      from: sequence,
      to: sequence,
    })) {
      // A server adds headers of its own, such as how many messages follow.
      const own = Object.entries(headers).filter(([header]) => header.startsWith("Fl-"));
      const sorted = own.toSorted(([one], [other]) => (one < other ? -1 : 1));
      const told = JSON.stringify([subject, sorted, Buffer.from(body).toString("base64")]);
      answers.push(hash("sha256", told, "hex"));
    }
  }
  return { logId, copies: state?.copies ?? [], sequence, answers };
}

/** Decides what the doctor says of them. */
export function judgeCopies(
  logs: readonly LogCopies[],
  { replicas }: Pick<Deployment, "replicas">,
): Check {
  const torn = logs.find(({ answers }) => new Set(answers).size > 1);
  if (torn) {
    const text = `servers have different messages at ${torn.sequence} of log ${torn.logId}`;
    return failed(
      name,
      `${text}: look for a damaged disk, end that server, empty its folder and start it again, so that the others send it theirs`,
    );
  }
  const few = logs.find(({ copies }) => replicas > 1 && copies.length < replicas);
  if (few) {
    const text = `log ${few.logId} is on ${few.copies.length} servers, not on ${replicas}`;
    return failed(name, `${text}: start the others, with routes to each other`);
  }
  const late = logs.flatMap(({ copies }) => copies.filter(({ state }) => state !== "current"));
  const servers = [...new Set(late.map(({ server, state }) => `${server} is ${state}`))];
  if (servers.length > 0) {
    return warn(name, `${servers.join(", ")}: end no other server before it has caught up`);
  }
  return ok(
    name,
    replicas > 1
      ? `${replicas} servers have the same of each log`
      : "each log is on one server, for one's own machine",
  );
}
