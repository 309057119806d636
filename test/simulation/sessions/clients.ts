/** Those who make sessions and talk in them, until a moment. What isn't known to be stored is sent again. */
import { hasCode, messageOf } from "../../../src/base/errors.ts";
import type { Sent } from "../../../src/session/service.ts";
import type { World } from "../world.ts";
import { agentNames } from "./agents.ts";
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
};

export type ClientsParts = {
  gateways: Gateways;
  witness: Witness;
  history: History;
  followers: Followers;
  untilMs: number;
  gapMs: number;
};

/** How a request may be refused without anything being wrong. */
const refusals = ["conflict", "not_found", "overloaded", "invalid_input"] as const;
/** After these it isn't known what was stored. */
const unsure = ["timeout", "unknown_outcome"] as const;
const passing = ["unavailable", "store_busy", "store_unavailable", "closed", "not_owner"] as const;

type Made = { readonly sessionId: string; readonly agents: readonly string[] };

export function startSessionClients(world: World, parts: ClientsParts): Clients {
  const { scheduler, violate, count } = world;
  const { gateways, witness, history, followers, untilMs, gapMs } = parts;
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

  /** Answers a call that nobody has answered. */
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
    const done = await gateways.ask({ ask: (service) => service.stop(tenant, sessionId, epoch) });
    count(done ? "stop: asked" : "stop: in vain");
  };

  const readPage = async ({ sessionId }: Made): Promise<void> => {
    const after = world.chance(0.5) ? 0 : world.between(0, history.ackedSeq(sessionId));
    const limit = world.pick([1, 2, 100]);
    const atLeast = history.ackedSeq(sessionId);
    await gateways.ask({
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

  const keep = async ({ sessionId }: Made): Promise<void> => {
    const ask = (what: "archive" | "unarchive" | "remove" | "compact") => {
      count(`client: ${what}`);
      return gateways.ask({ ask: (service): Promise<unknown> => service[what](tenant, sessionId) });
    };
    const what = world.pick(["archive", "archive", "compact", "compact", "compact", "remove"]);
    if (what !== "archive") return void (await ask(what as "remove"));
    await ask("archive").catch(() => {});
    await pause(world.between(10, 3_000));
    await persist(() => ask("unarchive"));
  };

  const act = (): void => {
    if (made.length === 0 || (made.length < 9 && world.chance(0.12))) return asked(create());
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
    else if (dice <= 96) {
      count("client: regenerate");
      asked(gateways.ask({ ask: (service) => service.regenerate(tenant, sessionId, {}) }));
    } else asked(keep(session));
  };

  const loop = (): void => {
    if (scheduler.nowMs >= untilMs) return;
    act();
    scheduler.after(world.between(1, gapMs * 2), loop);
  };
  scheduler.after(world.between(0, 1_000), loop);

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
  };
}
