import crypto from "node:crypto";
import { contentionMs } from "../../base/backoff.ts";
import { type Clock, sleep } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import type { Bus } from "../bus.ts";
import { afterMicrotasks } from "../after-microtasks.ts";
import { createEndpoint } from "../endpoint.ts";
import { type NatsConnection, type NatsMessage, subjectOf } from "./connection.ts";
import { createJoiner, cutIntoPieces, maxEnvelopeBytes, readPiece } from "./pieces.ts";

export type NatsBusOptions = {
  /** Unique, and new with every start, because envelopes are numbered from one. */
  address: string;
  nats: NatsConnection;
  /** Reads the secret that processes of this store sign their envelopes with. It is asked until it answers. */
  readSecret: () => Promise<string>;
  clock: Clock;
  random: Random;
  log?: Logger;
  /** Encodes envelopes, as what is stored is encoded. Default: they are sent as they are. */
  text?: { encode(text: string): string; decode(sent: string): string } | undefined;
  /** Called for each message that no process of this store has signed. */
  onForged?: () => void;
};

// What is sent before the connection is there and the secret is known.
const maxEarlyChars = 16 * 1024 * 1024;
// What a turn of the event loop sends is packed up to this. A larger envelope goes alone.
const maxPackedChars = 128 * 1024;
// Their numbers are in the subject of the reply, and servers take 4 KiB of subjects.
const maxPackedAsks = 100;
const tellForgedMs = 10_000;

type Early = { readonly to: string; readonly text: string; readonly ask: number | undefined };
/** Envelopes for one address. */
type Pack = { readonly texts: string[]; readonly asks: number[] };

/**
 * A bus on core NATS: an address is a subject. All envelopes that a turn of the event loop has for it are
 * packed into an array, which is one or several pieces: each costs two signatures, and servers and processes
 * that wake up for it. Nothing is kept for a process that isn't there: a request to it is rejected at once
 * with `unavailable`, and was not delivered.
 */
