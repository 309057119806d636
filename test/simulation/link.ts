/**
 * One process's way to the store, on which everything can go wrong that goes wrong with a database:
 * requests and answers take time, are lost before or after the commit, land late or twice, or are
 * refused while writes are frozen.
 */
import { FlotillaError } from "../../src/base/errors.ts";
import { fraction } from "../../src/base/random.ts";
import type { Database, Listener, Row, WriteOptions } from "../../src/store/database.ts";
import type { Statement } from "../../src/store/sql.ts";
import type { Change, Committed } from "./audit.ts";
import type { Seen } from "./fences.ts";
import { type Intent, intentOf } from "./kinds.ts";
import type { Lane } from "./lane.ts";
import type { World } from "./world.ts";

export type LinkOptions = {
  /** Whose link it is, as in the trace and in freezes. */
  who: string;
  /** Another name under which this link alone can be frozen. */
  alias?: string;
  lane: Lane;
  /** Ends the process, if it is one that crashes. */
  crash?: () => void;
  /** Stops the process for a while, if it is one that can be stopped. */
  pause?: (durationMs: number) => void;
  /** Told when this link's own trouble delays a write, because that can explain a missed beat. */
  onTrouble?: (durationMs: number) => void;
  /** Told when a write meets a freeze. */
  onFrozen?: () => void;
};

type Outcome = { readonly tables: Row[][] } | { readonly error: unknown };

/** Called with each write, right before and right after it. */
export type Watcher = {
  before(who: string, intent: Intent): Promise<Seen>;
  after(
    who: string,
    intent: Intent,
    seen: Seen,
    changes: readonly Change[],
    committed: Pick<Committed, "noted" | "tables">,
  ): Promise<void>;
};

export type Network = { connect(options: LinkOptions): Database; hint(): void };

export type NetworkOptions = {
  /** Envelopes come along with their notifications, as on Postgres. Default false: they stay in their rows. */
  carriesEnvelopes?: boolean;
};

// Longer envelopes aren't sent along with their notification, as on Postgres.
const carriedChars = 7_999;

