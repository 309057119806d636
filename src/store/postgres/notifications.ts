import crypto from "node:crypto";
import type pg from "pg";
import { contentionMs } from "../../base/backoff.ts";
import { afterUnlessOver, systemClock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import { systemRandom } from "../../base/random.ts";
import type { Listener, WriteOptions } from "../database.ts";
import type { Query } from "../sql.ts";

// A dead socket says nothing; asking now and then shows it. Polling makes up for what is missed.
const checkMs = 30_000;
// Whoever waits for one task after the other shouldn't connect for each.
const lingerMs = 2_000;
// A server that is out of reach says no goodbye, and nobody should wait for it.
const goodbyeMs = 1_000;

type HintParts = {
  schema: string;
  mailKey: () => Promise<MailKey>;
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
export function listenForHints({ schema, mailKey, open, log, onForged }: HintParts) {
  const workers = new Set<Listener>();
  /** Those who wait for letters, by their address. */
  const mail = new Map<string, Set<Listener>>();
  /** The channels that the present connection listens to, and who is told of what comes there. */
  let heard = new Map<string, Set<Listener>>();
  let tuning = Promise.resolve();
  let secret: string | undefined;
  let client: pg.Client | undefined;
  let state: "idle" | "opening" | "listening" | "resting" | "pointless" | "closed" = "idle";
  let failures = 0;
  let cancel = () => {};

  const tell = (channel: string, letters?: string) => {
    for (const listener of heard.get(channel) ?? []) listener(undefined, letters);
  };
  const hear = (channel: string, payload: string) => {
    if (payload === "") return tell(channel);
    const letters = secret === undefined ? undefined : openLetters(secret, channel, payload);
    if (letters === undefined) onForged();
    else tell(channel, letters);
  };
  const subscribers = () => workers.size + mail.size;

  const wanted = (key: MailKey | undefined) => {
    const channels = new Map<string, Set<Listener>>();
    if (workers.size > 0) channels.set(channelOf(schema), workers);
    for (const [address, there] of key ? mail : [])
      channels.set(mailChannelOf(key!, address), there);
    return channels;
  };

  /** Listens to what is wanted and isn't heard yet, and no longer to what isn't wanted, one by one. */
  const tune = (tuned: pg.Client): Promise<void> => (tuning = tuning.then(() => retune(tuned)));
  const retune = async (tuned: pg.Client): Promise<void> => {
    let key: MailKey | undefined;
    while (client === tuned) {
      // Somebody may have come for letters while another channel was tuned to.
      if (mail.size > 0 && !key) {
        key = await mailKey();
        secret = key.secret;
        continue;
      }
      const channels = wanted(key);
      const over = [...heard.keys()].find((name) => heard.get(name) !== channels.get(name));
      const missing = [...channels].find(([name]) => !heard.has(name));
      if (over !== undefined) {
        heard.delete(over);
        await tuned.query(`unlisten ${over}`);
      } else if (missing !== undefined) {
        const [name, listeners] = missing;
        heard.set(name, listeners);
        await tuned.query(`listen ${name}`);
        // Something may have been committed while nobody listened.
        if (client === tuned) tell(name);
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
      opened.on("notification", ({ channel, payload = "" }) => hear(channel, payload));
      opened.on("error", () => again(opened));
      opened.on("end", () => again(opened));
      await opened.connect();
      if (client !== opened) return;
      heard = new Map();
      tuning = Promise.resolve();
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
    cancel = afterUnlessOver(checkMs, () => {
      asked.query("select 1").then(
        () => state === "listening" && client === asked && subscribers() > 0 && check(asked),
        () => again(asked),
      );
    });
  };

  /** Nobody subscribes: the process may end now, and the connection is closed before long. */
  const linger = () => {
    cancel();
    refer(client, false);
    cancel = afterUnlessOver(lingerMs, () => void leave());
  };

  const leave = async (): Promise<void> => {
    cancel();
    const left = client;
    client = undefined;
    if (state !== "closed") state = "idle";
    if (left) await parted(left);
  };

  const retuneSoon = () => {
    const tuned = client!;
    tune(tuned).catch(() => again(tuned));
  };

  const add = (listener: Listener, mailOf: string | undefined): (() => void) => {
    if (mailOf === undefined) {
      workers.add(listener);
      return () => workers.delete(listener);
    }
    const there = mail.get(mailOf) ?? new Set();
    mail.set(mailOf, there.add(listener));
    return () => {
      if (there.delete(listener) && there.size === 0) mail.delete(mailOf);
    };
  };

  return {
    subscribe(listener: Listener, mailOf?: string): () => void {
      const remove = add(listener, mailOf);
      if (state === "idle") void start();
      else if (state === "listening") {
        retuneSoon();
        if (subscribers() === 1) {
          refer(client, true);
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
      workers.clear();
      mail.clear();
      await leave();
    },
  };
}

/** Ends a connection, and waits for that only so long. */
function parted(client: pg.Client): Promise<void> {
  refer(client, false);
  let cancel = () => {};
  const longEnough = new Promise<void>((resolve) => {
    cancel = afterUnlessOver(goodbyeMs, resolve);
  });
  const ended = client.end().catch(() => {});
  return Promise.race([ended, longEnough]).finally(cancel);
}

/** Whether a connection keeps the process from ending. The driver's types don't know of this. */
function refer(client: pg.Client | undefined, needed: boolean): void {
  const socket = client as { ref?: () => void; unref?: () => void } | undefined;
  if (needed) socket?.ref?.();
  else socket?.unref?.();
}

export const channelOf = (schema: string) => `${schema}_hint`;
/** Everybody hears only what is for them; names of channels are short, and addresses may be long. */
export const mailChannelOf = (key: MailKey, address: string) =>
  `flotilla_mail_${crypto.hash("sha256", JSON.stringify([key.schema, key.secret, address]), "hex").slice(0, 32)}`;

/**
 * What it takes to know the channel of an address, and to sign what is sent there. Without a secret, the pod at
 * the address is told that there are letters, and gets none.
 */
export type MailKey = { readonly schema: string; readonly secret: string | undefined };

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
export function hintQuery(schema: string): Query {
  const text = `select pg_notify($1, '')
    where exists (select 1 from ${schema}.pod where waiting = 1 and status = 'up')`;
  return { text, values: [channelOf(schema)] };
}

/**
 * Tells those at these addresses that there are letters, and brings them along where they are short.
 * Where it is lossy, the transaction that it is sent in is answered before it is on the disk. All in one
 * statement: each costs as much as a letter.
 */
export function mailQuery(
  key: MailKey,
  { mail = [], letters, lossy = false }: WriteOptions,
): Query {
  const answeredEarly = "set_config('synchronous_commit', 'off', true)";
  if (mail.length === 0) return { text: `select ${answeredEarly}`, values: [] };
  const told = mail.map((address) => {
    const channel = mailChannelOf(key, address);
    return { channel, payload: signed(key, channel, letters?.get(address) ?? "") };
  });
  const [first] = told;
  if (told.length === 1) {
    return {
      text: `select pg_notify($1, $2)${lossy ? `, ${answeredEarly}` : ""}`,
      values: [first!.channel, first!.payload],
    };
  }
  return {
    text: `select pg_notify(told ->> 'channel', told ->> 'payload')${lossy ? `, ${answeredEarly}` : ""}
      from jsonb_array_elements($1::jsonb) told`,
    values: [JSON.stringify(told)],
  };
}

const signatureChars = 22;
// The server refuses 8,000 bytes and more. Whoever hears of letters without them looks for them.
const letterBytes = 7_999 - signatureChars;

/**
 * A role that may only connect can notify any channel whose name it learns, so letters are signed with what only
 * pods may read. A plain hint carries nothing.
 */
function signed({ secret }: MailKey, channel: string, letters: string): string {
  if (secret === undefined || letters === "" || Buffer.byteLength(letters) > letterBytes) return "";
  return signatureOf(secret, channel, letters) + letters;
}

/** The letters that a notification brings; undefined where no pod signed them for this channel. */
function openLetters(secret: string, channel: string, payload: string): string | undefined {
  const letters = payload.slice(signatureChars);
  const given = Buffer.from(payload.slice(0, signatureChars));
  const right = Buffer.from(signatureOf(secret, channel, letters));
  return given.length === right.length && crypto.timingSafeEqual(given, right)
    ? letters
    : undefined;
}

function signatureOf(secret: string, channel: string, letters: string): string {
  const whole = crypto
    .createHmac("sha256", secret)
    .update(`${channel}\n${letters}`)
    .digest("base64url");
  return whole.slice(0, signatureChars);
}