export function createNatsBus(options: NatsBusOptions): Bus {
  const { address, nats, clock, random, log = silentLogger, onForged = () => {} } = options;
  const { encode, decode } = options.text ?? { encode: same, decode: same };
  const own = mailSubject(nats.namespace, address);
  const joiner = createJoiner({ clock });
  const closing = new AbortController();
  let secret: string | undefined;
  let early: Early[] = [];
  let earlyChars = 0;
  let packs = new Map<string, Pack>();
  let packedChars = 0;
  let packedAsks = 0;
  let lastSeq = 0;
  let forged = 0;
  let toldMs = -Infinity;

  const endpoint = createEndpoint({
    address,
    clock,
    log,
    transmit(to, text, ask) {
      if (secret !== undefined && nats.state !== "connecting") return pack({ to, text, ask });
      if (earlyChars + text.length > maxEarlyChars) {
        return refuse(ask === undefined ? [] : [ask], fullError());
      }
      early.push({ to, text, ask });
      earlyChars += text.length;
    },
  });

  const refuse = (asks: readonly number[], error: FlotillaError) => {
    for (const ask of asks) endpoint.refuse(ask, error);
  };

  const pack = ({ to, text, ask }: Early): void => {
    const isFull = packedChars + text.length > maxPackedChars || packedAsks >= maxPackedAsks;
    if (isFull) deliverPacks();
    if (packs.size === 0) void afterMicrotasks().then(deliverPacks);
    const { texts, asks } = packs.get(to) ?? { texts: [], asks: [] };
    texts.push(text);
    packedChars += text.length;
    if (ask !== undefined) {
      asks.push(ask);
      packedAsks++;
    }
    packs.set(to, { texts, asks });
    if (packedChars > maxPackedChars) deliverPacks();
  };

  const deliverPacks = (): void => {
    const packed = packs;
    packs = new Map();
    packedChars = packedAsks = 0;
    for (const [to, each] of packed) deliver(to, each);
  };

  const deliver = (to: string, { texts, asks }: Pack): void => {
    let encoded: string;
    try {
      encoded = encode(texts.length === 1 ? texts[0]! : `[${texts.join(",")}]`);
    } catch (error) {
      log.error({ error: messageOf(error) }, "envelope not encoded");
      return refuse(asks, new FlotillaError("codec_failed", messageOf(error)));
    }
    const envelope = { sender: address, seq: ++lastSeq, text: encoded };
    const pieces = cutIntoPieces({ secret: secret!, address: to }, envelope);
    if (!pieces) return refuse(asks, tooLargeError());
    const reply = asks.length === 0 ? {} : { reply: `${own}.${asks.join("-")}` };
    const outcome = nats.publish(mailSubject(nats.namespace, to), pieces, reply);
    if (outcome === "away") refuse(asks, awayError());
    else if (outcome === "full") refuse(asks, fullError());
  };

  /** What waited is sent in its order. */
  const begin = async (): Promise<void> => {
    await nats.started.catch(() => {});
    for (let tries = 1; secret === undefined; tries++) {
      try {
        secret = await options.readSecret();
      } catch (error) {
        log.debug({ error: messageOf(error) }, "reading the secret of the bus failed");
        await sleep(clock, contentionMs(tries, random), closing.signal);
      }
    }
    const waited = early;
    early = [];
    earlyChars = 0;
    for (const each of waited) if (!closing.signal.aborted) pack(each);
  };

  const receive = ({ data }: NatsMessage) => {
    if (secret === undefined) return;
    const piece = readPiece({ secret, address }, data);
    if (!piece) return noteForged();
    const text = joiner.add(piece);
    if (text !== undefined) endpoint.receive(piece.sender, decode(text));
  };

  const noteForged = () => {
    forged++;
    onForged();
    const nowMs = clock.monotonic();
    if (nowMs - toldMs < tellForgedMs) return;
    toldMs = nowMs;
    log.warn(
      { messages: forged, subject: own },
      "messages dropped that no pod has signed: give Flotilla a NATS account of its own",
    );
    forged = 0;
  };

  const stops = [
    nats.subscribe(own, receive),
    nats.subscribe(`${own}.*`, ({ subject, isNoResponders }) => {
      const asks = subject
        .slice(own.length + 1)
        .split("-")
        .map(Number);
      if (isNoResponders) refuse(asks, absentError());
    }),
  ];
  begin().catch(() => {});

  const { receive: _, refuse: __, ...rest } = endpoint;
  return {
    ...rest,
    async close() {
      if (closing.signal.aborted) return;
      deliverPacks();
      endpoint.close();
      closing.abort();
      for (const stop of stops) stop();
      joiner.clear();
      await nats.flush();
    },
  };
}

const same = (text: string) => text;

/** Addresses are made by us; one that can't be part of a subject is there as its hash. */
function mailSubject(namespace: string, address: string): string {
  const isPlain = /^[A-Za-z0-9_-]{1,64}$/.test(address);
  const name = isPlain ? address : `h-${crypto.hash("sha256", address, "hex")}`;
  return subjectOf(namespace, "mail", name);
}

function absentError(): FlotillaError {
  return new FlotillaError(
    "unavailable",
    "no process is at that address, so the request was not delivered: send it again, or to another",
  );
}

function awayError(): FlotillaError {
  return new FlotillaError(
    "unavailable",
    "NATS is away, so the request was not delivered: send it again",
  );
}

function fullError(): FlotillaError {
  return new FlotillaError(
    "overloaded",
    "too many envelopes wait to be sent, so the request was not delivered: send it again later",
  );
}

function tooLargeError(): FlotillaError {
  return new FlotillaError(
    "payload_too_large",
    `an envelope between pods may have ${maxEnvelopeBytes} bytes: send less at once`,
  );
}
