import crypto from "node:crypto";
import type pg from "pg";
import { contentionMs } from "../../base/backoff.ts";
import { afterUnref, systemClock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import type { Listener, WriteOptions } from "../database.ts";
import type { Query } from "../sql.ts";

// A dead socket says nothing; asking now and then shows it. Polling makes up for what is missed.
const checkMs = 30_000;
// Whoever waits for one task after the other shouldn't connect for each.
const lingerMs = 2_000;
// A server that is out of reach says no goodbye, and nobody should wait for it.
const closeTimeoutMs = 1_000;

type NotificationParts = {
  schema: string;
  channelKey: () => Promise<ChannelKey>;
  /** A client that has yet to connect, or undefined where no hint would arrive. */
  open: () => Promise<pg.Client | undefined>;
  log: Logger;
  /** A notification brought what no pod has signed. */
  onForged: () => void;
};

/**
 * Listens for hints on a connection of its own, for as long as somebody subscribes, and only to what
 * somebody wants to hear: letters are many where tasks are few. Only an accelerator: behind a pooler
 * that deals out connections per transaction nothing would arrive, so there nobody listens, and polling
 * has to do.
 */
export function listenForNotifications({
  schema,
  channelKey,
  open,
  log,
  onForged,
}: NotificationParts) {
  const taskListeners = new Set<Listener>();
  /** Those who wait for letters, by their address. */
  const channelListeners = new Map<string, Set<Listener>>();
  /** The channels that the present connection listens to, and who is told of what comes there. */
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
  const subscribers = () => taskListeners.size + channelListeners.size;

  const wanted = (key: ChannelKey | undefined) => {
    const channels = new Map<string, Set<Listener>>();
    if (taskListeners.size > 0) channels.set(taskChannel(schema), taskListeners);
    for (const [address, there] of key ? channelListeners : [])
      channels.set(addressChannel(key!, address), there);
    return channels;
  };

  /** Listens to what is wanted and isn't heard yet, and no longer to what isn't wanted, one by one. */
  const tune = (tuned: pg.Client): Promise<void> =>
    (tuneChain = tuneChain.then(() => retune(tuned)));
  const retune = async (tuned: pg.Client): Promise<void> => {
    let key: ChannelKey | undefined;
    while (client === tuned) {
      // Somebody may have come for letters while another channel was tuned to.
      if (channelListeners.size > 0 && !key) {
        key = await channelKey();
        secret = key.secret;
        continue;
      }
      const channels = wanted(key);
      const over = [...listening.keys()].find((name) => listening.get(name) !== channels.get(name));
      const missing = [...channels].find(([name]) => !listening.has(name));
      if (over !== undefined) {
        listening.delete(over);
        await tuned.query(`unlisten ${over}`);
      } else if (missing !== undefined) {
        const [name, listeners] = missing;
        listening.set(name, listeners);
        await tuned.query(`listen ${name}`);
        // Something may have been committed while nobody listened.
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
        log.info({}, "no hints come through the pooler in between; new tasks are found by polling");
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
      // Somebody may have come for the other meanwhile.
      await tune(opened);
      if (client !== opened) return;
      if (subscribers() === 0) linger();
      else check(opened);
    } catch (error) {
      log.debug({ error: String(error) }, "listening for hints failed; polling meanwhile");
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

  const check = (asked: pg.Client) => {
    cancel();
    cancel = afterUnref(checkMs, () => {
      asked.query("select 1").then(
        () => state === "listening" && client === asked && subscribers() > 0 && check(asked),
        () => again(asked),
      );
    });
  };

  /** Nobody subscribes: the process may end now, and the connection is closed before long. */
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
      taskListeners.add(listener);
      return () => taskListeners.delete(listener);
    }
    const there = channelListeners.get(channel) ?? new Set();
    channelListeners.set(channel, there.add(listener));
    return () => {
      if (there.delete(listener) && there.size === 0) channelListeners.delete(channel);
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
      taskListeners.clear();
      channelListeners.clear();
      await leave();
    },
  };
}

/** Ends a connection, and waits for that only so long. */
function endWithin(client: pg.Client): Promise<void> {
  setRef(client, false);
  let cancel = () => {};
  const longEnough = new Promise<void>((resolve) => {
    cancel = afterUnref(closeTimeoutMs, resolve);
  });
  const ended = client.end().catch(() => {});
  return Promise.race([ended, longEnough]).finally(cancel);
}

/** Whether a connection keeps the process from ending. The driver's types don't know of this. */
function setRef(client: pg.Client | undefined, needed: boolean): void {
  const socket = client as { ref?: () => void; unref?: () => void } | undefined;
  if (needed) socket?.ref?.();
  else socket?.unref?.();
}

export const taskChannel = (schema: string) => `${schema}_hint`;
/** Everybody hears only what is for them; names of channels are short, and addresses may be long. */
export const addressChannel = (key: ChannelKey, address: string) =>
  `flotilla_mail_${crypto.hash("sha256", JSON.stringify([key.schema, key.secret, address]), "hex").slice(0, 32)}`;

/**
 * What it takes to know the channel of an address, and to sign what is sent there. Without a secret, the pod at
 * the address is told that there are letters, and gets none.
 */
export type ChannelKey = { readonly schema: string; readonly secret: string | undefined };

export function secretTableQuery(schema: string): Query {
  return { text: `select to_regclass($1)::text as there`, values: [`${schema}.bus_secret`] };
}

export function secretQuery(schema: string): Query {
  return { text: `select secret from ${schema}.bus_secret`, values: [] };
}

/**
 * Tells those who listen, once the transaction that it is sent in has committed, if any of them waits:
 * transactions that tell something commit one after the other, in all databases of the server.
 */
export function notifyQuery(schema: string): Query {
  const text = `select pg_notify($1, '')
    where exists (select 1 from ${schema}.pod where waiting = 1 and status = 'up')`;
  return { text, values: [taskChannel(schema)] };
}

/**
 * Tells those at these addresses that there are letters, and brings them along where they are short.
 * Where it is lossy, the transaction that it is sent in is answered before it is on the disk. All in one
 * statement: each costs as much as a letter.
 */
export function notifyChannelsQuery(
  key: ChannelKey,
  { channels = [], payloads, lossy = false }: WriteOptions,
): Query {
  const answeredEarly = "set_config('synchronous_commit', 'off', true)";
  if (channels.length === 0) return { text: `select ${answeredEarly}`, values: [] };
  const notifications = channels.map((address) => {
    const channel = addressChannel(key, address);
    return { channel, payload: signPayload(key, channel, payloads?.get(address) ?? "") };
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

const signatureChars = 22;
// The server refuses 8,000 bytes and more. Whoever hears of letters without them looks for them.
const maxEnvelopeBytes = 7_999 - signatureChars;

/**
 * A role that may only connect can notify any channel whose name it learns, so letters are signed with what only
 * pods may read. A plain hint carries nothing.
 */
function signPayload({ secret }: ChannelKey, channel: string, payload: string): string {
  if (secret === undefined || payload === "" || Buffer.byteLength(payload) > maxEnvelopeBytes)
    return "";
  return signatureOf(secret, channel, payload) + payload;
}

/** The letters that a notification brings; undefined where no pod signed them for this channel. */
function verifyPayload(secret: string, channel: string, payload: string): string | undefined {
  const body = payload.slice(signatureChars);
  const given = Buffer.from(payload.slice(0, signatureChars));
  const right = Buffer.from(signatureOf(secret, channel, body));
  return given.length === right.length && crypto.timingSafeEqual(given, right) ? body : undefined;
}

function signatureOf(secret: string, channel: string, payload: string): string {
  const whole = crypto
    .createHmac("sha256", secret)
    .update(`${channel}\n${payload}`)
    .digest("base64url");
  return whole.slice(0, signatureChars);
}
