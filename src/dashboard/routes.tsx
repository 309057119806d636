import {
  createRootRoute,
  createRoute,
  createRouter,
  type ErrorComponentProps,
  lazyRouteComponent,
  Link,
} from "@tanstack/react-router";
import type { TaskQuery } from "./api.ts";
import type { RunQuery, RunStatus } from "./asks/flows.ts";
import type { SessionQuery } from "./asks/sessions.ts";
import { mountPath } from "./browser.ts";
import { auditSearchIn } from "./facts/audit/search.ts";
import { queueSearchIn } from "./facts/queues/rows.ts";
import { metadataIn } from "./facts/sessions/filter.ts";
import { Failed, PageTitle } from "./parts/states.tsx";
import { Shell } from "./shell/shell.tsx";

// It has the name and the key of a throttle in it.
const maxThrottleCursorChars = 3_300;

/** Every page and its address. What is filtered is in the address, as plain text. */

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NoPage,
  errorComponent: Broken,
});

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  validateSearch: (search: Record<string, unknown>): { span?: string } => textIn(search, "span"),
  component: lazyRouteComponent(() => import("./pages/overview.tsx"), "OverviewPage"),
});

const tasks = createRoute({
  getParentRoute: () => root,
  path: "/tasks",
  validateSearch: taskFilterIn,
  component: lazyRouteComponent(() => import("./pages/tasks.tsx"), "TasksPage"),
});

const task = createRoute({
  getParentRoute: () => root,
  path: "/tasks/$taskId",
  component: lazyRouteComponent(() => import("./pages/task.tsx"), "OneTaskPage"),
});

const failures = createRoute({
  getParentRoute: () => root,
  path: "/failures",
  validateSearch: (
    search: Record<string, unknown>,
  ): { group?: string; name?: string; state?: string; redrive?: string } => ({
    ...textIn(search, "group"),
    ...textIn(search, "redrive"),
    ...textIn(search, "name"),
    ...textIn(search, "state"),
  }),
  component: lazyRouteComponent(() => import("./pages/failures.tsx"), "FailuresPage"),
});

const pods = createRoute({
  getParentRoute: () => root,
  path: "/pods",
  validateSearch: (search: Record<string, unknown>): { find?: string } => textIn(search, "find"),
  component: lazyRouteComponent(() => import("./pages/pods.tsx"), "PodsPage"),
});

const flows = createRoute({
  getParentRoute: () => root,
  path: "/flows",
  validateSearch: (search: Record<string, unknown>): { cursor?: string } =>
    textIn(search, "cursor"),
  component: lazyRouteComponent(() => import("./pages/flows/flows.tsx"), "FlowsPage"),
});

const flow = createRoute({
  getParentRoute: () => root,
  path: "/flows/$flow",
  validateSearch: runFilterIn,
  component: lazyRouteComponent(() => import("./pages/flows/flow.tsx"), "OneFlowPage"),
});

const run = createRoute({
  getParentRoute: () => root,
  path: "/runs/$runId",
  validateSearch: (search: Record<string, unknown>): { before?: string } =>
    /^\d{1,10}$/.test(String(search["before"])) ? textIn(search, "before") : {},
  component: lazyRouteComponent(() => import("./pages/flows/run.tsx"), "OneRunPage"),
});

const throttles = createRoute({
  getParentRoute: () => root,
  path: "/throttles",
  validateSearch: (search: Record<string, unknown>): { cursor?: string } =>
    textIn(search, "cursor", maxThrottleCursorChars),
  component: lazyRouteComponent(() => import("./pages/throttles/throttles.tsx"), "ThrottlesPage"),
});

const throttle = createRoute({
  getParentRoute: () => root,
  path: "/throttles/$throttle",
  validateSearch: (search: Record<string, unknown>): { key?: string; span?: string } => ({
    ...textIn(search, "key"),
    ...textIn(search, "span"),
  }),
  component: lazyRouteComponent(() => import("./pages/throttles/throttle.tsx"), "OneThrottlePage"),
});

const sessions = createRoute({
  getParentRoute: () => root,
  path: "/sessions",
  validateSearch: sessionFilterIn,
  component: lazyRouteComponent(() => import("./pages/sessions/sessions.tsx"), "SessionsPage"),
});

