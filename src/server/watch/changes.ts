import type { Context } from "hono";
import type { Logger } from "../../base/log.ts";
import type { ChangeFilter } from "../../changes/changes.ts";
import type { RecordedChange, ChangeKind } from "../../changes/change.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { withoutUndefined } from "../api/tasks.ts";
import { heldTenant } from "../auth/caller.ts";
import { eventStream, type EventStreams, type EventWriter, unbuffered } from "../event-streams.ts";
import { route, type Route } from "../route.ts";
import { frameErrorOf } from "../socket/send-buffer.ts";
import { changeSpecs } from "./changes.schema.ts";

export type ChangeRoutes = {
  flotilla: Pick<Flotilla, "changes">;
  streams: EventStreams;
  log: Logger;
};

/** Recorded changes, as pages and as server-sent events. */
export function changeRoutes({ flotilla, streams, log }: ChangeRoutes): Route[] {
  return [
    route(changeSpecs.list).to(async ({ caller, query, context }) => {
      const { after, limit, follow } = query;
      const filter: ChangeFilter = withoutUndefined({
        names: query.names?.split(","),
        kinds: query.kinds?.split(",") as ChangeKind[] | undefined,
        tenant: heldTenant(caller, query.tenant),
      });
      const from = context.req.header("last-event-id") || after;
      const page = await flotilla.changes.page(withoutUndefined({ ...filter, after: from, limit }));
      if (follow !== "true" && (follow === "false" || !acceptsEvents(context))) {
        return { status: 200, body: { ...page, changes: [...page.changes] } };
      }
      // The first page is read before the answer begins, while the status can still tell of a cursor that
      // is refused.
      const body = streams.open(context, (to) => {
        const stop = new AbortController();
        const further = flotilla.changes({ ...filter, signal: stop.signal, after: page.cursor });
        void send([page.changes, further], to, log);
        return () => stop.abort();
      });
      return { status: 200, body, headers: { ...unbuffered, "Content-Type": eventStream } };
    }),
  ];
}

function acceptsEvents(context: Context): boolean {
  return context.req.header("accept")?.includes(eventStream) === true;
}

/** Sends one change after the other, each when the client has room for it. */
async function send(
  parts: readonly (Iterable<RecordedChange> | AsyncIterable<RecordedChange>)[],
  to: EventWriter,
  log: Logger,
): Promise<void> {
  try {
    for (const part of parts) {
      for await (const change of part) {
        await to.drained();
        if (!to.write({ type: "change", id: change.cursor, data: JSON.stringify(change) })) return;
      }
    }
  } catch (error) {
    to.write({ type: "error", data: JSON.stringify(frameErrorOf(error, log)) });
    to.end();
  }
}
