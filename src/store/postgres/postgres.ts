import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep, systemClock } from "../../base/clock.ts";
import { FlotillaError, hasCode } from "../../base/errors.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import { checkWanted, type Database, type Durability, type OnStoreEvent } from "../database.ts";
import { type Query, render, renderAll } from "../sql.ts";
import { postgresTransaction } from "../caller-transaction.ts";
import { type Connections, openConnections } from "./connections.ts";
import { postgresDialect } from "./dialect.ts";
import { loadDriver } from "./driver.ts";
import { undoneBy, wasUndone } from "./errors.ts";
import {
  notifyQuery,
  listenForNotifications,
  type ChannelKey,
  notifyChannelsQuery,
  secretQuery,
  secretTableQuery,
} from "./notifications.ts";
import { checkStore, type PostgresStore } from "./config.ts";

export type PostgresOptions = PostgresStore & {
  durability?: Durability;
  /** False if other processes are woken in another way. Default true. */
  notifies?: boolean;
  /** Of tests: says of each transaction whether the server is to undo it, as for another's sake. */
  undoes?: () => boolean;
  /** Whether writes may refer to `liveConnections`, which is found out at the first one. */
  watchesConnections?: boolean;
  clock?: Clock;
  log?: Logger;
  /** Called when a transaction was undone because of another one and is retried. */
  onEvent?: OnStoreEvent;
};

// Where every other transaction is undone, five tries would fail three writes of a hundred.
const maxUndoneRetries = 10;

/** A Postgres database, shared by any number of pods. Needs no state in the session. */
export async function openPostgres(options: PostgresOptions): Promise<Database> {
  const { durability = "full", log = silentLogger, clock = systemClock, ...rest } = options;
  const { notifies: wakes = true, watchesConnections = false, undoes, onEvent, ...given } = rest;
  const store = checkStore(given);
  const { schema, unproven = false } = store;
  const driver = await loadDriver();
  const dialect = postgresDialect({ schema, unproven });
  const seeing = postgresDialect({ schema, unproven, seesConnections: true });
  const notifies = wakes && !unproven;
  const connections = openConnections({ driver, store, durability, clock, log });
  let secret: string | undefined;
  const channelKey = async (): Promise<ChannelKey> => {
    if (secret !== undefined) return { schema, secret };
    // A store without tables has no secret yet, and no listeners of channels.
    const [found] = await connections.run("read", [secretTableQuery(schema)]);
    if (found![0]!["there"] === null) return { schema, secret };
    const [rows] = await connections.run("read", [secretQuery(schema)]);
    return { schema, secret: (secret = rows![0]?.["secret"] as string | undefined) };
  };
  const notifications = listenForNotifications({
    schema,
    channelKey,
    open: connections.listener,
    log,
    onForged: () => onEvent?.({ type: "forged" }),
  });
  const transact: Connections["run"] = (kind, queries, wanted) =>
    retryUndone(
      () => connections.run(kind, undoes?.() ? [...queries, undoing] : queries, wanted),
      onEvent,
    );
  let closing: Promise<unknown> | undefined;
  const underWay = new Set<Promise<unknown>>();

  /** Calls made before a close are finished, except cold reads and pages that wait; later ones are rejected. */
  const guarded = <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
    if (closing) return Promise.reject(closedError());
    const answer = ask();
    const settled = answer.catch(() => {});
    underWay.add(settled);
    void settled.then(() => underWay.delete(settled));
    return answer;
  };

  return {
    read: (statement, { cold = false, page = false, signal } = {}) =>
      guarded(async () => {
        const kind = page ? "page" : cold ? "cold" : "read";
        const queries = [render(statement, dialect)];
        const [rows] = await transact(kind, queries, () => checkWanted(signal)).catch(
          (error: unknown) => {
            throw readError(error);
          },
        );
        return rows!;
      }),
    write: (statements, options = {}) =>
      guarded(async () => {
        const sees = watchesConnections && (await connections.areSeen());
        const { queries, answerAt } = renderAll(statements, sees ? seeing : dialect);
        const { notify = false, lossy = false } = options;
        const channels = (notifies && options.channels) || [];
        if (notify && notifies) queries.push(notifyQuery(schema));
        if (channels.length > 0 || (lossy && !unproven)) {
          const key = channels.length > 0 ? await channelKey() : { schema, secret: undefined };
          queries.push(notifyChannelsQuery(key, { ...options, channels }));
        }
        const tables = await transact("write", queries).catch((error: unknown) => {
          // The right to see them may have been revoked, and no beat may fail for that twice.
          if (sees) connections.forgetSeen();
          throw error;
        });
        return answerAt.map((at) => tables[at]!);
      }),
    notifiesOnlyIdle: notifies,
    writesAtOnce: true,
    recordsChanges: !unproven,
    subscribe: notifies ? notifications.subscribe : () => () => {},
    within: (handle) => postgresTransaction(handle, { schema, unproven, notifies }),
    async close() {
      connections.refuseWaiting(closedError());
      closing ??= awake(Promise.all([notifications.close(), ...underWay]).then(connections.end));
      await closing;
    },
  };
}

/** A read whose connection broke has done nothing, so nothing about it is unknown: the server is away. */
function readError(error: unknown): unknown {
  if (!hasCode(error, "unknown_outcome")) return error;
  return new FlotillaError("store_unavailable", error.message, { cause: error.cause });
}

function closedError(): FlotillaError {
  return new FlotillaError("closed", "the database was closed");
}

/** Idle connections do not keep the process alive, so it might end before they are closed. */
function awake<Answer>(closing: Promise<Answer>): Promise<Answer> {
  return closing.finally(systemClock.after(Infinity, () => {}));
}

const undoing: Query = {
  text: "do $$ begin raise exception using errcode = '40001'; end $$",
  values: [],
};

/** Retries a transaction, of reads or of writes, that was undone because of another one. */
async function retryUndone<Answer>(
  ask: () => Promise<Answer>,
  onEvent: OnStoreEvent = () => {},
): Promise<Answer> {
  for (let tries = 1; ; tries++) {
    try {
      return await ask();
    } catch (error) {
      const undone = error instanceof FlotillaError && wasUndone(error.cause);
      if (!undone || tries >= maxUndoneRetries) throw error;
      const waitMs = contentionMs(tries, systemRandom) / 10;
      onEvent({ type: "contended", cause: undoneBy(error.cause), waitMs });
      await sleep(systemClock, waitMs);
    }
  }
}
