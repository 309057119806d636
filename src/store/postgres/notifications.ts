import crypto from "node:crypto";
import type pg from "pg";
import { contentionMs } from "../../base/backoff.ts";
import { afterUnref, systemClock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import type { Listener, WriteOptions } from "../database.ts";
import type { Query } from "../sql.ts";

// A dead socket stays silent; a query now and then detects it. Polling covers what is missed.
const checkMs = 30_000;
// A caller that waits for one task after another should not connect for each.
const lingerMs = 2_000;
// An unreachable server does not confirm a close, and the caller should not wait for it.
const closeTimeoutMs = 1_000;
const signatureChars = 22;
// The server refuses 8,000 bytes and more. A receiver that gets no payload reads the rows.
const maxPayloadBytes = 7_999 - signatureChars;

/**
 * What is needed to derive the name of a channel and to sign payloads. Without a secret,
 * notifications are sent without payloads.
 */
export type ChannelKey = { readonly schema: string; readonly secret: string | undefined };

type NotificationParts = {
  schema: string;
  channelKey: () => Promise<ChannelKey>;
  /** A client that is not connected yet; undefined if no notification would arrive. */
  open: () => Promise<pg.Client | undefined>;
  log: Logger;
  /** Called when a notification's payload was not signed by a pod. */
  onForged: () => void;
};

/**
 * Listens for notifications on a connection of its own, while there are subscribers, and only on
 * channels that they want: one channel may have many where another has few. This is only an accelerator:
 * behind a transaction pooler nothing would arrive, so there it does not listen, and polling finds
 * new work.
 */
export function listenForNotifications({
  schema,
  channelKey,
  open,
  log,
  onForged,
}: NotificationParts) {
  const workListeners = new Set<Listener>();
  /** Listeners, by channel. */
  const channelListeners = new Map<string, Set<Listener>>();
  /** The channels that the current connection listens on, with their listeners. */
  let listening = new Map<string, Set<Listener>>();
  let tuneChain = Promise.resolve();
  let secret: string | undefined;
  let client: pg.Client | undefined;
  let state: "idle" | "opening" | "listening" | "resting" | "pointless" | "closed" = "idle";
  let failures = 0;
  let cancel = () => {};

  const notify = (channel: string, payload?: string) => {
    for (const listener of listening.get(channel) ?? []) listener(undefined, payload);
  };
  const receive = (channel: string, payload: string) => {
    if (payload === "") return notify(channel);
    const verified = secret === undefined ? undefined : verifyPayload(secret, channel, payload);
    if (verified === undefined) onForged();
    else notify(channel, verified);
  };
  const subscribers = () => workListeners.size + channelListeners.size;

  const wanted = (key: ChannelKey | undefined) => {
    const channels = new Map<string, Set<Listener>>();
    if (workListeners.size > 0) channels.set(hintChannel(schema), workListeners);
    for (const [name, listeners] of key ? channelListeners : [])
      channels.set(secretChannel(key!, name), listeners);
    return channels;
  };

  /** Listens on wanted channels and unlistens the others, one by one. */
  const tune = (tuned: pg.Client): Promise<void> =>
    (tuneChain = tuneChain.then(() => retune(tuned)));
  const retune = async (tuned: pg.Client): Promise<void> => {
    let key: ChannelKey | undefined;
    while (client === tuned) {
      // A listener of a channel may have been added while another channel was set up.
      if (channelListeners.size > 0 && !key) {
        key = await channelKey();
        secret = key.secret;
        continue;
      }
      const channels = wanted(key);
      const unwanted = [...listening.keys()].find(
        (name) => listening.get(name) !== channels.get(name),
      );
      const missing = [...channels].find(([name]) => !listening.has(name));
      if (unwanted !== undefined) {
        listening.delete(unwanted);
        await tuned.query(`unlisten ${unwanted}`);
      } else if (missing !== undefined) {
        const [name, listeners] = missing;
        listening.set(name, listeners);
        await tuned.query(`listen ${name}`);
        // A transaction may have committed before this connection listened.
        if (client === tuned) notify(name);
      } else return;
    }
  };

  const start = async (): Promise<void> => {
    state = "opening";
    cancel();
    let made: pg.Client | undefined;
    try {
      made = await open();
      if (isClosed()) return;
      if (!made) {
        state = "pointless";
        log.info({}, "no notifications through the pooler, polling instead");
        return;
      }
      const opened = made;
      client = opened;
      opened.on("notification", ({ channel, payload = "" }) => receive(channel, payload));
      opened.on("error", () => again(opened));
      opened.on("end", () => again(opened));
      await opened.connect();
      if (client !== opened) return;
      listening = new Map();
      tuneChain = Promise.resolve();
      await tune(opened);
      if (client !== opened) return;
      failures = 0;
      state = "listening";
      // Another channel may have been added meanwhile.
      await tune(opened);
      if (client !== opened) return;
      if (subscribers() === 0) linger();
      else check(opened);
    } catch (error) {
      log.debug({ error: String(error) }, "listening for notifications failed, polling meanwhile");
      again(made);
    }
  };

  const isClosed = () => state === "closed";

  const again = (broken: pg.Client | undefined) => {
    if (state === "closed" || client !== broken) return;
    void leave();
    if (subscribers() === 0) return;
    state = "resting";
    cancel = systemClock.after(contentionMs(++failures, systemRandom), () => void start());
  };

  const check = (checked: pg.Client) => {
    cancel();
    cancel = afterUnref(checkMs, () => {
      checked.query("select 1").then(
        () => state === "listening" && client === checked && subscribers() > 0 && check(checked),
        () => again(checked),
      );
    });
  };

  /** Without subscribers the process may end, and the connection is closed soon. */
  const linger = () => {
    cancel();
    setRef(client, false);
    cancel = afterUnref(lingerMs, () => void leave());
  };

  const leave = async (): Promise<void> => {
    cancel();
    const left = client;
    client = undefined;
    if (state !== "closed") state = "idle";
    if (left) await endWithin(left);
  };

  const retuneSoon = () => {
    const tuned = client!;
    tune(tuned).catch(() => again(tuned));
  };

  const add = (listener: Listener, channel: string | undefined): (() => void) => {
    if (channel === undefined) {
      workListeners.add(listener);
      return () => workListeners.delete(listener);
    }
    const listeners = channelListeners.get(channel) ?? new Set();
    channelListeners.set(channel, listeners.add(listener));
    return () => {
      if (listeners.delete(listener) && listeners.size === 0) channelListeners.delete(channel);
    };
  };

  return {
    subscribe(listener: Listener, channel?: string): () => void {
      const remove = add(listener, channel);
      if (state === "idle") void start();
      else if (state === "listening") {
        retuneSoon();
        if (subscribers() === 1) {
          setRef(client, true);
          check(client!);
        }
      }
      return () => {
        remove();
        if (subscribers() > 0) {
          if (state === "listening") retuneSoon();
          return;
        }
        if (state === "listening") linger();
        else if (state === "resting") void leave();
      };
    },
    async close(): Promise<void> {
      state = "closed";
      workListeners.clear();
      channelListeners.clear();
      await leave();
    },
  };
}

export const hintChannel = (schema: string) => `${schema}_hint`;
/** The name of a channel in Postgres, where names are short: a hash of ours. */
export const secretChannel = (key: ChannelKey, name: string) =>
  `flotilla_mail_${crypto.hash("sha256", JSON.stringify([key.schema, key.secret, name]), "hex").slice(0, 32)}`;

export function secretTableQuery(schema: string): Query {
  return { text: `select to_regclass($1)::text as there`, values: [`${schema}.bus_secret`] };
}

export function secretQuery(schema: string): Query {
  return { text: `select secret from ${schema}.bus_secret`, values: [] };
}

/**
 * Notifies listeners when the transaction commits, if any pod is idle: transactions with a
 * notification commit one after the other, over all databases of the server.
 */
export function notifyQuery(schema: string): Query {
  const text = `select pg_notify($1, '')
    where exists (select 1 from ${schema}.pod where waiting = 1 and status = 'up')`;
  return { text, values: [hintChannel(schema)] };
}

/**
 * Notifies these channels, with their payloads if they are short. A `lossy` transaction is answered
 * before it is on disk. All in one statement, because each costs as much as a write.
 */
export function notifyChannelsQuery(
  key: ChannelKey,
  { channels = [], payloads, lossy = false }: WriteOptions,
): Query {
  const answeredEarly = "set_config('synchronous_commit', 'off', true)";
  if (channels.length === 0) return { text: `select ${answeredEarly}`, values: [] };
  const notifications = channels.map((name) => {
    const channel = secretChannel(key, name);
    return { channel, payload: signPayload(key, channel, payloads?.get(name) ?? "") };
  });
  const [first] = notifications;
  if (notifications.length === 1) {
    return {
      text: `select pg_notify($1, $2)${lossy ? `, ${answeredEarly}` : ""}`,
      values: [first!.channel, first!.payload],
    };
  }
  return {
    text: `select pg_notify(told ->> 'channel', told ->> 'payload')${lossy ? `, ${answeredEarly}` : ""}
      from jsonb_array_elements($1::jsonb) told`,
    values: [JSON.stringify(notifications)],
  };
}

/** Ends a connection, and waits for that only for a limited time. */
function endWithin(client: pg.Client): Promise<void> {
  setRef(client, false);
  let cancel = () => {};
  const longEnough = new Promise<void>((resolve) => {
    cancel = afterUnref(closeTimeoutMs, resolve);
  });
  const ended = client.end().catch(() => {});
  return Promise.race([ended, longEnough]).finally(cancel);
}

/** Sets whether a connection keeps the process alive. The driver's types lack this. */
function setRef(client: pg.Client | undefined, needed: boolean): void {
  const socket = client as { ref?: () => void; unref?: () => void } | undefined;
  if (needed) socket?.ref?.();
  else socket?.unref?.();
}

/**
 * A role that may only connect can notify any channel whose name it learns, so payloads are signed
 * with a secret that only pods can read. A plain notification has no payload.
 */
function signPayload({ secret }: ChannelKey, channel: string, payload: string): string {
  if (secret === undefined || payload === "" || Buffer.byteLength(payload) > maxPayloadBytes)
    return "";
  return signatureOf(secret, channel, payload) + payload;
}

/** The payload of a notification; undefined if no pod signed it for this channel. */
function verifyPayload(secret: string, channel: string, payload: string): string | undefined {
  const body = payload.slice(signatureChars);
  const signature = Buffer.from(payload.slice(0, signatureChars));
  const expected = Buffer.from(signatureOf(secret, channel, body));
  return signature.length === expected.length && crypto.timingSafeEqual(signature, expected)
    ? body
    : undefined;
}

function signatureOf(secret: string, channel: string, payload: string): string {
  const whole = crypto
    .createHmac("sha256", secret)
    .update(`${channel}\n${payload}`)
    .digest("base64url");
  return whole.slice(0, signatureChars);
}
