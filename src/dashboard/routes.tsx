import {
  createRootRoute,
  createRoute,
  createRouter,
  type ErrorComponentProps,
  lazyRouteComponent,
  Link,
} from "@tanstack/react-router";
import type { TaskQuery } from "./api.ts";
import { mountPath } from "./browser.ts";
import { Failed, PageTitle } from "./parts/states.tsx";
import { Shell } from "./shell/shell.tsx";

/** Every page and its address. What is filtered is in the address, as plain text. */

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NoPage,
  errorComponent: Broken,
});

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
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
  validateSearch: (search: Record<string, unknown>): { group?: string; name?: string } => ({
    ...textIn(search, "group"),
    ...textIn(search, "name"),
  }),
  component: lazyRouteComponent(() => import("./pages/failures.tsx"), "FailuresPage"),
});

const pods = createRoute({
  getParentRoute: () => root,
  path: "/pods",
  component: lazyRouteComponent(() => import("./pages/pods.tsx"), "PodsPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([overview, tasks, task, failures, pods]),
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

const statuses: readonly string[] = ["pending", "claimed", "completed", "failed", "cancelled"];

function taskFilterIn(search: Record<string, unknown>): TaskQuery {
  const status = search["status"];
  return {
    ...textIn(search, "name"),
    ...(typeof status === "string" &&
      statuses.includes(status) && { status: status as NonNullable<TaskQuery["status"]> }),
    ...textIn(search, "tenant"),
  };
}

function textIn<Name extends string>(
  search: Record<string, unknown>,
  name: Name,
): { [Each in Name]?: string } {
  const value = search[name];
  return typeof value === "string" && value !== "" && value.length <= 500
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
