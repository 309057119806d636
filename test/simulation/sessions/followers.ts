/**
 * Clients that follow a session: they join somewhere with what they have, leave, are cut off, and come
 * back elsewhere. Each event is judged when it is sent and when it arrives.
 */
import { hasCode, messageOf } from "../../../src/base/errors.ts";
import type { Joined, FeedEvent, Sink } from "../../../src/sessions/service.ts";
import type { World } from "../world.ts";
import { createAnswerSeen } from "./answer-seen.ts";
import { tenant } from "./clients.ts";
import type { Gateway, Gateways } from "./gateways.ts";
import { exactly } from "./words.ts";
import type { Witness } from "./witness.ts";

export type Followers = {
  follow(sessionId: string): void;
  /**
   * Followers that have some of a session leave and come back soon, to that pod if one is named. With
   * `more`, as many new followers come with a place that an earlier connection gave them.
   */
  comeBack(sessionId: string, options: { podId?: string; more?: number }): void;
  /**
   * One begins to follow a session where another one, of the same owner, is left or about to be deleted,
   * while its gateway's word of what it follows is lost. Undefined where there are none.
   */
  swap(how: "left" | "deleted"): { old: string; fresh: string } | undefined;
  /** Clients that were connected to a pod that is gone notice that. */
  cutOff(name: string): void;
  /** Who still lacks something, in words. */
  behind(): string | undefined;
};

type Follower = {
  readonly name: string;
  readonly sessionId: string;
  lastSeq: number;
  incarnation: string | undefined;
  lastMessageId: string | undefined;
  connection: Connection | undefined;
  /** It was told that there is no such session. */
  over: boolean;
};
type Connection = {
  readonly gateway: Gateway;
  open: boolean;
  joined: Joined | undefined;
  /** Whether it was told anything. */
  told: boolean;
  /** It has come with a place while its session was there. */
  readonly cameBack: boolean;
};

export type FollowersParts = {
  gateways: Gateways;
  witness: Witness;
  untilMs: number;
  /** What a gateway says of what it follows is lost for so long. */
  loseFollowing: (from: string, names: readonly string[], untilMs: number) => void;
};

const followersMost = 10;
/** How likely a reader is too slow for an event, and is cut off. */
const tooSlow = 0.02;

