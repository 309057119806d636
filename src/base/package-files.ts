/**
 * Locates the package's own files. In source each is at its place below `src/`, while a build puts
 * all code side by side, so that no other module can derive the location of another.
 */
const fromSource = import.meta.url.endsWith(".ts");

/** The entry files of worker threads: the name in a build, and the file below `src/`. */
export const threads = {
  "heartbeat-thread": "pods/heartbeat-thread.ts",
  "sqlite-thread": "store/sqlite/thread.ts",
} as const;

export function threadFile(name: keyof typeof threads): URL {
  return new URL(fromSource ? `../${threads[name]}` : `./${name}.js`, import.meta.url);
}

/** A file of the package, by its path relative to `package.json`. */
export function packageFile(path: string): URL {
  return new URL(path, new URL(fromSource ? "../../" : "../", import.meta.url));
}

/** Where the page of the dashboard has its files. No prefix of `server.pages` can have this name. */
export const dashboardFolder = "@dashboard";
