/**
 * Envelopes that are lost although the store said that it has them, as what was written without waiting for
 * the disk is when a database dies. And which ways envelopes took: with their notification, from their row,
 * or both.
 */
import { FlotillaError } from "../../../src/base/errors.ts";
import { decodeNotification, encodeNotification } from "../../../src/bus/envelope.ts";
import { insertEnvelopes, readEnvelopes } from "../../../src/bus/sql.ts";
import { logOf } from "../../../src/sessions/log/placement.ts";
import type { Head } from "../../../src/sessions/log/journal.ts";
import type { Database, Row, WriteOptions } from "../../../src/store/database.ts";
import { sql, type Statement } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";

export type EnvelopeFaults = {
  /** How likely an envelope is lost. */
  lost: number;
  /** From this address, all that says whether these are followed or watched is lost until then. */
  loseFollowing(from: string, names: readonly string[], untilMs: number): void;
  /** What is for this address stays in its rows until then: no notification comes, and no read succeeds. */
  cutOff(address: string, untilMs: number): void;
  through(database: Database): Database;
};

export type EnvelopeFaultsOptions = {
  /**
   * What starts work is lost only the first time, and what says that work is under way never, so that no
   * runner that is well can be taken for lost.
   */
  once: boolean;
  heads: () => ReadonlyMap<number, Head>;
};

type Sent = { readonly topic?: string; readonly body?: { readonly sessionId?: string } };
type Write = { readonly statements: readonly Statement[]; readonly options: WriteOptions };
type Numbered = { readonly sender: string; readonly seq: number };

const start =
  /session\.start.*?sessionId\W+(\w+).*?work\W+type\W+\w+\W+epoch\W+(\d+)\W+attempt\W+(\d+)/g;
const aboutFollowing = ["session.follow", "session.watch"];
const spared = { names: [], untilMs: -1 };
const roundTrip = sql`select 1 as one`;
// A statement is known by its template, which is the same object every time it is made.
const look = readEnvelopes("", 0).strings;

