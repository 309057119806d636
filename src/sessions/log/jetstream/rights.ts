import { inboxOf, subjectOf } from "../../../bus/nats/connection.ts";
import type { NatsSettings } from "../../../bus/nats/config.ts";

/** What a user of NATS servers has to be allowed, as subjects. Pods and programs use nothing else. */
export type NatsRights = {
  readonly publish: readonly string[];
  readonly subscribe: readonly string[];
};

/** What is asked of JetStream about one stream. No request deletes a stream or changes its settings. */
const streamRequests = [
  "STREAM.CREATE",
  "STREAM.INFO",
  "STREAM.PURGE",
  "STREAM.MSG.GET",
  "DIRECT.GET",
] as const;
const accountRequest = "INFO";
/** A wildcard can't stand for part of a name, so it stands for every stream of the account. */
const anyStream = "*";

/**
 * The rights of a deployment's user. Without `streams` it may make, read and trim any stream of its account,
 * as a first start needs it, and a log that gets another life; with them, those that are named.
 */
export function natsRights(
  { namespace, use }: Pick<NatsSettings, "namespace" | "use">,
  { streams = [anyStream] }: { streams?: readonly string[] | undefined } = {},
): NatsRights {
  const own = subjectOf(namespace, ">");
  const asked = streamRequests.flatMap((request) => streams.map((each) => api(request, each)));
  return {
    publish: use === "all" ? [own, api(accountRequest), ...asked] : [own],
    subscribe: [own, `${inboxOf(namespace)}.>`],
  };
}

function api(...tokens: readonly string[]): string {
  return ["$JS.API", ...tokens].join(".");
}
