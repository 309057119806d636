/**
 * Where the package's own files are. From source each is at its place below `src/`, while a build puts
 * all code side by side, so that no other module can tell from its own address where another one is.
 */
const fromSource = import.meta.url.endsWith(".ts");

/** What worker threads start with: the name in a build, and the file below `src/`. */
export const threads = {
  "heartbeat-thread": "pods/heartbeat-thread.ts",
  "sqlite-thread": "store/sqlite/thread.ts",
} as const;

export function threadFile(name: keyof typeof threads): URL {
  return new URL(fromSource ? `../${threads[name]}` : `./${name}.js`, import.meta.url);
}

/** A file of the package, by its path from where `package.json` is. */
export function packageFile(path: string): URL {
  return new URL(path, new URL(fromSource ? "../../" : "../", import.meta.url));
}
