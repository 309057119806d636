import { followUntil, systemClock } from "../base/clock.ts";
import type { Http } from "../client/http.ts";
import type { DeadLetters } from "../dead-letters/dead-letters.ts";
import type { ErrorGroups } from "../dead-letters/error-groups.ts";
import { hasEnded, type Redrive } from "../dead-letters/redrive.ts";
import { pagesOf, type RequestQuery } from "./remote-requests.ts";

// The largest page of failed tasks.
const maxPageTasks = 1_000;

/** The failed tasks of a server. */
export function remoteDeadLetters(http: Http): Omit<DeadLetters, "getRedrive"> {
  return {
    groups: ({ name, tenant, state, limit } = {}) =>
      http("GET", "/v1/dlq/groups", { query: { name, tenant, state, limit } }),
    resolve: (group) => http("POST", `${groupAt(group)}/resolve`),
    ignore: (group, options = {}) =>
      http("POST", `${groupAt(group)}/ignore`, { body: { ...options } }),
    reopen: (group) => http("POST", `${groupAt(group)}/reopen`),
    list: ({ group, name, tenant, limit, cursor } = {}) =>
      http("GET", "/v1/dlq/tasks", { query: { group, name, tenant, limit, cursor } }),
    async count({ name, group, tenant }, { onProgress } = {}) {
      // The server lists the largest groups only, but counts the tasks of all.
      if (group === undefined) {
        const query = { name, tenant, limit: 1 };
        type Found = Pick<ErrorGroups, "tasks"> & Partial<Pick<ErrorGroups, "ignored">>;
        // A server of an earlier release counts all as open.
        const { tasks, ignored } = await http<Found>("GET", "/v1/dlq/groups", { query });
        return tasks + (ignored?.tasks ?? 0);
      }
      let count = 0;
      const query = { name, group, tenant, limit: maxPageTasks };
      for await (const page of pagesOf<unknown>(http, "/v1/dlq/tasks", "tasks", query)) {
        count += page.length;
        onProgress?.(count);
      }
      return count;
    },
    discard: (body) => http("POST", "/v1/dlq/discard", { body }),
    redrive: (selection, options = {}) =>
      http("POST", "/v1/dlq/redrives", { body: { ...selection, ...options } }),
    redrives: (query = {}) => http("GET", "/v1/dlq/redrives", { query: query as RequestQuery }),
    followRedrive(redriveId, options = {}) {
      const read = () => http<Redrive>("GET", redriveAt(redriveId));
      return followUntil(systemClock, read, { ...options, hasEnded });
    },
    cancelRedrive: (redriveId) => http("POST", `${redriveAt(redriveId)}/cancel`),
  };
}

const groupAt = (group: string) => `/v1/dlq/groups/${encodeURIComponent(group)}`;
const redriveAt = (redriveId: string) => `/v1/dlq/redrives/${encodeURIComponent(redriveId)}`;
