import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/log.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { version } from "../../runtime/version.ts";
import type { Metrics } from "../metrics/metrics.ts";
import { openApi } from "../openapi.ts";
import type { Readiness } from "../readiness.ts";
import { route, type Route } from "../route.ts";
import { heldTenant } from "../auth/caller.ts";
import { auditSpecs } from "./access/audit.schema.ts";
import { approvalSpecs } from "./waiting/approvals.schema.ts";
import { fleetSpecs } from "./fleet.schema.ts";
import { withoutUndefined } from "./tasks.ts";

export type FleetRoutes = {
  flotilla: Flotilla;
  /** Whether sessions go on without the store. Default: as the connection knows it. */
  hasStreamLogs?: (() => boolean) | undefined;
  /** Without it there is no `/metrics`. */
  metrics?: Metrics | undefined;
  readiness: () => Promise<Readiness>;
  clock: Clock;
  log: Logger;
};

/** The fleet as a whole, this process's health, and the OpenAPI document. */
export function fleetRoutes(parts: FleetRoutes): Route[] {
  const { flotilla, metrics, readiness, clock, log } = parts;
  const { hasStreamLogs = () => flotilla.hasStreamLogs } = parts;
  // Made on the first request and kept.
  let document: Record<string, unknown> | undefined;
  return [
    route(fleetSpecs.live).to(() => ({ status: 200, body: { status: "live" } })),
    route(fleetSpecs.ready).to(async () => {
      const found = await readiness();
      // Work goes on without it, more slowly.
      const nats = flotilla.natsState === null ? {} : { nats: flotilla.natsState };
      if (found.ready) return { status: 200, body: { status: "ready", ...nats } };
      // Sessions go on without the database, unless a balancer takes out every pod.
      const goesOn = hasStreamLogs() && flotilla.natsState === "connected";
      if (goesOn && found.reason !== "stopping") {
        return { status: 200, body: { status: "ready", ...nats, archive: "away" } };
      }
      const body = { status: "not ready", reason: found.reason, ...nats } as const;
      return { status: 503, body, headers: { "Retry-After": "1" } };
    }),
    ...(metrics ? [metricsRoute({ flotilla, metrics, clock, log })] : []),
    route(fleetSpecs.pods).to(async () => {
      return { status: 200, body: { pods: await flotilla.pages.pods() } };
    }),
    route(fleetSpecs.fleet).to(async () => {
      return { status: 200, body: await flotilla.pages.fleet() };
    }),
    // The pod reads it with its next heartbeat.
    route(fleetSpecs.drain).to(async ({ params: { podId } }) => {
      return { status: 202, body: await flotilla.drainPod(podId) };
    }),
    route(fleetSpecs.undrain).to(async ({ params: { podId } }) => {
      return { status: 202, body: await flotilla.undrainPod(podId) };
    }),
    route(fleetSpecs.stats).to(async ({ query }) => {
      return { status: 200, body: await flotilla.tasks.stats({ exact: query.exact === "true" }) };
    }),
    route(fleetSpecs.depth).to(async () => {
      return { status: 200, body: { names: Object.fromEntries(await flotilla.pages.depth()) } };
    }),
    route(fleetSpecs.series).to(async ({ query }) => {
      const { subject, from: fromMs, to: toMs, span: spanMs, step } = query;
      const options = withoutUndefined({ subject, fromMs, toMs, spanMs, step });
      return { status: 200, body: await flotilla.series.read(options) };
    }),
    route(fleetSpecs.subjects).to(async ({ query }) => {
      return { status: 200, body: await flotilla.series.subjects(withoutUndefined(query)) };
    }),
    route(approvalSpecs.list).to(async ({ caller, query }) => {
      const filter = { ...query, tenant: heldTenant(caller, query.tenant) };
      return { status: 200, body: await flotilla.pages.approvals(withoutUndefined(filter)) };
    }),
    // It can be read, and is changed by no route.
    route(auditSpecs.list).to(async ({ query }) => {
      return { status: 200, body: await flotilla.audit.list(withoutUndefined(query)) };
    }),
    route(fleetSpecs.openapi).to(() => {
      document ??= openApi({ version: version() });
      return { status: 200, body: document };
    }),
  ];
}

function metricsRoute({
  flotilla,
  metrics,
  clock,
  log,
}: Omit<FleetRoutes, "readiness"> & { metrics: Metrics }): Route {
  return route(fleetSpecs.metrics).to(async () => {
    const depth = () => flotilla.tasks.depth();
    const throttles = async () => (await flotilla.throttles.list({ limit: 1_000 })).throttles;
    const doing = (flows: readonly string[]) => flotilla.runs.doing(flows);
    const nats = () => flotilla.natsState;
    const text = await metrics.collect({ depth, throttles, doing, nats, clock, log });
    return { status: 200, body: text, headers: { "Content-Type": metrics.contentType } };
  });
}