export function createNetwork(
  world: World,
  checker: Watcher,
  { carriesEnvelopes = false }: NetworkOptions = {},
): Network {
  const { scheduler, store, frozen, onTheWay } = world;
  // Some stores tell of every commit that is seen in a file, and others of what a writer calls out.
  const callsOut = world.chance(0.5);
  type Listening = {
    who: string;
    lane: Lane;
    listener: Listener;
    channel: string | undefined;
    due: boolean;
    /** Whether another process has committed since the last notification. */
    others: boolean;
    /** When the last envelopes that were brought in time arrive. */
    broughtMs: number;
  };
  const listeners = new Set<Listening>();

  const delay = () => {
    const { delayMs, slow } = world.troubles;
    if (!world.chance(slow)) return fraction(world.random) * delayMs;
    world.count("fault: slow");
    return world.between(300, 4_000);
  };

  const hint = (committer?: string) => {
    for (const each of listeners) {
      if (callsOut || each.who !== committer) each.others = true;
    }
    tell(({ channel }) => channel === undefined);
  };
  const tell = (isFor: (listening: Listening) => boolean) => {
    const { hintLost, hintLate } = world.troubles;
    for (const each of listeners) {
      if (each.due || each.lane.dead || !isFor(each)) continue;
      if (world.chance(hintLost)) {
        world.count("fault: hint lost");
        continue;
      }
      const late = world.chance(hintLate);
      if (late) world.count("fault: hint late");
      each.due = true;
      scheduler.after(late ? world.between(300, 5_000) : delay(), () => {
        const whose = each.others ? undefined : "own";
        if (each.channel === undefined) {
          world.count(`hint: ${callsOut ? "called out" : (whose ?? "others")}`);
        }
        each.due = false;
        each.others = false;
        each.lane.enter(() => each.listener(whose));
      });
    }
  };

  /** Each notification brings its own envelopes, in the order of the commits, unless it is late or lost. */
  const bring = (payloads: ReadonlyMap<string, string>) => {
    const { hintLost, hintLate } = world.troubles;
    for (const each of listeners) {
      const text = each.channel === undefined ? undefined : payloads.get(each.channel);
      if (text === undefined || each.lane.dead) continue;
      if (world.chance(hintLost)) {
        world.count("fault: envelopes lost with their notification");
        continue;
      }
      const late = world.chance(hintLate);
      if (late) world.count("fault: envelopes late with their notification");
      const soonMs = scheduler.nowMs + (late ? world.between(300, 5_000) : delay());
      const atMs = late ? soonMs : Math.max(each.broughtMs, soonMs);
      if (!late) each.broughtMs = atMs;
      const carried = text.length > carriedChars ? "" : text;
      scheduler.after(atMs - scheduler.nowMs, () =>
        each.lane.enter(() => each.listener(undefined, carried)),
      );
    }
  };

  const apply = async (
    who: string,
    statements: readonly Statement[],
    intent: Intent,
    { notify: isCalledOut = false, channels = [], payloads }: WriteOptions,
  ): Promise<Row[][]> => {
    const seen = await checker.before(who, intent);
    const { tables, changes, noted } = await store.commit(statements);
    scheduler.note(`${who} ${intent.kind}${changes.map(brief).join("")}`);
    await checker.after(who, intent, seen, changes, { noted, tables });
    if (callsOut ? isCalledOut : changes.length > 0) hint(who);
    if (carriesEnvelopes && payloads) bring(payloads);
    else if (channels.length > 0)
      tell(({ channel }) => channel !== undefined && channels.includes(channel));
    return tables;
  };

  const connect = (options: LinkOptions): Database => {
    const { who, alias = who, lane, crash, pause } = options;
    const { onTrouble = () => {}, onFrozen = () => {} } = options;
    const freeze = () => {
      const found = ["*", who, alias].map((name) => frozen.get(name));
      return found.find((each) => each !== undefined && each.untilMs > scheduler.nowMs);
    };

    /** Applies a write once it isn't held up by a freeze, and tells what came of it. */
    const landing = (
      statements: readonly Statement[],
      intent: Intent,
      options: WriteOptions,
      tell: (outcome: Outcome) => void,
    ): void => {
      const ice = freeze();
      if (ice) {
        world.count(`fault: frozen, ${ice.mode}`);
        onFrozen();
        if (ice.mode === "refuse") return tell({ error: busy() });
        // Waiting writes come in any order after the thaw.
        later(world.between(50, 400), () => landing(statements, intent, options, tell));
        return;
      }
      apply(who, statements, intent, options).then(
        (tables) => tell({ tables }),
        (error: unknown) => tell({ error }),
      );
    };
    /** How long the process stands still with this write, which then comes when others have its work. */
    const standStill = ({ kind, steps }: Intent): number => {
      if (!pause || !steps || !world.chance(world.troubles.pausedAtStep)) return 0;
      world.count("fault: paused at a step");
      scheduler.note(`${who} stands still with a ${kind}`);
      const durationMs = world.between(5_000, 11_000);
      pause(durationMs);
      return durationMs;
    };
    const later = (delayMs: number, arrive: () => void): void => {
      onTheWay.set(who, (onTheWay.get(who) ?? 0) + 1);
      scheduler.after(delayMs, () => {
        onTheWay.set(who, onTheWay.get(who)! - 1);
        arrive();
      });
    };

    return {
      read: (statement) =>
        new Promise((resolve, reject) => {
          if (lane.dead) return;
          const lost = world.chance(world.troubles.lostBefore);
          scheduler.after(delay(), () => {
            if (lost) {
              world.count("fault: read failed");
              lane.enter(() => reject(new FlotillaError("store_unavailable", "simulated")));
              return;
            }
            void store.database.read(statement).then((rows) => {
              scheduler.after(delay(), () => lane.enter(() => resolve(rows)));
            }, reject);
          });
        }),
      write: (statements, given = {}) =>
        new Promise((resolve, reject) => {
          if (lane.dead) return;
          const { troubles } = world;
          const intent = intentOf(statements);
          const land = (tell: (outcome: Outcome) => void) =>
            landing(statements, intent, given, tell);
          const answer = (outcome: Outcome) => {
            const tookMs = delay();
            if (tookMs > 300) onTrouble(tookMs);
            scheduler.after(tookMs, () =>
              lane.enter(() => {
                if ("error" in outcome) reject(outcome.error as Error);
                else resolve(outcome.tables);
              }),
            );
          };
          const forget = () => {};
          const unknown = () => answer({ error: lostAnswer() });
          const troubled = (kind: string) => {
            world.count(`fault: ${kind}`);
            scheduler.note(`${who} ${intent.kind} ${kind}`);
            onTrouble(1_500);
          };

          if (crash && world.chance(troubles.crashBefore)) {
            troubled("crashed before sending");
            return crash();
          }
          const sendMs = delay() + standStill(intent);
          if (sendMs > 300) onTrouble(sendMs);
          if (world.chance(troubles.refused)) {
            troubled("refused");
            answer({ error: busy() });
          } else if (world.chance(troubles.lostBefore)) {
            troubled("lost before the commit");
            unknown();
          } else if (world.chance(troubles.lostAfter)) {
            troubled("lost after the commit");
            later(sendMs, () => land(unknown));
          } else if (world.chance(troubles.late)) {
            troubled("landed late");
            unknown();
            const lateMs = world.between(50, 8_000);
            later(lateMs, () => land(forget));
          } else if (crash && world.chance(troubles.crashAfter)) {
            troubled("crashed before its answer");
            later(sendMs, () => land(crash));
          } else if (world.chance(troubles.doubled)) {
            troubled("doubled");
            // Claims aren't made to be repeated, and no pod repeats one whose answer has come.
            const heard = (outcome: Outcome) => {
              if (intent.kind === "claim" || intent.carried || "error" in outcome) unknown();
              else answer(outcome);
              const againMs = world.between(1, 4_000);
              later(againMs, () => land(forget));
            };
            later(sendMs, () => land(heard));
          } else later(sendMs, () => land(answer));
        }),
      subscribe(listener, channel) {
        const entry = { who, lane, listener, channel, due: false, others: true, broughtMs: 0 };
        listeners.add(entry);
        return () => listeners.delete(entry);
      },
      within() {
        throw new Error("no transactions of callers are simulated");
      },
      close: async () => {},
    };
  };
  return { connect, hint };
}

function brief(change: {
  taskId: string;
  before: { status: string } | undefined;
  after: { status: string; token: number } | undefined;
}): string {
  const { taskId, before, after } = change;
  return ` ${taskId.slice(-6)}:${before?.status ?? "-"}>${after?.status ?? "-"}@${after?.token}`;
}

const busy = () => new FlotillaError("store_busy", "simulated: writes are refused");
const lostAnswer = () => new FlotillaError("unknown_outcome", "simulated: the answer was lost");
