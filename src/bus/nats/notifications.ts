import crypto from "node:crypto";
import { afterUnref, type Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import { settledWithin } from "../../base/timeout.ts";
import type { Database, Listener, WriteOptions } from "../../store/database.ts";
import { channelListeners } from "../../store/notifications.ts";
import { type NatsConnection, subjectOf } from "./connection.ts";

export type NatsNotificationParts = {
  /** Connects with the first call. */
  nats: () => NatsConnection;
  clock: Clock;
  /** An id of this process's own, by which it knows its own notifications. */
  origin: string;
};

// Under load there are thousands of commits a second, and one notification speaks for many.
const gapMs = 2;
// A caller's transaction is committed by the caller, which isn't seen here. Polling finds what is later.
const callerDelaysMs = [10, 50, 250];
const lastMs = 1_000;
const work = "tasks";

/**
 * The same database, whose commits notify other processes by NATS and not by the store. Notifications may
 * be lost; polling covers that, and all subscribers are called when NATS is back.
 */
export function notifyingByNats(database: Database, parts: NatsNotificationParts): Database {
  const { clock, origin } = parts;
  const workListeners = new Set<Listener>();
  const listeners = channelListeners();
  const heard = new Map<string, number>();
  const stops = new Map<string, () => void>();
  /** What is to be told when the gap has passed, or when there is a connection. */
  const waiting = new Set<string>();
  const payload = Buffer.from(origin);
  let stopOnConnected: (() => void) | undefined;
  let cancelGap: (() => void) | undefined;
  let closed = false;
  const timers = new Set<() => void>();

  const nats = () => {
    const connection = parts.nats();
    stopOnConnected ??= connection.onConnected(() => {
      sendWaiting();
      // What was told meanwhile is lost.
      for (const listener of workListeners) listener();
      listeners.notify();
    });
    return connection;
  };

  const sendWaiting = () => {
    const connection = nats();
    if (connection.state === "connecting") return;
    for (const name of waiting) {
      connection.publish(subjectOf(connection.namespace, "wake", name), [payload]);
    }
    waiting.clear();
  };

  /** Tells at once, and after that what comes within the gap at its end. */
  const tell = (name: string) => {
    if (closed) return;
    waiting.add(name);
    if (cancelGap) return;
    sendWaiting();
    cancelGap = clock.after(gapMs, () => {
      cancelGap = undefined;
      if (waiting.size > 0 && nats().state !== "connecting") sendWaiting();
    });
  };

  const tellOf = ({ notify = false, channels = [] }: WriteOptions) => {
    if (notify) {
      for (const listener of workListeners) listener("own");
      tell(work);
    }
    // Parts of this process listen too.
    if (channels.length > 0) listeners.notify(channels);
    for (const channel of channels) tell(tokenOf(channel));
  };

  const tellLater = () => {
    for (const delayMs of callerDelaysMs) {
      const cancel = afterUnref(delayMs, () => {
        timers.delete(cancel);
        tell(work);
      });
      timers.add(cancel);
    }
  };

  /** Hears a subject while it has listeners. */
  const hear = (name: string, onWake: () => void): (() => void) => {
    heard.set(name, (heard.get(name) ?? 0) + 1);
    if (!stops.has(name)) {
      const connection = nats();
      const stop = connection.subscribe(
        subjectOf(connection.namespace, "wake", name),
        ({ data }) => {
          if (Buffer.compare(data, payload) !== 0) onWake();
        },
      );
      stops.set(name, stop);
    }
    return () => {
      const left = heard.get(name)! - 1;
      heard.set(name, left);
      if (left > 0) return;
      stops.get(name)?.();
      stops.delete(name);
    };
  };

  return {
    ...database,
    async write(statements, options = {}) {
      try {
        const tables = await database.write(statements, options);
        tellOf(options);
        return tables;
      } catch (error) {
        // It may have been stored.
        if (hasCode(error, "unknown_outcome")) tellOf(options);
        throw error;
      }
    },
    subscribe(listener, channel) {
      if (closed) return () => {};
      const remove =
        channel === undefined
          ? (workListeners.add(listener), () => void workListeners.delete(listener))
          : listeners.add(channel, listener);
      const stop =
        channel === undefined
          ? hear(work, () => {
              for (const each of workListeners) each();
            })
          : hear(tokenOf(channel), () => listeners.notify([channel]));
      let isOver = false;
      return () => {
        if (isOver) return;
        isOver = true;
        remove();
        stop();
      };
    },
    within(handle) {
      const transaction = database.within(handle);
      return {
        async write(statements, options) {
          const tables = await transaction.write(statements, options);
          if (options?.notify) tellLater();
          return tables;
        },
      };
    },
    async close() {
      closed = true;
      workListeners.clear();
      listeners.clear();
      for (const cancel of timers) cancel();
      if (waiting.size > 0) {
        const connection = nats();
        await settledWithin(clock, lastMs, connection.started).catch(() => {});
        sendWaiting();
        await connection.flush();
      }
      cancelGap?.();
      stopOnConnected?.();
      for (const stop of stops.values()) stop();
      await database.close();
    },
  };
}

/** Channels are named by us; a subject holds them as a hash, so that any name will do. */
function tokenOf(channel: string): string {
  return crypto.hash("sha256", channel, "hex").slice(0, 32);
}