export function createSessionFollowers(world: World, parts: FollowersParts): Followers {
  const { scheduler, violate, count } = world;
  const { gateways, witness, untilMs, loseFollowing } = parts;
  const all: Follower[] = [];
  const isQuiet = () => scheduler.nowMs >= untilMs;

  const join = (follower: Follower, at?: string): void => {
    if (follower.over) return;
    const gateway = gateways.any(at);
    if (!gateway) return rejoin(follower);
    const { sessionId, lastSeq, incarnation, lastMessageId } = follower;
    const cameBack = lastSeq > 0 && !isGone(sessionId);
    const connection: Connection = {
      gateway,
      open: true,
      joined: undefined,
      told: false,
      cameBack,
    };
    follower.connection = connection;
    scheduler.note(`${follower.name} joins ${sessionId} at ${gateway.name} from ${lastSeq}`);
    const place = {
      lastSeq,
      ...(incarnation !== undefined && { incarnation }),
      ...(lastMessageId !== undefined && world.chance(0.7) && { lastMessageId }),
    };
    count(lastSeq > 0 ? "client: joined again" : "client: joined");
    scheduler.after(gateways.delayMs(), () =>
      gateway.enter(() => {
        if (!connection.open) return;
        const sink = sinkOf(follower, connection);
        try {
          connection.joined = gateway.service.join(tenant, sessionId, place, sink);
          connection.joined.ready.catch(() => {});
        } catch (error) {
          sink.fail(error);
        }
      }),
    );
    if (at === undefined && !isQuiet() && world.chance(0.7)) {
      scheduler.after(world.between(200, 8_000), () => {
        if (connection.open && !isQuiet()) leave(follower, connection);
      });
    }
  };

  const part = (follower: Follower, connection: Connection): void => {
    connection.open = false;
    follower.connection = undefined;
    connection.gateway.enter(() => connection.joined?.leave());
  };
  const leave = (follower: Follower, connection: Connection): void => {
    if (!connection.open) return;
    part(follower, connection);
    rejoin(follower);
  };
  const rejoin = (follower: Follower): void => {
    scheduler.after(world.between(1, isQuiet() ? 200 : 3_000), () => {
      if (!follower.connection) join(follower);
    });
  };

  /** Events come to the client in the order in which they were sent. */
  const sinkOf = (follower: Follower, connection: Connection): Sink<FeedEvent> => {
    let lastMs = 0;
    const answer = createAnswerSeen(world, follower.name);
    const deliver = (arrive: () => void) => {
      lastMs = Math.max(lastMs, scheduler.nowMs + gateways.delayMs());
      scheduler.after(lastMs - scheduler.nowMs, () => {
        if (connection.open) arrive();
      });
    };
    return {
      push(event) {
        if (!connection.open) return false;
        if (!isQuiet() && world.chance(tooSlow)) {
          count("client: too slow");
          leave(follower, connection);
          return false;
        }
        judgeSent(follower, event, connection.gateway);
        noteTold(follower, connection);
        deliver(() => {
          take(follower, event);
          answer.take(event, follower.lastSeq);
        });
        return true;
      },
      fail(error) {
        noteTold(follower, connection);
        deliver(() => {
          scheduler.note(`${follower.name} is cut off: ${messageOf(error)}`);
          if (hasCode(error, "not_found")) follower.over = isGone(follower.sessionId);
          leave(follower, connection);
        });
      },
    };
  };

  const noteTold = ({ sessionId }: Follower, connection: Connection): void => {
    if (connection.told) return;
    connection.told = true;
    if (connection.cameBack && isGone(sessionId)) count("client: came back while it was deleted");
  };

  const isGone = (sessionId: string) =>
    witness.sessions.get(sessionId)?.header.status === "deleted";

  /** Nothing leaves that isn't stored, or isn't what is stored. */
  const judgeSent = ({ name, sessionId }: Follower, event: FeedEvent, { name: at }: Gateway) => {
    if (event.type !== "entries" || isGone(sessionId)) return;
    for (const entry of event.entries) {
      const stored = witness.textOf(sessionId, entry.seq);
      const what = `${sessionId}#${entry.seq} from ${at} to ${name}`;
      if (stored === undefined) violate("S6", `${what} isn't stored`);
      else if (stored !== exactly(entry)) violate("S2", `${what} isn't what is stored`);
    }
  };

  const take = (follower: Follower, event: FeedEvent): void => {
    const what = `${follower.name} of ${follower.sessionId}`;
    switch (event.type) {
      case "joined":
        if (event.lastSeq < follower.lastSeq) {
          violate("S7", `${what} has ${follower.lastSeq} and joins at ${event.lastSeq}`);
        }
        if (event.incarnation !== witness.headOf(follower.sessionId)?.incarnation) {
          violate("O6", `${what} joins a log of the incarnation "${event.incarnation}"`);
        }
        follower.incarnation = event.incarnation;
        return;
      case "reset":
        return violate("S7", `${what} is to forget what it has: ${event.reason}`);
      case "deleted":
        if (!isGone(follower.sessionId)) violate("S6", `${what} is told that it was deleted`);
        follower.over = true;
        return;
      case "entries":
        for (const { seq, messageId } of event.entries) {
          if (seq !== follower.lastSeq + 1) {
            violate(
              seq <= follower.lastSeq ? "S7" : "S5",
              `${what} gets ${seq} after ${follower.lastSeq}`,
            );
          }
          follower.lastSeq = seq;
          follower.lastMessageId = messageId;
        }
        return;
      case "state":
      case "chunks":
        return;
    }
  };

  const make = (
    sessionId: string,
    has: Partial<Pick<Follower, "lastSeq" | "lastMessageId">> = {},
  ): Follower => {
    const name = `f${all.length + 1}`;
    const follower: Follower = {
      name,
      sessionId,
      lastSeq: 0,
      incarnation: undefined,
      lastMessageId: undefined,
      connection: undefined,
      over: false,
      ...has,
    };
    all.push(follower);
    return follower;
  };

  const ownerOf = (sessionId: string) => witness.headOf(sessionId)?.owner ?? undefined;
  const isFollowedAt = (name: string, sessionId: string) =>
    all.some((each) => each.sessionId === sessionId && each.connection?.gateway.name === name);

  const moveAll = (sessionId: string, { from, to }: { from: string; to: string }): void => {
    for (const follower of all) {
      const { connection } = follower;
      if (follower.sessionId !== sessionId || connection?.gateway.name !== from) continue;
      part(follower, connection);
      join(follower, to);
    }
  };

  return {
    follow(sessionId) {
      if (all.length >= followersMost || !witness.sessions.has(sessionId)) return;
      join(make(sessionId));
    },
    comeBack(sessionId, { podId, more = 0 }) {
      const soon = (follower: Follower): void => {
        const soonMs = world.between(0, 3 * world.troubles.delayMs);
        scheduler.after(podId === undefined ? soonMs : 0, () => {
          if (!follower.connection) join(follower, podId);
        });
      };
      for (const follower of all) {
        const { connection } = follower;
        if (follower.sessionId !== sessionId || follower.lastSeq === 0 || !connection?.open) {
          continue;
        }
        part(follower, connection);
        soon(follower);
      }
      const { entries } = witness.sessions.get(sessionId) ?? { entries: [] };
      for (let left = entries.length > 0 ? more : 0; left > 0; left--) {
        const { seq, messageId } = world.pick(entries);
        soon(make(sessionId, { lastSeq: seq, lastMessageId: messageId }));
      }
    },
    swap(how) {
      for (const { sessionId: old, connection, over } of all) {
        const name = connection?.gateway.name;
        if (over || !connection?.told || name === undefined || isGone(old)) continue;
        const owner = ownerOf(old);
        if (owner === undefined || owner === name) continue;
        const fresh = [...witness.sessions.keys()].find(
          (each) =>
            each !== old && !isGone(each) && ownerOf(each) === owner && !isFollowedAt(name, each),
        );
        if (fresh === undefined) continue;
        count(`client: follows another, one is ${how}`);
        // One that is left is followed for two more seconds.
        const [fromMs, toMs, forMs] = how === "left" ? [1_200, 2_900, 3_300] : [0, 300, 1_500];
        loseFollowing(name, [old, fresh], scheduler.nowMs + forMs);
        scheduler.after(world.between(fromMs, toMs), () => join(make(fresh), name));
        if (how === "left") moveAll(old, { from: name, to: owner });
        return { old, fresh };
      }
      return undefined;
    },
    cutOff(name) {
      for (const follower of all) {
        const { connection } = follower;
        if (connection?.gateway.name !== name) continue;
        const seenMs = world.between(1, 1_000);
        scheduler.after(seenMs, () => leave(follower, connection));
      }
    },
    behind() {
      for (const { name, sessionId, lastSeq, over } of all) {
        const seen = witness.sessions.get(sessionId)!;
        if (over) continue;
        if (isGone(sessionId)) return `${name} hasn't heard that ${sessionId} was deleted`;
        const has = seen.entries.length;
        if (lastSeq < has) return `${name} has ${lastSeq} of ${has} in ${sessionId}`;
      }
      return undefined;
    },
  };
}
