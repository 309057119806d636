import type { Json } from "../base/json.ts";
import type { Http } from "./http.ts";
import type { Watch } from "./watch.ts";
import type { RunView } from "./views.ts";
import type { Watched } from "./watched.ts";
import type { PageOptions } from "./calls.ts";
import type { EnqueueOptions } from "./tasks.ts";

export type RunCalls = {
  start(flow: string, input?: Json, options?: StartRunOptions): Promise<StartedRun>;
  get(runId: string): Promise<RunView>;
  /** Asks for it to be cancelled. Its finalizers run first. */
  cancel(runId: string): Promise<void>;
  /** Says something to a run that waits for it, or will. The same id again says nothing new. */
  signal(runId: string, name: string, payload?: Json, options?: { id?: string }): Promise<void>;
  /** A page, newest first. */
  list(options?: ListRunsOptions): Promise<RunPage>;
  /** The same handle each time for the same run. */
  watch(runId: string): Watched<RunView>;
};

export type StartRunOptions = Omit<EnqueueOptions, "attempts" | "onDuplicate"> & {
  onDuplicate?: "existing" | "reject";
};

export type StartedRun = {
  readonly runId: string;
  readonly created: boolean;
  /** No pod that is up works on runs of this flow: it waits until one does. */
  readonly noWorker?: boolean;
};

export type ListRunsOptions = PageOptions & {
  flow?: string;
  status?: RunView["status"] | "pending" | "claimed";
  tenant?: string;
  at?: string;
  parent?: string;
};

export type RunPage = { readonly runs: readonly RunView[]; readonly next: string | null };

export function runCalls(http: Http, watch: Watch): RunCalls {
  const at = (runId: string) => `/v1/runs/${encodeURIComponent(runId)}`;
  const get = async (runId: string) => (await http<{ run: RunView }>("GET", at(runId))).run;
  return {
    start: (flow, input = null, options = {}) =>
      http("POST", "/v1/runs", { body: { flow, input, options } }),
    get,
    async cancel(runId) {
      await http("POST", `${at(runId)}/cancel`);
    },
    async signal(runId, name, payload = null, { id } = {}) {
      await http("POST", `${at(runId)}/signals`, { body: { name, payload, id } });
    },
    list: (query = {}) => http("GET", "/v1/runs", { query }),
    watch: watch(get, ({ status }) => status !== "open"),
  };
}