export function createEnvelopeFaults(
  world: World,
  { once, heads }: EnvelopeFaultsOptions,
): EnvelopeFaults {
  const { scheduler, count } = world;
  const started = new Set<string>();
  const deafTo = new Map<string, { readonly names: readonly string[]; readonly untilMs: number }>();
  const cut = new Map<string, number>();
  /** The term of the log that something was asked of, when it was. */
  const asked = new Map<string, { readonly logId: number; readonly term: number }>();

  const isCutOff = (address: string) => (cut.get(address) ?? 0) > scheduler.nowMs;

  const isSpared = (statements: readonly Statement[]): boolean => {
    const text = JSON.stringify(statements);
    if (text.includes("session.named")) return true;
    // By session, epoch and attempt: the rest of a header changes while its work waits to be begun.
    const starts = [...text.matchAll(start)].map(([, ...name]) => name.join());
    const isAgain = starts.some((each) => started.has(each));
    for (const each of starts) started.add(each);
    return isAgain;
  };

  const noteAsked = (payloads: ReadonlyMap<string, string>): void => {
    for (const [to, text] of payloads) {
      if (!text.includes('"session.ask"')) continue;
      const envelope = decodeNotification(text)!;
      const sessionId = (JSON.parse(envelope.body) as Sent[]).find(
        ({ topic }) => topic === "session.ask",
      )!.body!.sessionId!;
      const logId = logOf(sessionId, heads().size);
      asked.set(nameOf(to, envelope), { logId, term: heads().get(logId)?.term ?? 0 });
    }
  };
  const noteHanded = (address: string, envelope: Numbered): void => {
    const meant = asked.get(nameOf(address, envelope));
    const head = meant && heads().get(meant.logId);
    if (head?.owner === address && head.term > meant!.term) count("envelopes: for an earlier term");
  };

  /** What is left of a write if some of its envelopes are lost. Several rows for one address are spared. */
  const thinned = (statements: readonly Statement[], options: WriteOptions): Write => {
    const { payloads } = options;
    if (deafTo.size === 0 || !payloads) return { statements, options };
    const texts = [...payloads.values()];
    const { names, untilMs } = deafTo.get(decodeNotification(texts[0]!)?.sender ?? "") ?? spared;
    const isLost = ({ topic, body }: Sent): boolean =>
      aboutFollowing.includes(topic ?? "") &&
      names.some((name) => JSON.stringify(body).includes(`${name}"`));
    if (untilMs < scheduler.nowMs || texts.includes("")) return { statements, options };
    const left = new Map<string, string>();
    const rows = [...payloads].map(([address, text]) => {
      const envelope = decodeNotification(text)!;
      const all = JSON.parse(envelope.body) as Sent[];
      const kept = all.filter((each) => !isLost(each));
      if (kept.length < all.length) {
        count("fault: what is followed is lost");
        scheduler.note(`what ${envelope.sender} follows at ${address} is lost`);
      }
      const body = JSON.stringify(kept);
      left.set(address, encodeNotification({ ...envelope, body }));
      return { ...envelope, address, body };
    });
    return { statements: [insertEnvelopes(rows)], options: { ...options, payloads: left } };
  };

  /** Counts which way envelopes come to one receiver. */
  const createReader = () => {
    const carried = new Set<string>();
    const found = new Set<string>();
    const last = new Map<string, number>();
    const hand = (address: string, envelope: Numbered) => {
      last.set(envelope.sender, Math.max(envelope.seq, last.get(envelope.sender) ?? 0));
      noteHanded(address, envelope);
    };
    return {
      carry(address: string, text: string): void {
        const envelope = decodeNotification(text);
        if (!envelope) return count("envelopes: too long for their notification");
        const name = nameOf(address, envelope);
        if (envelope.after > (last.get(envelope.sender) ?? 0))
          return count("envelopes: before their turn");
        count("envelopes: carried");
        if (carried.has(name)) count("envelopes: carried twice");
        if (found.has(name)) count("envelopes: found and carried");
        carried.add(name);
        hand(address, envelope);
      },
      find(address: string, rows: readonly Row[]): void {
        for (const row of rows) {
          const envelope = { sender: String(row["sender"]), seq: Number(row["seq"]) };
          const name = nameOf(address, envelope);
          if (carried.has(name)) count("envelopes: carried and found");
          found.add(name);
          hand(address, envelope);
        }
      },
    };
  };

  const faults: EnvelopeFaults = {
    lost: 0,
    loseFollowing: (from, names, untilMs) => void deafTo.set(from, { names, untilMs }),
    cutOff: (address, untilMs) => void cut.set(address, untilMs),
    through(database) {
      const reader = createReader();
      /** Reads envelopes, if it is a read, unless that is kept from succeeding. */
      const lookedBy = async <Answer>(
        statement: Statement | undefined,
        ask: () => Promise<Answer>,
        rowsOf: (answer: Answer) => readonly Row[],
      ): Promise<Answer> => {
        if (statement?.strings !== look) return ask();
        const address = statement.parts[1] as string;
        if (isCutOff(address)) throw new FlotillaError("store_unavailable", "simulated");
        const answer = await ask();
        reader.find(address, rowsOf(answer));
        return answer;
      };
      return {
        ...database,
        read: (statement) =>
          lookedBy(
            statement,
            () => database.read(statement),
            (rows) => rows,
          ),
        async write(statements, options) {
          const isEnvelope = options?.lossy === true && (options.channels?.length ?? 0) > 0;
          if (!isEnvelope) {
            return lookedBy(
              statements.at(-1),
              () => database.write(statements, options),
              (tables) => tables.at(-1)!,
            );
          }
          const loses = world.chance(faults.lost) && !(once && isSpared(statements));
          if (!loses) {
            if (options.payloads) noteAsked(options.payloads);
            const thin = thinned(statements, options);
            return database.write(thin.statements, thin.options);
          }
          count("fault: envelopes lost");
          scheduler.note(`envelopes to ${options.channels!.join()} are lost`);
          await database.read(roundTrip).catch(() => {});
          return statements.map(() => []);
        },
        subscribe: (listener, channel) =>
          database.subscribe(
            channel === undefined
              ? listener
              : (whose, text) => {
                  if (isCutOff(channel)) return;
                  if (text !== undefined) reader.carry(channel, text);
                  listener(whose, text);
                },
            channel,
          ),
      };
    },
  };
  return faults;
}

const nameOf = (address: string, { sender, seq }: Numbered) => `${address} ${sender} ${seq}`;
