/** Clients that create sessions and send messages, until a moment. What isn't known to be stored is sent again. */
import { hasCode, messageOf } from "../../../src/base/errors.ts";
import type { ChangeMembers, Sent } from "../../../src/sessions/service.ts";
import type { World } from "../world.ts";
import { agentNames } from "./agents.ts";
import { changed, type Changes, unsure } from "./changes.ts";
import type { Followers } from "./followers.ts";
import type { Gateways } from "./gateways.ts";
import type { History, Op } from "./history.ts";
import { judgePage } from "./reading.ts";
import type { SessionSeen, Witness } from "./witness.ts";

export const tenant = "default";
export const users = ["u1", "u2"] as const;

export type Clients = {
  /** How much is asked and not answered yet. */
  readonly open: number;
  /** Something has changed in a session. */
  onSession(seen: SessionSeen): void;
  /** Asks for much at once of the sessions of a log: to talk, or to change something and undo that. */
  crowd(logId: number, what: "talk" | "change"): void;
  /** Asks a pod for what others have stored meanwhile. */
  readAt(podId: string): void;
  /** Has a session followed where another one isn't any more, if it can, and goes on talking in it. */
  swap(): boolean;
  /** Says something somewhere, so much later. */
  talkIn(delayMs: number): void;
};

export type ClientsParts = {
  gateways: Gateways;
  witness: Witness;
  history: History;
  changes: Changes;
  followers: Followers;
  untilMs: number;
  gapMs: number;
  /** Clients come to a fresh database, before there is a log. */
  atOnce: boolean;
};

/** How a request may be refused without anything being wrong. */
const refusals = ["conflict", "not_found", "overloaded", "invalid_input"] as const;
const passing = ["unavailable", "store_busy", "store_unavailable", "closed", "not_owner"] as const;

/** For so long, clients of a fresh database ask all the time. */
const earlyMs = 3_000;

type Made = { readonly sessionId: string; readonly agents: readonly string[] };

