import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Context, Hono, MiddlewareHandler } from "hono";
import { accepts } from "hono/accepts";
import { dashboardFolder, packageFile } from "../../base/package-files.ts";
import type { MountedPath } from "../mount/mounted-path.ts";
import {
  dashboardHeaders,
  type PageFile,
  type PageFolder,
  readPageFolder,
  sendFile,
  toPageFile,
} from "../pages.ts";

/** The built dashboard, whose files are read when the first of them is requested. */
export type Dashboard = {
  /** Its page, with links that are relative to the requested path. */
  page(c: Context): Promise<Response>;
  /** A file of it; undefined where there is none of that name. */
  file(c: Context): Promise<Response | undefined>;
};

// No page of the app is deeper, and each depth has a page of its own in memory.
const maxDepth = 8;
const ofServer = /^\/(?:v\d+|metrics|health|sign-in|sign-out|@[^/]*)(?:\/|$)/;

/** Where a build puts the dashboard. */
export const builtDashboard = fileURLToPath(packageFile("dist/dashboard/"));

/** The dashboard in a folder; undefined where it isn't built. */
export function openDashboard(folder = builtDashboard): Dashboard | undefined {
  if (!existsSync(`${folder}/index.html`)) return undefined;
  let reading: Promise<PageFolder> | undefined;
  const read = () => {
    reading ??= readPageFolder(folder);
    // A folder that can't be read now may be whole again when the next browser comes.
    reading.catch(() => (reading = undefined));
    return reading;
  };
  const pages = new Map<string, PageFile>();
  return {
    async page(c) {
      const { index } = await read();
      const up = mountedPathIn(c)?.up ?? upFrom(depthOf(c));
      const page = pages.get(up) ?? (await linkedBy(index, up));
      // One for each depth. What a host calls its mount isn't kept, since it may be called anything.
      if (/^(?:\.\.?\/)+$/.test(up)) pages.set(up, page);
      return sendFile(c, page, { ...dashboardHeaders, Vary: "Accept" });
    },
    async file(c) {
      const { files } = await read();
      const file = files.get(c.req.path.slice(1));
      return file && sendFile(c, file, dashboardHeaders);
    },
  };
}

/** Where the request is inside of a host app; undefined where the server is an app of its own. */
export function mountedPathIn(c: { readonly env: unknown }): MountedPath | undefined {
  return (c.env as { mountedPath?: MountedPath } | undefined)?.mountedPath;
}

/** Mounts its files, which need no credentials and set their own cache headers. */
export function mountDashboardFiles(
  app: Hono,
  dashboard: Dashboard,
  admitted: MiddlewareHandler,
): void {
  app.get(
    `/${dashboardFolder}/*`,
    admitted,
    async (c) => (await dashboard.file(c)) ?? c.notFound(),
  );
}

/** Answers browsers with the dashboard at every path that nothing else has answered. */
export function mountDashboardPages(
  app: Hono,
  dashboard: Dashboard,
  admitted: MiddlewareHandler,
): void {
  const isOfDashboard: MiddlewareHandler = (c, next) => {
    const isPage = wantsPage(c) && !ofServer.test(c.req.path) && depthOf(c) <= maxDepth;
    return isPage ? next() : Promise.resolve(c.notFound());
  };
  app.get("*", isOfDashboard, admitted, (c) => dashboard.page(c));
}

/** Whether the caller is a browser that opens a page, and no program. */
export function wantsPage(c: Context): boolean {
  const type = accepts(c, {
    header: "Accept",
    supports: ["application/json", "text/html"],
    default: "application/json",
  });
  return type === "text/html";
}

/** How many folders the path is below where the dashboard is mounted. */
function depthOf(c: Context): number {
  return c.req.path.split("/").length - 2;
}

function upFrom(depth: number): string {
  return depth === 0 ? "./" : "../".repeat(depth);
}

/** The page with links that begin so: what a proxy or a host app puts before the path needs no setting. */
function linkedBy({ bytes }: PageFile, up: string): Promise<PageFile> {
  const text = new TextDecoder().decode(bytes);
  // A path has no quotes, because browsers and `URL` encode them.
  const escaped = up.replaceAll("&", "&amp;");
  const linked = text.replaceAll(`"./${dashboardFolder}/`, () => `"${escaped}${dashboardFolder}/`);
  return toPageFile("index.html", new TextEncoder().encode(linked));
}
