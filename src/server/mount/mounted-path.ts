import { trimEnd } from "../../base/trim-end.ts";

/** Where a request is, seen from the mount. */
export type MountedPath = {
  /** The path inside of the mount, as it was sent. */
  readonly inside: string;
  /** Leads from the address that the browser shows to the mount: `./`, `../`, or `./ops/` at `/ops`. */
  readonly up: string;
};

/** What is known of a request's path. All paths are as they were sent, without a query. */
type Asked = {
  /** As the handler is given it: Express, and Hono's `mount`, take the mount off. */
  readonly seen: string;
  /** As the host was given it, where that is known. */
  readonly original?: string | undefined;
  /** How many folders it is below the mount, where the host says so. */
  readonly segments?: number | undefined;
  /** The mount, where the app says so. */
  readonly basePath?: string | undefined;
  /** A browser opens a page with it. */
  readonly isPage: boolean;
};

/** What a path inside of the mount begins with. Pages are below their name at most. */
const pages =
  /^(?:tasks|queues|schedules|failures|flows|runs|throttles|sessions|approvals|pods|audit)(?:\/[^/]+){0,2}$/;
const routes = /^(?:v\d+|@dashboard)\//;

/**
 * Finds the mount in a path, so that no app has to name it: from what the host has taken off, from what it
 * says is below, and else from the first part of the path that is a page or a route of the dashboard.
 */
export function mountedPathOf({
  seen,
  original = seen,
  segments,
  basePath,
  isPage,
}: Asked): MountedPath {
  if (segments !== undefined) return belowBy(seen, segments);
  if (basePath !== undefined && isBelow(original, basePath))
    return behind(original, basePath.length);
  if (original === seen) return behind(seen, lengthOfMount(seen, isPage));
  // A host that takes the mount off makes `/` of both `/ops` and `/ops/`.
  if (seen === "/" && !original.endsWith("/")) return behind(original, original.length);
  return behind(seen, 0);
}

/** A path whose first characters are the mount. */
function behind(path: string, mountLength: number): MountedPath {
  const inside = path.slice(mountLength);
  if (inside !== "") return { inside, up: upBy(inside.split("/").length - 2) };
  return { inside: "/", up: `./${lastOf(path)}/` };
}

/** Hosts such as Next name the folders below the mount, and put a slash at the end of all paths or of none. */
function belowBy(path: string, segments: number): MountedPath {
  const folders = trimEnd(path, (each) => each === "/").split("/");
  const below = Math.min(segments, folders.length - 1);
  const inside = `/${folders.slice(folders.length - below).join("/")}`;
  if (path.endsWith("/")) return { inside, up: upBy(below) };
  return { inside, up: below === 0 ? `./${folders.at(-1)}/` : upBy(below - 1) };
}

/** How long the mount is in a path of which nothing was taken off, or nothing was known to be. */
function lengthOfMount(path: string, isPage: boolean): number {
  for (let at = path.indexOf("/"); at >= 0; at = path.indexOf("/", at + 1)) {
    const inside = path.slice(at + 1);
    if (pages.test(inside) || routes.test(inside)) return at;
  }
  // Programs that ask for what isn't there are told so.
  if (path.endsWith("/")) return path.length - 1;
  return isPage ? path.length : 0;
}

function isBelow(path: string, basePath: string): boolean {
  return path === basePath || path.startsWith(`${basePath}/`);
}

function lastOf(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

function upBy(folders: number): string {
  return folders <= 0 ? "./" : "../".repeat(folders);
}
