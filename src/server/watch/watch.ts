import { type EventStreams, unbuffered } from "../event-streams.ts";
import { route, type Route } from "../route.ts";
import type { WatchHub } from "./hub.ts";
import { watchSpecs } from "./watch.schema.ts";

export type WatchRoutes = { hub: Pick<WatchHub, "watch">; streams: EventStreams };

/** Live topics as server-sent events. The frame `watch` of a socket gives the same. */
export function watchRoutes({ hub, streams }: WatchRoutes): Route[] {
  return [
    route(watchSpecs.watch).to(({ caller, query: { topics }, context }) => {
      const body = streams.open(context, (to) =>
        hub.watch(caller, topics.split(","), {
          push: ({ type, text }) => to.write({ type, data: text }),
          drained: to.drained,
        }),
      );
      return { status: 200, body, headers: unbuffered };
    }),
  ];
}
