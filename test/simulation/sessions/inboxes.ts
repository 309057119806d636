/** Users who look at the list of sessions, wherever it is shown, and must end with what is stored. */
import type { InboxEvent, InboxItem, Joined, Sink } from "../../../src/sessions/service.ts";
import { sql, table } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";
import { tenant } from "./clients.ts";
import type { Gateway, Gateways } from "./gateways.ts";
import type { Witness } from "./witness.ts";

export type Inboxes = {
  cutOff(name: string): void;
  /** One list is opened where another one is closed, while its gateway's word of whom it watches is lost. */
  swap(): void;
  /** What a list shows that isn't so, in words. */
  wrong(): Promise<string | undefined>;
};

type Connection = { readonly gateway: Gateway; open: boolean; joined: Joined | undefined };
type Inbox = {
  /** Where it is shown now. */
  at(): string | undefined;
  /** Closes it, and opens it again: there, or elsewhere a moment later. */
  move(to?: string): void;
  cutOff(name: string): void;
  wrong(): Promise<string | undefined>;
};

export type InboxesParts = {
  gateways: Gateways;
  witness: Witness;
  users: readonly [string, string];
  /** What a gateway says of whom it watches is lost for so long. */
  loseFollowing: (from: string, names: readonly string[], untilMs: number) => void;
};

export function openInboxes(world: World, parts: InboxesParts): Inboxes {
  const { scheduler, count } = world;
  const all = parts.users.map((user) => openInbox(world, { ...parts, user }));
  return {
    cutOff(name) {
      for (const each of all) each.cutOff(name);
    },
    swap() {
      const [one, other] = world.chance(0.5) ? all : all.toReversed();
      const at = one!.at();
      if (at === undefined || other!.at() === at) return;
      count("inbox: swapped");
      parts.loseFollowing(at, parts.users, scheduler.nowMs + 1_200);
      other!.move(at);
      one!.move();
    },
    async wrong() {
      for (const each of all) {
        const wrong = await each.wrong();
        if (wrong !== undefined) return wrong;
      }
      return undefined;
    },
  };
}

function openInbox(
  world: World,
  { gateways, witness, user }: Omit<InboxesParts, "users"> & { user: string },
): Inbox {
  const { scheduler, count } = world;
  let items = new Map<string, InboxItem>();
  let connection: Connection | undefined;

  const open = (at?: string): void => {
    const gateway = gateways.any(at);
    if (!gateway) return again();
    const made: Connection = { gateway, open: true, joined: undefined };
    connection = made;
    gateway.enter(() => {
      try {
        made.joined = gateway.service.inbox(tenant, user, sinkOf(made));
        made.joined.ready.catch(() => {});
      } catch {
        close(made);
      }
    });
  };
  const again = (): void => {
    scheduler.after(world.between(10, 500), () => open());
  };
  const part = (closing: Connection): boolean => {
    if (!closing.open) return false;
    closing.open = false;
    closing.gateway.enter(() => closing.joined?.leave());
    return true;
  };
  const close = (closing: Connection): void => {
    if (part(closing)) again();
  };

  const sinkOf = (made: Connection): Sink<InboxEvent> => ({
    push(event) {
      if (!made.open) return false;
      count(`inbox: ${event.type}`);
      if (event.type === "snapshot") items = new Map();
      if (event.type === "removed") for (const each of event.sessionIds) items.delete(each);
      else for (const item of event.sessions) items.set(item.sessionId, item);
      return true;
    },
    fail: () => close(made),
  });
  scheduler.after(500, () => open());

  const wrong: Inbox["wrong"] = async () => {
    const rows = await world.store.database.read(
      sql`select session_id, read_seq from ${table("session_user")} where user_id = ${user}`,
    );
    for (const row of rows) {
      const { header, entries } = witness.sessions.get(row["session_id"])!;
      if (header.status === "deleted") continue;
      const readSeq = Number(row["read_seq"]);
      const unread = entries.filter(
        ({ seq, kind, author, replaces }) =>
          seq > readSeq && kind === "message" && replaces === undefined && author !== user,
      ).length;
      const item = items.get(header.sessionId);
      const shown = item && [item.lastSeq, item.readSeq, item.unread, item.state, item.status];
      const is = [header.lastSeq, readSeq, unread, "idle", header.status];
      if (shown?.join() !== is.join())
        return `${user}: ${header.sessionId} shows ${shown?.join()}, not ${is.join()}`;
    }
    const theirs = new Set(rows.map((row) => row["session_id"]));
    const stray = [...items.keys()].find((sessionId) => !theirs.has(sessionId));
    return stray === undefined ? undefined : `${user}: ${stray} is shown, and isn't theirs`;
  };

  return {
    at: () => (connection?.open ? connection.gateway.name : undefined),
    move(to) {
      if (!connection || !part(connection)) return;
      if (to === undefined) again();
      else open(to);
    },
    cutOff(name) {
      const cut = connection;
      if (cut?.gateway.name === name) scheduler.after(world.between(1, 500), () => close(cut));
    },
    wrong,
  };
}