const session = createRoute({
  getParentRoute: () => root,
  path: "/sessions/$sessionId",
  validateSearch: (search: Record<string, unknown>): { tenant?: string } =>
    textIn(search, "tenant"),
  component: lazyRouteComponent(() => import("./pages/sessions/session.tsx"), "OneSessionPage"),
});

const approvals = createRoute({
  getParentRoute: () => root,
  path: "/approvals",
  validateSearch: (search: Record<string, unknown>): { tenant?: string } =>
    textIn(search, "tenant"),
  component: lazyRouteComponent(() => import("./pages/sessions/approvals.tsx"), "ApprovalsPage"),
});

const queues = createRoute({
  getParentRoute: () => root,
  path: "/queues",
  validateSearch: queueSearchIn,
  component: lazyRouteComponent(() => import("./pages/queues/queues.tsx"), "QueuesPage"),
});

const schedules = createRoute({
  getParentRoute: () => root,
  path: "/schedules",
  validateSearch: (search: Record<string, unknown>): { cursor?: string } =>
    textIn(search, "cursor"),
  component: lazyRouteComponent(() => import("./pages/schedules/schedules.tsx"), "SchedulesPage"),
});

const schedule = createRoute({
  getParentRoute: () => root,
  path: "/schedules/$scheduleId",
  validateSearch: (search: Record<string, unknown>): { cursor?: string } =>
    textIn(search, "cursor"),
  component: lazyRouteComponent(() => import("./pages/schedules/schedule.tsx"), "OneSchedulePage"),
});

const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  validateSearch: auditSearchIn,
  component: lazyRouteComponent(() => import("./pages/audit.tsx"), "WhoDidWhatPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    overview,
    tasks,
    task,
    queues,
    schedules,
    schedule,
    failures,
    flows,
    flow,
    run,
    throttles,
    throttle,
    sessions,
    session,
    approvals,
    pods,
    audit,
  ]),
  basepath: mountPath,
  scrollRestoration: true,
  defaultPendingMs: 200,
  // As text, so that an id of digits stays one, and without quotes in the address.
  parseSearch: (search) => Object.fromEntries(new URLSearchParams(search)),
  stringifySearch(search: Record<string, unknown>) {
    const given = Object.entries(search).filter(
      (entry): entry is [string, string] => typeof entry[1] === "string" && entry[1] !== "",
    );
    return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
  },
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

/** All that the address has: the page says what can't be filtered by, in place of leaving it out. */
function taskFilterIn(search: Record<string, unknown>): TaskQuery {
  const given = Object.entries(search).filter(
    ([, value]) => typeof value === "string" && value !== "",
  );
  return Object.fromEntries(given) as TaskQuery;
}

const runStatuses: readonly string[] = ["open", "setAside", "completed", "failed", "cancelled"];

function runFilterIn(search: Record<string, unknown>): RunQuery {
  const { status, version } = search;
  return {
    ...textIn(search, "at"),
    ...(runStatuses.includes(String(status)) && { status: status as RunStatus }),
    ...(/^\d{1,9}$/.test(String(version)) && { version: String(version) }),
    ...textIn(search, "tenant"),
    ...textIn(search, "cursor"),
  };
}

const sessionStates: readonly string[] = ["idle", "catching_up", "waiting", "compacting"];

function sessionFilterIn(search: Record<string, unknown>): SessionQuery {
  const { state, status } = search;
  return {
    ...textIn(search, "user"),
    ...textIn(search, "agent"),
    ...(typeof state === "string" &&
      sessionStates.includes(state) && { state: state as NonNullable<SessionQuery["state"]> }),
    ...((status === "active" || status === "archived") && { status }),
    ...textIn(search, "tenant"),
    ...metadataIn(search),
  };
}

function textIn<Name extends string>(
  search: Record<string, unknown>,
  name: Name,
  maxChars = 500,
): { [Each in Name]?: string } {
  const value = search[name];
  return typeof value === "string" && value !== "" && value.length <= maxChars
    ? ({ [name]: value } as { [Each in Name]?: string })
    : {};
}

function NoPage() {
  return (
    <>
      <PageTitle name="No such page">There is no such page</PageTitle>
      <p>
        The address may be of a later version, or mistyped. <Link to="/">To the overview</Link>
      </p>
    </>
  );
}

function Broken({ error, reset }: ErrorComponentProps) {
  return (
    <main className="alone">
      <h1>This page is broken</h1>
      <Failed error={error} onRetry={reset} />
    </main>
  );
}