export function startSessionClients(world: World, parts: ClientsParts): Clients {
  const { scheduler, violate, count } = world;
  const { gateways, witness, history, changes, followers, untilMs, gapMs, atOnce } = parts;
  const made: Made[] = [];
  let open = 0;
  let ids = 0;

  const pause = (durationMs: number) =>
    new Promise<void>((resolve) => void scheduler.after(durationMs, resolve));

  const asked = (work: Promise<unknown>): void => {
    open++;
    void work
      .catch((error: unknown) => {
        if (!hasCode(error, ...refusals, ...unsure, ...passing)) {
          violate("errors", `a client was told ${messageOf(error)}`);
        }
      })
      .finally(() => open--);
  };

  const create = async (): Promise<void> => {
    const again = made.length > 0 && world.chance(0.2);
    const session: Made = again
      ? world.pick(made)
      : {
          sessionId: `s${made.length + 1}`,
          agents: [...new Set([world.pick(agentNames), ...some(0.3), ...some(0.1)])],
        };
    if (!again) made.push(session);
    const { sessionId, agents } = session;
    await persist(() =>
      gateways.ask({
        ask: (service) => service.create(tenant, { sessionId, agents, users }),
        judge: (view) => {
          if (view.sessionId !== sessionId || !witness.sessions.has(sessionId)) {
            violate("S12", `${sessionId} was made and isn't there`);
          }
        },
      }),
    );
  };
  const some = (share: number) => (world.chance(share) ? [world.pick(agentNames)] : []);

  /** Asks again for as long as that may help. */
  const persist = async <Answer>(
    ask: () => Promise<Answer>,
    onError: (error: unknown) => void = () => {},
  ): Promise<Answer> => {
    const most = world.between(1, 6);
    for (let tries = 1; ; tries++) {
      try {
        return await ask();
      } catch (error) {
        onError(error);
        if (tries >= most || !hasCode(error, ...unsure, ...passing)) throw error;
      }
      await pause(world.between(10, 1_500));
    }
  };

  /** Sends something with its id until it is acknowledged, or not worth it any more. */
  const send = async (
    given: Pick<Op, "type" | "sessionId" | "to"> & { id?: string },
    ask: (id: string) => Parameters<typeof gateways.ask<Sent>>[0]["ask"],
  ): Promise<void> => {
    const id = given.id ?? `m${++ids}`;
    const op: Op = {
      ...given,
      id,
      beganAt: history.now(),
      endedAt: undefined,
      seqs: [],
      duplicates: 0,
      unknown: false,
      refused: undefined,
    };
    history.ops.push(op);
    const judge = ({ seq, duplicate }: Sent): void => {
      const seen = witness.sessions.get(op.sessionId);
      if (seen?.header.status === "deleted") return;
      if (seen?.seqOf.get(id) !== seq) violate("O3", `${id} is acknowledged at ${seq}, not stored`);
      if (duplicate) count("client: answered as a duplicate");
    };
    const once = () =>
      persist(
        () => gateways.ask({ ask: ask(id), judge }),
        (error) => {
          if (hasCode(error, ...unsure)) op.unknown = true;
          else op.refused = messageOf(error);
        },
      ).then(({ seq, duplicate }) => {
        op.endedAt ??= history.now();
        op.seqs.push(seq);
        if (duplicate) op.duplicates++;
      });
    const all = world.chance(0.15) ? [once(), once()] : [once()];
    for (const each of await Promise.allSettled(all)) {
      if (each.status === "rejected") throw each.reason;
    }
  };

  const say = (session: Made): Promise<void> => {
    const { sessionId, agents } = session;
    const to = agents.length > 1 && world.chance(0.4) ? world.pick(agents) : undefined;
    const author = world.pick(users);
    return send({ type: "send", sessionId, to: to ?? agents[0] }, (id) => (service) => {
      const parts = [{ type: "text", text: `${id} says ${author}` }];
      const tokens = world.between(5, 40);
      return service.send(tenant, sessionId, {
        id,
        author,
        parts,
        tokens,
        ...(to !== undefined && { to }),
      });
    });
  };

  /** Answers a call that has no result yet. */
  const answerCall = async ({ sessionId }: Made): Promise<void> => {
    const entries = witness.sessions.get(sessionId)?.entries ?? [];
    const calling = entries.findLast(({ parts }) => parts.some(({ type }) => type === "tool-ask"));
    if (!calling) return;
    const { messageId, author: to } = calling;
    const { toolCallId } = calling.parts.findLast(({ type }) => type === "tool-ask")!;
    const results = [{ toolCallId: String(toolCallId), output: "yes" }];
    count("client: a tool's result");
    await send(
      { type: "tool_result", sessionId, to },
      (id) => (service) =>
        service.toolResult(tenant, sessionId, { id, author: "u1", messageId, results }),
    );
  };

  const stop = async ({ sessionId }: Made): Promise<void> => {
    const { work } = witness.sessions.get(sessionId)?.header ?? {};
    const epoch = work && world.chance(0.5) ? { epoch: work.epoch } : {};
    const asked = { ...epoch, author: world.pick(users), by: "user" } as const;
    const done = await gateways.ask({ ask: (service) => service.stop(tenant, sessionId, asked) });
    count(done ? "stop: asked" : "stop: in vain");
  };

  const readPage = async ({ sessionId }: Made, at?: string): Promise<void> => {
    const atLeast = history.ackedSeq(sessionId);
    const after = world.chance(0.5) ? 0 : world.between(0, atLeast);
    const limit = world.pick([1, 2, 100]);
    await gateways.ask({
      at,
      ask: (service) => service.entries(tenant, sessionId, { after, limit }),
      judge: (page, { name }) =>
        judgePage(world, witness, page, { sessionId, after, limit, atLeast, where: name }),
    });
  };

  const markRead = async ({ sessionId }: Made): Promise<void> => {
    const user = world.pick(users);
    const seq = world.between(0, history.ackedSeq(sessionId));
    const read = { sessionId, user, seq, acked: false };
    history.reads.push(read);
    await gateways.ask({ ask: (service) => service.read(tenant, sessionId, { user, seq }) });
    read.acked = true;
  };

  const remove = (sessionId: string): Promise<void> => {
    count("client: remove");
    if (world.chance(0.7)) followers.comeBack(sessionId, { more: 2 });
    return gateways.ask({ ask: (service) => service.remove(tenant, sessionId) });
  };

  const keep = async (session: Made): Promise<void> => {
    const { sessionId } = session;
    const what = world.pick(["compact", "compact", "compact", "remove"]);
    if (what === "remove") return remove(sessionId);
    count("client: compact");
    await gateways.ask({ ask: (service) => service.compact(tenant, sessionId) });
  };

  /** Changes something that has no id, and undoes that. */
  const change = async ({ sessionId }: Made): Promise<void> => {
    const value = `v${++ids}`;
    const what = world.pick(["members", "metadata", "archive"] as const);
    count(`client: ${what}`);
    const ask = (made: string, request: Parameters<typeof gateways.ask>[0]) =>
      changes.ask(made, () => gateways.ask(request));
    const set = (text: string) =>
      ask(changed.metadata(sessionId, JSON.stringify(text)), {
        ask: (service) => service.setMetadata(tenant, sessionId, text),
        judge(answer) {
          const { metadataVersion } = answer as { metadataVersion: number };
          const stored = witness.sessions.get(sessionId)?.header.metadataVersion ?? 0;
          if (stored < metadataVersion) violate("O3", `${sessionId} says ${text}: not stored`);
        },
      });
    const member = (made: string, change: ChangeMembers) =>
      ask(made, { ask: (service) => service.changeMembers(tenant, sessionId, change) });
    const steps = {
      members: [
        () => member(changed.joined(sessionId, value), { addUsers: [value] }),
        () => member(changed.left(sessionId, value), { removeUsers: [value] }),
      ],
      metadata: [() => set(value), () => set(`${value} again`)],
      archive: [
        () =>
          ask(changed.status(sessionId, "archived"), {
            ask: (service) => service.archive(tenant, sessionId),
          }),
        () =>
          ask(changed.status(sessionId, "active"), {
            ask: (service) => service.unarchive(tenant, sessionId),
          }),
      ],
    }[what];
    await steps[0]!().catch(() => {});
    await pause(world.between(10, 1_000));
    await persist(steps[1]!);
  };

  const act = (): void => {
    const more = atOnce && scheduler.nowMs < earlyMs ? 0.4 : 0.12;
    if (made.length === 0 || (made.length < 9 && world.chance(more))) return asked(create());
    const session = world.pick(made);
    const { sessionId } = session;
    const dice = world.between(1, 100);
    if (dice <= 50) {
      const times = world.pick([1, 1, 1, 2, 3]);
      for (let left = times; left > 0; left--) asked(say(session));
    } else if (dice <= 60) followers.follow(sessionId);
    else if (dice <= 68) asked(stop(session));
    else if (dice <= 80) asked(readPage(session));
    else if (dice <= 88) asked(markRead(session));
    else if (dice <= 93) {
      count("client: regenerate");
      asked(gateways.ask({ ask: (service) => service.regenerate(tenant, sessionId, {}) }));
    } else if (dice <= 97) asked(change(session));
    else asked(keep(session));
  };

  const loop = (): void => {
    if (scheduler.nowMs >= untilMs) return;
    act();
    const isEarly = atOnce && scheduler.nowMs < earlyMs;
    scheduler.after(world.between(1, isEarly ? 40 : gapMs * 2), loop);
  };
  scheduler.after(atOnce ? 0 : world.between(0, 1_000), loop);

  const isDeleted = (sessionId: string) =>
    witness.sessions.get(sessionId)?.header.status === "deleted";
  const there = () =>
    made.filter(({ sessionId }) => witness.sessions.has(sessionId) && !isDeleted(sessionId));

  return {
    get open() {
      return open;
    },
    onSession({ header: { sessionId, work }, entries }) {
      if (scheduler.nowMs >= untilMs) return;
      const session = made.find((each) => each.sessionId === sessionId);
      if (!session) return;
      const soonMs = world.between(0, 2_000);
      const isCall = entries.at(-1)?.parts.some(({ type }) => type === "tool-ask");
      if (isCall && world.chance(0.7)) scheduler.after(soonMs, () => asked(answerCall(session)));
      if (!work) return;
      // What crosses the end of a turn is what is most likely to go wrong.
      if (world.chance(0.05)) scheduler.after(soonMs, () => asked(stop(session)));
      if (world.chance(0.1)) scheduler.after(soonMs, () => asked(say(session)));
    },
    crowd(logId, what) {
      const ofLog = there().filter(({ sessionId }) => witness.headOf(sessionId)?.logId === logId);
      if (ofLog.length === 0) return;
      for (let left = world.between(4, 10); left > 0; left--) {
        const session = world.pick(ofLog);
        const soonMs = world.between(0, 1_500);
        const ask = what === "change" && world.chance(0.7) ? change : say;
        scheduler.after(soonMs, () => asked(ask(session)));
      }
    },
    readAt(podId) {
      for (const session of there()) {
        asked(readPage(session, podId));
        followers.comeBack(session.sessionId, { podId });
      }
    },
    swap() {
      const how = world.chance(0.5) ? "left" : "deleted";
      const swapped = followers.swap(how);
      if (!swapped) return false;
      if (how === "deleted") asked(persist(() => remove(swapped.old)));
      const session = made.find(({ sessionId }) => sessionId === swapped.fresh)!;
      asked(pause(how === "left" ? 4_500 : 2_500).then(() => say(session)));
      return true;
    },
    talkIn(delayMs) {
      const sessions = there();
      if (sessions.length > 0) asked(pause(delayMs).then(() => say(world.pick(sessions))));
    },
  };
}
