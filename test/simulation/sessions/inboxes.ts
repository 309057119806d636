/** A user who looks at the list of sessions, wherever it is shown, and must end with what is stored. */
import type { InboxEvent, InboxItem, Joined, Sink } from "../../../src/session/service.ts";
import { sql, table } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";
import { tenant } from "./clients.ts";
import type { Gateway, Gateways } from "./gateways.ts";
import type { Witness } from "./witness.ts";

export type Inboxes = {
  cutOff(name: string): void;
  /** What the list shows that isn't so, in words. */
  wrong(): Promise<string | undefined>;
};

type Connection = { readonly gateway: Gateway; open: boolean; joined: Joined | undefined };

export function openInbox(
  world: World,
  { gateways, witness, user }: { gateways: Gateways; witness: Witness; user: string },
): Inboxes {
  const { scheduler, count } = world;
  let items = new Map<string, InboxItem>();
  let connection: Connection | undefined;

  const open = (): void => {
    const gateway = gateways.any();
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
    scheduler.after(world.between(10, 500), open);
  };
  const close = (closing: Connection): void => {
    if (!closing.open) return;
    closing.open = false;
    closing.gateway.enter(() => closing.joined?.leave());
    again();
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
  scheduler.after(500, open);

  const wrong: Inboxes["wrong"] = async () => {
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
        return `${header.sessionId} shows ${shown?.join()}, not ${is.join()}`;
    }
    return undefined;
  };

  return {
    cutOff(name) {
      const cut = connection;
      if (cut?.gateway.name === name) scheduler.after(world.between(1, 500), () => close(cut));
    },
    wrong,
  };
}
